//! Linear layers by burn's own operations.

use burn::tensor::{DType, Tensor};

use crate::activation::Activation;

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
