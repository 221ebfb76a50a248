//! Two-dimensional convolution, channels last.
//!
//! A convolution is a product whose left-hand rows are output pixels and whose depth runs over the
//! taps of the kernel: the row of an output pixel under one tap is simply an input pixel, which is
//! read where it lies (or a row of zeros in the padding). No pixel is copied.

mod frames;
mod geometry;
mod run;

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

pub use self::frames::{CausalFrames, causal_conv3d, frames_conv2d};
use self::geometry::{Geometry, Image};
use crate::activation::Activation;
use crate::gemm::Epilogue;
use crate::linear::column_sums;
use crate::operation::{Operand, Operation, apply};
use crate::{oracle, storage};

/// How a kernel moves over its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Pixels from one output to the next.
    pub stride: usize,
    /// Zeros around the (upsampled) input: top, left, bottom, right.
    pub padding: [usize; 4],
    /// The input is first enlarged so many times by repeating pixels; the large image is never
    /// made. 1 leaves it as it is.
    pub upsample: usize,
}

impl Convolution {
    /// Stride 1 with the same padding on every side.
    pub fn padded(padding: usize) -> Convolution {
        Convolution { stride: 1, padding: [padding; 4], upsample: 1 }
    }
}

/// `activation(x * weight + bias)`: `x` is `[B, H, W, in]`, `weight` `[out, in, kh, kw]` in f32,
/// bf16 or f16 as it is stored, `bias` `[out]`; the result is f32 `[B, H', W', out]`.
///
/// # Panics
/// Panics if the channels of `x` are not `in` or the kernel is larger than the padded input; models
/// check shapes when they load.
pub fn conv2d(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    convolution: &Convolution,
    activation: Activation,
) -> Tensor<4> {
    let offset = match &bias {
        Some(bias) => Operand::new(bias),
        None => Some(Operand::Plain(storage::tensor(Vec::new(), [0]))),
    };
    let (Some(left), Some(right), Some(offset)) = (Operand::new(&x), Operand::new(&weight), offset)
    else {
        return oracle::conv2d(x, weight, bias, convolution, activation);
    };
    let inputs = [left, right, offset];
    if inputs.iter().any(|input| matches!(input, Operand::Recorded(_))) {
        // The backward pass of the activation needs its input, so it is an operation of its own.
        return activation.apply(apply(&Convolve(*convolution, Activation::Identity), inputs));
    }
    apply(&Convolve(*convolution, activation), inputs)
}

#[derive(Clone, Debug)]
struct Convolve(Convolution, Activation);

/// The inputs of a recorded call; the weight in its stored type.
#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    weight: FlexTensor,
    geometry: Geometry,
}

impl Operation<3> for Convolve {
    type Saved = Saved;

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3]) -> (FlexTensor, Saved) {
        let (x, weight) = (storage::contiguous(x), storage::stored(weight));
        let bias = storage::contiguous(bias);
        let [batch, height, width, channels] = storage::sizes(&x)[..] else {
            panic!("an image batch has four dims")
        };
        let input = Image { batch, height, width, channels };
        let sizes = storage::sizes(&weight).try_into().expect("a kernel has four dims");
        let geometry = Geometry::new(input, sizes, self.0);
        let bias = Some(storage::values(&bias)).filter(|bias| !bias.is_empty());
        let epilogue = Epilogue { bias, activation: self.1, ..Epilogue::NONE };
        let values = storage::values(&x);
        let out = run::forward(&geometry, values, storage::weights(&weight), epilogue);
        let out = storage::tensor(out, geometry.output.shape());
        (out, Saved { x, weight, geometry })
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: FlexTensor,
        wanted: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let gradient = storage::contiguous(gradient);
        let dy = storage::values(&gradient);
        let geometry = &saved.geometry;
        let dx = wanted[0].then(|| {
            let dx = run::input_gradient(geometry, storage::weights(&saved.weight), dy);
            storage::tensor(dx, geometry.input.shape())
        });
        let dw = wanted[1].then(|| {
            let dw = run::weight_gradient(geometry, storage::values(&saved.x), dy);
            storage::tensor(dw, storage::sizes(&saved.weight))
        });
        let db = wanted[2].then(|| {
            let outer = geometry.output.channels;
            storage::tensor(column_sums(dy, outer), [outer])
        });
        [dx, dw, db]
    }
}
