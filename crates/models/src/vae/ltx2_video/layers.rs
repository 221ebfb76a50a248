//! The layers of both halves: norms, residual blocks, and steps between levels.

use burn::tensor::Tensor;
use kernels::Activation;
use nn::{LayerNorm, Linear, Result, Weights};

use super::config::Step;
use super::convolution::{Borders, Convolution};
use crate::vae::frames::FrameTensor;

/// Added to the mean square of a pixel.
const EPSILON: f32 = 1e-8;

/// What happens to the frames of a clip.
pub(super) trait Layer {
    /// All frames of the result, in order of time.
    fn apply(&self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>>;
}

impl Layer for Convolution {
    fn apply(&self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        Convolution::apply(self, frames, None)
    }
}

/// A norm over channels without weights, perhaps shifted and scaled by a timestep, then SiLU.
pub(super) struct Norm {
    /// Shift and scale, `[1, 1, C]` each.
    modulation: Option<[Tensor<3>; 2]>,
}

impl Norm {
    /// Shift and scale are the rows `first` and `first + 1` of `table`.
    pub(super) fn new(table: Option<&Tensor<2>>, first: usize) -> Norm {
        let row = |table: &Tensor<2>, at: usize| table.clone().narrow(0, at, 1).unsqueeze_dim(0);
        Norm { modulation: table.map(|table| [row(table, first), row(table, first + 1)]) }
    }

    fn frame(&self, frame: FrameTensor) -> FrameTensor {
        let frame = kernels::rms_norm(frame, None, EPSILON);
        let frame = match &self.modulation {
            Some([shift, scale]) => frame * (scale.clone() + 1.0) + shift.clone(),
            None => frame,
        };
        Activation::Silu.apply(frame)
    }
}

impl Layer for Norm {
    fn apply(&self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        Ok(frames.into_iter().map(|frame| self.frame(frame)).collect())
    }
}

/// `shortcut(x) + convolution(norm(convolution(norm(x))))`.
pub(super) struct Residual {
    norms: [Norm; 2],
    convolutions: [Convolution; 2],
    /// There where the number of channels changes.
    shortcut: Option<(LayerNorm, Linear)>,
}

/// What a residual block is made of.
#[derive(Clone, Copy)]
pub(super) struct Shape<'a> {
    pub(super) channels: [usize; 2],
    pub(super) borders: Borders,
    /// Of the norm of the shortcut.
    pub(super) epsilon: f32,
    /// What the timestep says to the blocks of this level, `[4, inputs]`.
    pub(super) timestep: Option<&'a Tensor<2>>,
}

impl Residual {
    pub(super) fn new(weights: &Weights<'_>, shape: Shape<'_>) -> Result<Residual> {
        let Shape { channels: [inputs, outputs], borders, epsilon, timestep } = shape;
        let shortcut = match inputs == outputs {
            true => None,
            false => Some((
                weights.layer_norm("norm3", inputs, epsilon)?,
                weights.patch_projection("conv_shortcut", &[outputs, inputs, 1, 1, 1])?,
            )),
        };
        let table = match timestep {
            Some(said) => Some(weights.table("scale_shift_table", [4, inputs])? + said.clone()),
            None => None,
        };
        Ok(Residual {
            norms: [0, 2].map(|first| Norm::new(table.as_ref(), first)),
            convolutions: [
                Convolution::new(weights, "conv1", [inputs, outputs], borders)?,
                Convolution::new(weights, "conv2", [outputs; 2], borders)?,
            ],
            shortcut,
        })
    }
}

impl Layer for Residual {
    fn apply(&self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        let [first, second] = &self.convolutions;
        let branch = frames.iter().map(|frame| self.norms[0].frame(frame.clone())).collect();
        let branch = self.norms[1].apply(first.apply(branch, None)?)?;
        let frames = match &self.shortcut {
            Some((norm, linear)) => frames
                .into_iter()
                .map(|frame| linear.apply(norm.apply(frame, None)))
                .collect::<Result<Vec<_>>>()?,
            None => frames,
        };
        second.apply(branch, Some(&frames))
    }
}

/// A step down: a convolution to few channels, of which blocks of frames and pixels make many, plus the means of
/// what those blocks were.
pub(super) struct Down {
    convolution: Convolution,
    step: Step,
    outputs: usize,
}

impl Down {
    pub(super) fn new(
        weights: &Weights<'_>,
        [inputs, outputs]: [usize; 2],
        step: Step,
        borders: Borders,
    ) -> Result<Down> {
        let channels = [inputs, outputs / step.volume()];
        let convolution = Convolution::new(weights, "conv", channels, borders)?;
        Ok(Down { convolution, step, outputs })
    }
}

impl Layer for Down {
    fn apply(&self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        // The first frame stands for itself alone, so it makes a block with a copy of its own.
        let copies = frames.iter().take(self.step.time - 1).cloned();
        let frames: Vec<FrameTensor> = copies.chain(frames.iter().cloned()).collect();
        let means: Vec<FrameTensor> = frames
            .chunks(self.step.time)
            .map(|block| {
                let deep = space_to_depth(block, self.step);
                let [height, width, channels] = deep.dims();
                let groups = [height, width, self.outputs, channels / self.outputs];
                deep.reshape(groups).mean_dim(3).reshape([height, width, self.outputs])
            })
            .collect();
        let made = self.convolution.apply(frames, None)?;
        let made = made.chunks(self.step.time).map(|block| space_to_depth(block, self.step));
        Ok(made.zip(means).map(|(made, mean)| made + mean).collect())
    }
}

/// A step up: a convolution to many channels, which become blocks of frames and pixels.
pub(super) struct Up {
    convolution: Convolution,
    step: Step,
    /// How often the channels of the shortcut are repeated, if there is one.
    repeats: Option<usize>,
}

/// What a step up is made of.
pub(super) struct UpShape {
    pub(super) inputs: usize,
    pub(super) step: Step,
    /// What it divides the channels by.
    pub(super) factor: usize,
    pub(super) residual: bool,
    pub(super) borders: Borders,
}

impl Up {
    pub(super) fn new(weights: &Weights<'_>, shape: UpShape) -> Result<Up> {
        let UpShape { inputs, step, factor, residual, borders } = shape;
        let channels = [inputs, inputs * step.volume() / factor];
        let convolution = Convolution::new(weights, "conv", channels, borders)?;
        Ok(Up { convolution, step, repeats: residual.then_some(step.volume() / factor) })
    }
}

impl Layer for Up {
    fn apply(&self, frames: Vec<FrameTensor>) -> Result<Vec<FrameTensor>> {
        let around = self.repeats.map(|repeats| {
            let blocks = frames.iter().flat_map(|frame| depth_to_space(frame.clone(), self.step));
            blocks.map(|frame| frame.repeat_dim(2, repeats)).collect::<Vec<_>>()
        });
        let made = self.convolution.apply(frames, None)?;
        let made = made.into_iter().flat_map(|frame| depth_to_space(frame, self.step));
        let made: Vec<FrameTensor> = match around {
            Some(around) => made.zip(around).map(|(made, around)| made + around).collect(),
            None => made.collect(),
        };
        // The first frame has no frame before it.
        Ok(made.into_iter().skip(self.step.time - 1).collect())
    }
}

/// Blocks of frames and pixels as channels, in the order channel, frame, row, column.
fn space_to_depth(frames: &[FrameTensor], step: Step) -> FrameTensor {
    let side = step.space;
    let stacked: Tensor<4> = Tensor::stack(frames.to_vec(), 0);
    let [count, height, width, channels] = stacked.dims();
    let [tall, wide] = [height / side, width / side];
    stacked
        .reshape([count, tall, side, wide, side, channels])
        .permute([1, 3, 5, 0, 2, 4])
        .reshape([tall, wide, channels * step.volume()])
}

/// The frames that channels stand for, in the same order.
fn depth_to_space(frame: FrameTensor, step: Step) -> Vec<FrameTensor> {
    let [height, width, channels] = frame.dims();
    let (side, channels) = (step.space, channels / step.volume());
    let blocks = frame.reshape([height, width, channels, step.time, side, side]);
    let made = |time: usize| {
        blocks.clone().narrow(3, time, 1).permute([3, 0, 4, 1, 5, 2]).reshape([
            height * side,
            width * side,
            channels,
        ])
    };
    (0..step.time).map(made).collect()
}
