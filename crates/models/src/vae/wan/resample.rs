//! From one level to the next: twice or half the size, and at some levels the frame rate.
//!
//! The very first frame of a clip stands for itself alone at every level; only those after it are
//! doubled or halved in number. The layers here are therefore given that frame by itself.

use burn::tensor::Tensor;
use kernels::{CausalFrames, Convolution};
use nn::{Convolution2d, Convolution3d, Result, Weights};

use super::layers::{FrameTensor, Layer, Memory};

/// Each pixel four times, then a convolution that keeps that size.
const ENLARGING: Convolution = Convolution { stride: 1, padding: [1; 4], upsample: 2 };

/// Every second pixel, with the one row and column of zeros below and on the right.
const HALVING: Convolution = Convolution { stride: 2, padding: [0, 0, 1, 1], upsample: 1 };

/// What a step between levels does to the frame rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rate {
    /// Nothing.
    Kept,
    /// It is doubled on the way up and halved on the way down.
    Changed,
}

impl Rate {
    pub(super) fn of(halves_time: bool) -> Rate {
        if halves_time { Rate::Changed } else { Rate::Kept }
    }
}

/// Twice the size.
pub(super) struct Upsample {
    space: Convolution2d,
    /// The two frames that each frame becomes.
    time: Option<[Convolution3d; 2]>,
    memory: Memory,
    started: bool,
}

impl Upsample {
    pub(super) fn new(weights: &Weights<'_>, channels: [usize; 2], rate: Rate) -> Result<Upsample> {
        let inner = channels[0];
        let time = match rate {
            Rate::Kept => None,
            Rate::Changed => {
                let both = weights.convolution3d("time_conv", [inner, 2 * inner], [3, 1, 1])?;
                Some([0, 1].map(|index| half(&both, index)))
            }
        };
        let space = weights.convolution("resample.1", channels, 3)?;
        Ok(Upsample { space, time, memory: Memory::default(), started: false })
    }

    fn double(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        let Some(time) = self.time.as_ref().filter(|_| self.started) else {
            return Ok(frames);
        };
        // The first frame is not in this memory: those after it see zeros in its place.
        let clip = CausalFrames { earlier: self.memory.frames(), now: &frames };
        let (even, odd) = (time[0].apply(clip, 1, None)?, time[1].apply(clip, 1, None)?);
        self.memory.keep(frames, 2);
        Ok(even.into_iter().zip(odd).flat_map(|(even, odd)| [even, odd]).collect())
    }
}

/// The convolution to the first or second half of the channels.
fn half(both: &Convolution3d, index: usize) -> Convolution3d {
    let width = both.bias.dims()[0] / 2;
    let weight: Tensor<5> = both.weight.clone().narrow(0, index * width, width);
    let bias = both.bias.clone().narrow(0, index * width, width);
    Convolution3d { weight, bias, strip: both.strip.clone() }
}

impl Layer for Upsample {
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        let frames = self.double(frames)?;
        self.started = true;
        self.space.apply_frames(&frames, &ENLARGING)
    }
}

/// Half the size.
pub(super) struct Downsample {
    space: Convolution2d,
    time: Option<Convolution3d>,
    memory: Memory,
    started: bool,
}

impl Downsample {
    pub(super) fn new(weights: &Weights<'_>, width: usize, rate: Rate) -> Result<Downsample> {
        let time = match rate {
            Rate::Kept => None,
            Rate::Changed => Some(weights.convolution3d("time_conv", [width; 2], [3, 1, 1])?),
        };
        let space = weights.convolution("resample.1", [width; 2], 3)?;
        Ok(Downsample { space, time, memory: Memory::default(), started: false })
    }
}

impl Layer for Downsample {
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        let frames = self.space.apply_frames(&frames, &HALVING)?;
        let Some(time) = &self.time else { return Ok(frames) };
        let out = match self.started {
            true => {
                let clip = CausalFrames { earlier: self.memory.frames(), now: &frames };
                time.apply(clip, 2, None)?
            }
            false => frames.clone(),
        };
        self.started = true;
        self.memory.keep(frames, 1);
        Ok(out)
    }
}
