//! Groups of thread ranks: what they exchange, and how they fail.

mod apart;
mod collectives;
mod failures;
mod headers;
mod meshes;
mod progress;

use burn::tensor::{Device, Tensor, TensorData};

/// `[rows, 2]`, whose values say who made it for whom.
fn part(from: usize, to: usize, rows: usize) -> Tensor<2> {
    let value = |index: usize| (1000 * from + 100 * to + index) as f32;
    let values: Vec<f32> = (0..2 * rows).map(value).collect();
    Tensor::from_data(TensorData::new(values, [rows, 2]), &Device::flex())
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}
