//! Norms and modulation by burn's own operations.

use burn::tensor::{DType, Int, Tensor};

use crate::activation::Activation;
use crate::modulate::Modulation;
use crate::unit_norm::SHORTEST;

/// Layer norm of `[B, T, D]` with optional weight and bias `[D]` and optional modulation.
pub fn layer_norm(
    x: Tensor<3>,
    affine: Option<(Tensor<1>, Tensor<1>)>,
    modulation: Option<&Modulation>,
    epsilon: f32,
) -> Tensor<3> {
    let x = x.cast(DType::F32);
    let mean = x.clone().mean_dim(2);
    let mut out = unit(x - mean, epsilon);
    if let Some((weight, bias)) = affine {
        let [width] = weight.dims();
        out = out * weight.cast(DType::F32).reshape([1, 1, width]);
        out = out + bias.cast(DType::F32).reshape([1, 1, width]);
    }
    match modulation {
        Some(modulation) => modulate(out, modulation),
        None => out,
    }
}

/// RMS norm over the last dim with an optional weight.
pub fn rms_norm<const D: usize>(
    x: Tensor<D>,
    weight: Option<Tensor<1>>,
    epsilon: f32,
) -> Tensor<D> {
    let out = unit(x.cast(DType::F32), epsilon);
    match weight {
        Some(weight) => out * weight.cast(DType::F32).unsqueeze(),
        None => out,
    }
}

/// Rows over the last dim scaled to the length `sqrt(C)`, then gain and activation.
pub fn unit_norm<const D: usize>(
    x: Tensor<D>,
    gain: Tensor<1>,
    activation: Activation,
) -> Tensor<D> {
    let x = x.cast(DType::F32);
    let width = x.dims()[D - 1] as f32;
    let length = (x.clone() * x.clone()).sum_dim(D - 1).sqrt().clamp_min(SHORTEST);
    activation.oracle(x / length * width.sqrt() * gain.cast(DType::F32).unsqueeze())
}

/// RMS norm of `[B, T, D]` with an optional weight, then modulation.
pub fn modulated_rms_norm(
    x: Tensor<3>,
    weight: Option<Tensor<1>>,
    modulation: &Modulation,
    epsilon: f32,
) -> Tensor<3> {
    modulate(rms_norm(x, weight, epsilon), modulation)
}

/// `x * (1 + scale) + shift`.
pub fn modulate(x: Tensor<3>, modulation: &Modulation) -> Tensor<3> {
    let Modulation { scale, shift, index } = modulation.clone();
    let scale = of_tokens(scale, index.clone());
    let shift = of_tokens(shift, index);
    x.cast(DType::F32) * (scale + 1.0) + shift
}

/// `residual + gate * branch`.
pub fn gated_residual(
    residual: Tensor<3>,
    branch: Tensor<3>,
    gate: Tensor<3>,
    index: Option<Tensor<2, Int>>,
) -> Tensor<3> {
    residual.cast(DType::F32) + of_tokens(gate, index) * branch.cast(DType::F32)
}

/// Norm of `[B, H, W, C]` over pixels and the channels of each group, affine, then activation.
pub fn group_norm(
    x: Tensor<4>,
    groups: usize,
    (weight, bias): (Tensor<1>, Tensor<1>),
    epsilon: f32,
    activation: Activation,
) -> Tensor<4> {
    let shape = x.dims();
    let [batch, height, width, channels] = shape;
    let grouped = x
        .cast(DType::F32)
        .reshape([batch, height * width, groups, channels / groups])
        .swap_dims(1, 2)
        .reshape([batch, groups, height * width * channels / groups]);
    let mean = grouped.clone().mean_dim(2);
    let out = unit(grouped - mean, epsilon)
        .reshape([batch, groups, height * width, channels / groups])
        .swap_dims(1, 2)
        .reshape(shape);
    let (weight, bias) = (weight.cast(DType::F32), bias.cast(DType::F32));
    activation.oracle(out * weight.unsqueeze() + bias.unsqueeze())
}

/// Divides by the root of the mean square over the last dim.
fn unit<const D: usize>(x: Tensor<D>, epsilon: f32) -> Tensor<D> {
    let square = (x.clone() * x.clone()).mean_dim(D - 1);
    x / (square + epsilon).sqrt()
}

/// The row of `table` `[B, K, D]` for every token, `[B, T, D]`, or `[B, 1, D]` without an index.
fn of_tokens(table: Tensor<3>, index: Option<Tensor<2, Int>>) -> Tensor<3> {
    let table = table.cast(DType::F32);
    let Some(index) = index else { return table };
    let [batch, _, width] = table.dims();
    let [_, tokens] = index.dims();
    table.gather(1, index.unsqueeze_dim::<3>(2).expand([batch, tokens, width]))
}
