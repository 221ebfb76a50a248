//! Linear layers by burn's own operations.

use burn::tensor::{DType, Tensor};

use crate::activation::Activation;
use crate::int8::Int8Matrix;

/// The same by burn's own operations.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<D> {
    let dims = x.dims();
    let inner = dims[D - 1];
    let rows = dims.iter().product::<usize>() / inner;
    let [outer, _] = weight.dims();
    let weight = weight.cast(DType::F32);
    let mut out = x.reshape([rows, inner]).cast(DType::F32).matmul(weight.transpose());
    if let Some(bias) = bias {
        out = out + bias.cast(DType::F32).reshape([1, outer]);
    }
    let mut dims = dims;
    dims[D - 1] = outer;
    activation.oracle(out.reshape(dims))
}

/// [`crate::linear_int8`]: every row of `x` rounded to whole numbers up to 127 of its own scale. A
/// gradient passes as if it were not.
pub fn linear_int8<const D: usize>(
    x: Tensor<D>,
    weight: &Int8Matrix,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<D> {
    let own = x.clone().detach();
    let largest = own.clone().abs().max_dim(D - 1);
    let zero = largest.clone().equal_elem(0.0);
    let inverse = Tensor::full(largest.shape(), 127.0, &own.device()) / largest.clone();
    let integers = (own.clone() * inverse.mask_fill(zero, 0.0)).round();
    let rounded = integers * (largest / 127.0) - own + x.clone();
    linear(rounded, weight.widened(&x.device()), bias, activation)
}

/// [`crate::linear_mixed`]: all that is multiplied is rounded to bf16, the gradient of the result too.
pub fn linear_mixed<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<D> {
    let rounded = |own: Tensor<2>| own.cast(DType::BF16).cast(DType::F32);
    let dims = x.dims();
    let inner = dims[D - 1];
    let rows = dims.iter().product::<usize>() / inner.max(1);
    let x = x.reshape([rows, inner]).cast(DType::F32);
    let out = linear(rounded(x), rounded(weight.cast(DType::F32)), bias, activation);
    let mut dims = dims;
    dims[D - 1] = out.dims()[1];
    out.reshape(dims)
}
