//! The levels of Wan 2.2: residual blocks and a change of size, beside a shortcut without weights.

use burn::tensor::{Device, Int, Tensor, TensorData};
use nn::Result;

use super::layers::{FrameTensor, Layer};
use super::resample::Rate;

/// A level with its shortcut. It is given the first frame of a clip by itself.
pub(super) struct Level {
    layers: Vec<Box<dyn Layer>>,
    shortcut: Shortcut,
    started: bool,
}

/// What leads around a level.
pub(super) enum Shortcut {
    /// Nothing.
    None,
    /// Groups of neighbouring frames, pixels and channels become their mean.
    Average(Change),
    /// Channels become neighbouring frames and pixels.
    Repeat(Change),
}

/// How a shortcut changes a clip.
#[derive(Clone, Copy)]
pub(super) struct Change {
    /// The side of the squares of pixels: 1 or 2.
    pub(super) side: usize,
    pub(super) rate: Rate,
    /// Channels of the result.
    pub(super) outputs: usize,
}

impl Change {
    fn frames(self) -> usize {
        if self.rate == Rate::Changed { 2 } else { 1 }
    }
}

impl Level {
    pub(super) fn new(layers: Vec<Box<dyn Layer>>, shortcut: Shortcut) -> Level {
        Level { layers, shortcut, started: false }
    }
}

impl Layer for Level {
    fn apply(&mut self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        let around = match self.shortcut {
            Shortcut::None => None,
            Shortcut::Average(_) | Shortcut::Repeat(_) => Some(frames.clone()),
        };
        let out = self.layers.iter_mut().try_fold(frames, |frames, layer| layer.apply(frames))?;
        let first = !std::mem::replace(&mut self.started, true);
        let Some(around) = around else { return Ok(out) };
        let around: Vec<FrameTensor> = match self.shortcut {
            Shortcut::None => return Ok(out),
            Shortcut::Average(change) => averages(&around, change),
            Shortcut::Repeat(change) => {
                let copies = around.into_iter().flat_map(|frame| repeats(frame, change));
                // The first frame has no frame before it.
                copies.skip(if first { change.frames() - 1 } else { 0 }).collect()
            }
        };
        Ok(out.into_iter().zip(around).map(|(frame, around)| frame + around).collect())
    }
}

/// The means of channels that lie side by side once frames and pixels are channels, too.
fn averages(frames: &[FrameTensor], change: Change) -> Vec<FrameTensor> {
    let Change { side, outputs, .. } = change;
    let [height, width, channels] = frames[0].dims();
    let [tall, wide] = [height / side, width / side];
    // The first frame of a clip, which comes alone, stands after one of zeros.
    let missing = (change.frames() - frames.len() % change.frames()) % change.frames();
    let zeros = vec![frames[0].zeros_like(); missing];
    let frames: Vec<FrameTensor> = zeros.into_iter().chain(frames.iter().cloned()).collect();
    let average = |group: &[FrameTensor]| {
        let stacked: Tensor<4> = Tensor::stack(group.to_vec(), 0);
        let size = stacked.dims()[0] * side * side * channels / outputs;
        stacked
            .reshape([group.len(), tall, side, wide, side, channels])
            .permute([1, 3, 5, 0, 2, 4])
            .reshape([tall, wide, outputs, size])
            .mean_dim(3)
            .reshape([tall, wide, outputs])
    };
    frames.chunks(change.frames()).map(average).collect()
}

/// The frames that the channels of one frame become.
fn repeats(frame: FrameTensor, change: Change) -> Vec<FrameTensor> {
    let Change { side, outputs, .. } = change;
    let [height, width, channels] = frame.dims();
    let copies = outputs * change.frames() * side * side / channels;
    let result = |time: usize| {
        let mut sources = Vec::with_capacity(side * side * outputs);
        for (row, column) in (0..side).flat_map(|row| (0..side).map(move |column| (row, column))) {
            sources.extend((0..outputs).map(|output| {
                let place = ((output * change.frames() + time) * side + row) * side + column;
                (place / copies) as i64
            }));
        }
        let sources = indices(sources, &frame.device());
        frame
            .clone()
            .select(2, sources)
            .reshape([height, width, side, side, outputs])
            .permute([0, 2, 1, 3, 4])
            .reshape([height * side, width * side, outputs])
    };
    (0..change.frames()).map(result).collect()
}

fn indices(values: Vec<i64>, device: &Device) -> Tensor<1, Int> {
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), device)
}
