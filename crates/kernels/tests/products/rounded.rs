//! Weights rounded to a narrow type without leaving f32.

use burn::tensor::{DType, Tensor};

/// The values of `weight` in `dtype`, as f32. Its gradient passes through unrounded, as a kernel
/// that reads narrow weights returns it.
pub(crate) fn rounded<const D: usize>(weight: Tensor<D>, dtype: DType) -> Tensor<D> {
    let values = weight.clone().detach().cast(dtype).cast(DType::F32);
    weight.clone() + (values - weight.detach())
}
