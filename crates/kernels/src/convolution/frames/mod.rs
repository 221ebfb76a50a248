//! Convolutions over the frames of a video, each a tensor of its own `[H, W, C]`, channels last.
//!
//! A causal network keeps the last frames of every layer from one call to the next. They are given
//! beside the new ones and read where they lie, so nothing is concatenated or padded; frames before
//! the first are not computed with at all. A frame's result depends on neither the other frames of
//! the call nor the threads.

mod direct;
mod filtered;
mod phases;
mod winograd;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use self::direct::Plain;
use super::Convolution;
use super::geometry::{Geometry, Image};
use crate::narrow::Stored;
use crate::operation::Operand;
use crate::{oracle, storage};

/// A part of a video, in order of time, `[H, W, C]` each.
#[derive(Clone, Copy, Debug)]
pub struct CausalFrames<'a> {
    /// The last frames of the part before, oldest first; what is missing there counts as zero.
    pub earlier: &'a [Tensor<3>],
    /// The frames of this part.
    pub now: &'a [Tensor<3>],
}

/// A causal convolution that keeps height and width: `weight` is `[out, in, kt, kh, kw]` in f32,
/// bf16 or f16 as it is stored, `kh` and `kw` odd, `bias` `[out]`. Each result is `[H, W, out]` in
/// f32, plus the frame of `residual` in its place if there are any.
///
/// Result number `i` looks at `kt` frames, the last of them `(i + 1) * time_stride - 1` of `now`;
/// frames beyond the last whole stride have no result.
///
/// # Panics
/// Panics if sizes do not belong together; models check shapes when they load.
pub fn causal_conv3d(
    frames: CausalFrames<'_>,
    weight: Tensor<5>,
    bias: Option<Tensor<1>>,
    time_stride: usize,
    residual: Option<&[Tensor<3>]>,
) -> Vec<Tensor<3>> {
    let count = frames.now.len() / time_stride;
    assert!(residual.is_none_or(|frames| frames.len() == count), "one residual per result");
    let lists = [frames.earlier, frames.now, residual.unwrap_or_default()].map(plain_frames);
    let parameters = Parameters::new(&weight, bias.as_ref());
    let ([Some(earlier), Some(now), Some(added)], Some(parameters)) = (lists, parameters) else {
        return oracle::causal_conv3d(frames, weight, bias, time_stride, residual);
    };
    let Some(first) = now.first() else { return Vec::new() };
    let image = image(first);
    let [outer, inner, depth, tall, wide] = weight.dims();
    assert!(tall % 2 == 1 && wide % 2 == 1, "a kernel of {tall} x {wide} has no middle");
    let padding = [tall / 2, wide / 2, tall / 2, wide / 2];
    let convolution = Convolution { stride: 1, padding, upsample: 1 };
    let geometry = Geometry::new(image, [outer, inner, tall, wide], convolution);
    assert!(earlier.iter().all(|frame| self::image(frame) == image), "frames keep their size");
    assert!(added.iter().all(|frame| self::image(frame) == geometry.output), "a residual fits");
    let outputs: Vec<Output<'_>> = (0..count)
        .map(|index| Output {
            sources: sources(&earlier, &now, (index + 1) * time_stride, depth),
            residual: added.get(index).map(storage::values),
        })
        .collect();
    let layer =
        Layer { geometry: &geometry, depth, weight: parameters.weight(), bias: parameters.bias() };
    layer.run(&outputs)
}

/// [`super::conv2d`] of every frame.
///
/// # Panics
/// As [`super::conv2d`].
pub fn frames_conv2d(
    frames: &[Tensor<3>],
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    convolution: &Convolution,
) -> Vec<Tensor<3>> {
    let (Some(plain), Some(parameters)) =
        (plain_frames(frames), Parameters::new(&weight, bias.as_ref()))
    else {
        return oracle::frames_conv2d(frames, weight, bias, convolution);
    };
    let Some(first) = plain.first() else { return Vec::new() };
    let geometry = Geometry::new(image(first), weight.dims(), *convolution);
    let outputs: Vec<Output<'_>> = plain
        .iter()
        .map(|frame| Output { sources: vec![storage::values(frame)], residual: None })
        .collect();
    let layer = Layer {
        geometry: &geometry,
        depth: 1,
        weight: parameters.weight(),
        bias: parameters.bias(),
    };
    layer.run(&outputs)
}

/// What one result is made of.
struct Output<'a> {
    /// The frames under the last taps of time; those before have none.
    sources: Vec<&'a [f32]>,
    /// Added at the end.
    residual: Option<&'a [f32]>,
}

/// A convolution of frames that all have the size of `geometry`.
#[derive(Clone, Copy)]
struct Layer<'a> {
    geometry: &'a Geometry,
    /// Taps of time.
    depth: usize,
    /// `[out, in, kt, kh, kw]`.
    weight: Stored<'a>,
    bias: Option<&'a [f32]>,
}

impl Layer<'_> {
    /// Every result by the cheapest way, which the sizes of one frame alone decide.
    fn run(&self, outputs: &[Output<'_>]) -> Vec<Tensor<3>> {
        let out = if filtered::suits(self.geometry) {
            filtered::run(self, outputs)
        } else if self.depth == 1 && phases::suits(self.geometry) {
            phases::run(self, outputs)
        } else {
            Plain::new(self).run(outputs)
        };
        let [_, height, width, channels] = self.geometry.output.shape();
        let tensor = |values| storage::tensor(values, [height, width, channels]);
        out.into_iter().map(|values| Tensor::from_primitive::<Flex>(tensor(values))).collect()
    }
}

/// Weight and bias as the kernels read them.
struct Parameters {
    weight: FlexTensor,
    bias: FlexTensor,
}

impl Parameters {
    /// `None` unless both are on the CPU and outside a graph.
    fn new<const D: usize>(weight: &Tensor<D>, bias: Option<&Tensor<1>>) -> Option<Parameters> {
        let weight = storage::stored(plain(weight)?);
        let bias = match bias {
            Some(bias) => storage::contiguous(plain(bias)?),
            None => storage::tensor(Vec::new(), [0]),
        };
        Some(Parameters { weight, bias })
    }

    fn weight(&self) -> Stored<'_> {
        storage::weights(&self.weight)
    }

    fn bias(&self) -> Option<&[f32]> {
        Some(storage::values(&self.bias)).filter(|bias| !bias.is_empty())
    }
}

/// The tensor if it is on the CPU and outside a graph.
fn plain<const D: usize>(tensor: &Tensor<D>) -> Option<FlexTensor> {
    match Operand::new(tensor)? {
        Operand::Plain(tensor) => Some(tensor),
        Operand::Recorded(_) => None,
    }
}

fn plain_frames(frames: &[Tensor<3>]) -> Option<Vec<FlexTensor>> {
    let contiguous = |frame| plain(frame).map(storage::contiguous);
    let frames: Vec<FlexTensor> = frames.iter().map(contiguous).collect::<Option<_>>()?;
    let size = frames.first().map(storage::sizes);
    assert!(
        frames.iter().all(|frame| Some(storage::sizes(frame)) == size),
        "the frames of a call have one size"
    );
    Some(frames)
}

/// A frame `[H, W, C]` as a batch of one.
fn image(frame: &FlexTensor) -> Image {
    let [height, width, channels] = storage::sizes(frame)[..] else {
        panic!("a frame has three dims")
    };
    Image { batch: 1, height, width, channels }
}

/// The last `depth` frames before frame `end` of `now`, as far as they exist.
fn sources<'a>(
    earlier: &'a [FlexTensor],
    now: &'a [FlexTensor],
    end: usize,
    depth: usize,
) -> Vec<&'a [f32]> {
    let end = earlier.len() + end;
    let all = earlier.iter().chain(now).take(end);
    all.skip(end.saturating_sub(depth)).map(storage::values).collect()
}
