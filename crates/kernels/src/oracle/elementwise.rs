//! Activations, softmax, sums and rotary embedding by burn's own operations.

use burn::tensor::activation;
use burn::tensor::{DType, ElementConversion, Tensor};

use crate::activation::Activation;

impl Activation {
    /// The activation by burn's own operations.
    pub fn oracle<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Activation::Identity => x,
            Activation::GeluErf => gelu_erf(x),
            Activation::GeluTanh => gelu_tanh(x),
            Activation::Silu => silu(x),
            Activation::Relu => activation::relu(x.cast(DType::F32)),
            Activation::QuickGelu => {
                let x = x.cast(DType::F32);
                x.clone() * activation::sigmoid(x * 1.702)
            }
        }
    }
}

/// `x * Phi(x)` with the exact error function.
pub fn gelu_erf<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let x = x.cast(DType::F32);
    let distribution = (x.clone() * std::f32::consts::FRAC_1_SQRT_2).erf() * 0.5 + 0.5;
    x * distribution
}

/// `x * Phi(x)` with the tanh approximation.
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let x = x.cast(DType::F32);
    let cube = x.clone() * x.clone() * x.clone();
    let inner = (cube * 0.044_715 + x.clone()) * (2.0 / std::f64::consts::PI).sqrt();
    x * (inner.tanh() * 0.5 + 0.5)
}

/// `x * sigmoid(x)`.
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let x = x.cast(DType::F32);
    x.clone() * activation::sigmoid(x)
}

/// Softmax over the last dim.
pub fn softmax<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let x = x.cast(DType::F32);
    let shifted = x.clone() - x.detach().max_dim(D - 1);
    let powers = shifted.exp();
    powers.clone() / powers.sum_dim(D - 1)
}

/// The sum of all elements, as `[1]`.
pub fn sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    x.cast(DType::F32).sum()
}

/// The sum of the squares of all elements.
pub fn sum_squares<const D: usize>(x: Tensor<D>) -> f64 {
    let x = x.detach().cast(DType::F32);
    (x.clone() * x).sum().into_scalar::<f32>().elem()
}

/// Rotates the interleaved pairs of `x` `[B, T, N, H]` by angles `[B | 1, T, H / 2]`.
pub fn rope(x: Tensor<4>, cosine: Tensor<3>, sine: Tensor<3>) -> Tensor<4> {
    let [batch, tokens, heads, width] = x.dims();
    let [samples, _, half] = cosine.dims();
    let pairs = x.cast(DType::F32).reshape([batch, tokens, heads, half, 2]);
    let angles = |table: Tensor<3>| -> Tensor<5> {
        table.cast(DType::F32).reshape([samples, tokens, 1, half, 1])
    };
    let (cosine, sine) = (angles(cosine), angles(sine));
    let first = pairs.clone().narrow(4, 0, 1);
    let second = pairs.narrow(4, 1, 1);
    let turned = vec![
        first.clone() * cosine.clone() - second.clone() * sine.clone(),
        first * sine + second * cosine,
    ];
    Tensor::cat(turned, 4).reshape([batch, tokens, heads, width])
}
