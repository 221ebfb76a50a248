//! Two-dimensional convolution by burn's own operations.

use burn::tensor::module;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor};

use crate::activation::Activation;
use crate::convolution::Convolution;

/// Convolution of `[B, H, W, in]` with a weight `[out, in, kh, kw]`, then activation.
pub fn conv2d(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    convolution: &Convolution,
    activation: Activation,
) -> Tensor<4> {
    let Convolution { stride, padding: [top, left, bottom, right], upsample } = *convolution;
    let x = enlarge(x.cast(DType::F32), upsample).permute([0, 3, 1, 2]);
    let mut options = ConvOptions::new([stride; 2], [0; 2], [1; 2], 1);
    options.padding = [(top, bottom), (left, right)];
    let bias = bias.map(|bias| bias.cast(DType::F32));
    let out = module::conv2d(x, weight.cast(DType::F32), bias, options);
    activation.oracle(out.permute([0, 2, 3, 1]))
}

/// Every pixel of `[B, H, W, C]` repeated `factor` times in both directions.
fn enlarge(x: Tensor<4>, factor: usize) -> Tensor<4> {
    let [batch, height, width, channels] = x.dims();
    x.reshape([batch, height, 1, width, 1, channels])
        .expand([batch, height, factor, width, factor, channels])
        .reshape([batch, height * factor, width * factor, channels])
}
