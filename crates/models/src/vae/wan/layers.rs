//! The layers of both halves.
//!
//! A layer takes a clip piece by piece and remembers what the next piece needs: the last frames
//! that its convolutions saw. How the clip is cut does not change a bit of the result.

use burn::tensor::Tensor;
use kernels::{Activation, CausalFrames};
use nn::{Convolution3d, Linear, PixelAttention, Result, Weights};

pub(super) use crate::vae::frames::FrameTensor;

/// What happens to the frames of a clip.
pub(super) trait Layer {
    /// The results for the next frames of the clip, in order of time.
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>>;
}

/// The last frames that a convolution over time saw.
#[derive(Default)]
pub(super) struct Memory(Vec<FrameTensor>);

impl Memory {
    /// What is remembered, oldest first.
    pub(super) fn frames(&self) -> &[FrameTensor] {
        &self.0
    }

    /// Remembers the last `count` of all frames so far.
    pub(super) fn keep(&mut self, frames: Vec<FrameTensor>, count: usize) {
        self.0.extend(frames);
        let surplus = self.0.len().saturating_sub(count);
        self.0.drain(..surplus);
    }
}

/// A convolution over three frames that keeps their size.
pub(super) struct Causal {
    parameters: Convolution3d,
    memory: Memory,
}

impl Causal {
    pub(super) fn new(weights: &Weights<'_>, name: &str, channels: [usize; 2]) -> Result<Causal> {
        let parameters = weights.convolution3d(name, channels, [3; 3])?;
        Ok(Causal { parameters, memory: Memory::default() })
    }

    /// The result plus the frame of `residual` in its place.
    fn apply_beside(
        &mut self,
        frames: Vec<FrameTensor>,
        residual: Option<&[FrameTensor]>,
    ) -> Result<Vec<FrameTensor>> {
        let clip = CausalFrames { earlier: self.memory.frames(), now: &frames };
        let out = self.parameters.apply(clip, 1, residual)?;
        self.memory.keep(frames, 2);
        Ok(out)
    }
}

impl Layer for Causal {
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        self.apply_beside(frames, None)
    }
}

/// The same linear map of every pixel.
pub(super) struct Pixelwise(Linear);

impl Pixelwise {
    pub(super) fn new(
        weights: &Weights<'_>,
        name: &str,
        channels: [usize; 2],
    ) -> Result<Pixelwise> {
        let [inputs, outputs] = channels;
        weights.patch_projection(name, &[outputs, inputs, 1, 1, 1]).map(Pixelwise)
    }
}

impl Layer for Pixelwise {
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        frames.into_iter().map(|frame| self.0.apply(frame)).collect()
    }
}

/// A norm over channels with its activation.
pub(super) struct Norm {
    gain: Tensor<1>,
}

impl Norm {
    pub(super) fn new(weights: &Weights<'_>, name: &str, width: usize) -> Result<Norm> {
        let gain = weights.at(name).table("gamma", [width, 1, 1, 1])?;
        Ok(Norm { gain: gain.reshape([width]) })
    }

    fn frame(&self, frame: FrameTensor) -> FrameTensor {
        kernels::unit_norm(frame, self.gain.clone(), Activation::Silu)
    }
}

impl Layer for Norm {
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        Ok(frames.into_iter().map(|frame| self.frame(frame)).collect())
    }
}

/// `shortcut(x) + convolution(norm(convolution(norm(x))))`.
pub(super) struct Residual {
    norms: [Norm; 2],
    convolutions: [Causal; 2],
    /// There where the number of channels changes.
    shortcut: Option<Pixelwise>,
}

impl Residual {
    pub(super) fn new(weights: &Weights<'_>, channels: [usize; 2]) -> Result<Residual> {
        let [inputs, outputs] = channels;
        let shortcut = match inputs == outputs {
            true => None,
            false => Some(Pixelwise::new(weights, "conv_shortcut", channels)?),
        };
        Ok(Residual {
            norms: [Norm::new(weights, "norm1", inputs)?, Norm::new(weights, "norm2", outputs)?],
            convolutions: [
                Causal::new(weights, "conv1", channels)?,
                Causal::new(weights, "conv2", [outputs; 2])?,
            ],
            shortcut,
        })
    }
}

impl Layer for Residual {
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        let [first, second] = &mut self.convolutions;
        let branch = frames.iter().map(|frame| self.norms[0].frame(frame.clone())).collect();
        let branch = self.norms[1].apply(first.apply(branch)?)?;
        let frames = match &mut self.shortcut {
            Some(shortcut) => shortcut.apply(frames)?,
            None => frames,
        };
        second.apply_beside(branch, Some(&frames))
    }
}

/// One head as wide as the frame has channels, over all pixels of a frame.
pub(super) struct Attention {
    gain: Tensor<1>,
    pixels: PixelAttention,
    qkv: Linear,
    out: Linear,
}

impl Attention {
    pub(super) fn new(weights: &Weights<'_>, width: usize) -> Result<Attention> {
        let gain = weights.at("norm").table("gamma", [width, 1, 1])?;
        Ok(Attention {
            gain: gain.reshape([width]),
            pixels: weights.pixel_attention(),
            qkv: weights.patch_projection("to_qkv", &[3 * width, width, 1, 1])?,
            out: weights.patch_projection("proj", &[width, width, 1, 1])?,
        })
    }

    fn frame(&self, frame: FrameTensor) -> Result<FrameTensor> {
        let [height, width, channels] = frame.dims();
        let pixels = kernels::unit_norm(frame.clone(), self.gain.clone(), Activation::Identity);
        let qkv = self.qkv.apply(pixels.reshape([1, height * width, channels]))?;
        let parts = [0, 1, 2].map(|index| qkv.clone().narrow(2, index * channels, channels));
        let mixed = self.out.apply(self.pixels.apply(parts)?)?;
        Ok(frame + mixed.reshape([height, width, channels]))
    }
}

impl Layer for Attention {
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        frames.into_iter().map(|frame| self.frame(frame)).collect()
    }
}
