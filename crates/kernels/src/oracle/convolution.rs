//! Convolutions by burn's own operations.

use burn::tensor::module;
use burn::tensor::ops::ConvOptions;
use burn::tensor::{DType, Tensor};

use crate::activation::Activation;
use crate::convolution::{CausalFrames, Convolution};

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

/// [`conv2d`] of every frame `[H, W, in]`.
pub fn frames_conv2d(
    frames: &[Tensor<3>],
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    convolution: &Convolution,
) -> Vec<Tensor<3>> {
    let convolve = |frame: &Tensor<3>| {
        let image = frame.clone().unsqueeze_dim(0);
        let (weight, bias) = (weight.clone(), bias.clone());
        conv2d(image, weight, bias, convolution, Activation::Identity).squeeze_dim(0)
    };
    frames.iter().map(convolve).collect()
}

/// Causal convolution of frames `[H, W, in]` with a weight `[out, in, kt, kh, kw]`.
pub fn causal_conv3d(
    frames: CausalFrames<'_>,
    weight: Tensor<5>,
    bias: Option<Tensor<1>>,
    time_stride: usize,
    residual: Option<&[Tensor<3>]>,
) -> Vec<Tensor<3>> {
    let [_, inner, depth, tall, wide] = weight.dims();
    let Some(first) = frames.now.first() else { return Vec::new() };
    let count = frames.now.len() / time_stride;
    if count == 0 {
        return Vec::new();
    }
    let [height, width, _] = first.dims();
    // Frames of zeros, so that the first result has all that it looks at; then no more than that.
    let zeros = Tensor::zeros([height, width, inner], &first.device());
    let known = std::iter::repeat_n(&zeros, depth).chain(frames.earlier).chain(frames.now);
    let known: Vec<_> = known.map(|frame| frame.clone().cast(DType::F32)).collect();
    let start = frames.earlier.len() + time_stride;
    let video: Tensor<4> = Tensor::stack(known[start..].to_vec(), 0);
    let video = video.permute([3, 0, 1, 2]).unsqueeze_dim(0);
    let padding = [0, tall / 2, wide / 2];
    let options = ConvOptions::new([time_stride, 1, 1], padding, [1; 3], 1);
    let bias = bias.map(|bias| bias.cast(DType::F32));
    let out = module::conv3d(video, weight.cast(DType::F32), bias, options);
    let out: Tensor<4> = out.squeeze_dim::<4>(0).permute([1, 2, 3, 0]);
    let results = (0..count).map(|index| out.clone().narrow(0, index, 1).squeeze_dim::<3>(0));
    match residual {
        Some(residual) => results.zip(residual).map(|(out, more)| out + more.clone()).collect(),
        None => results.collect(),
    }
}
