//! Muon: momentum, then the nearest matrix with all singular values about one.
//!
//! The numbers are those of Keller Jordan's reference and of `torch.optim.Muon`; the iterations run
//! in f32 here, in bf16 there.

use burn::tensor::Tensor;
use kernels::{Activation, blend, linear, sum_squares};

use super::{LrMatch, MuonConfig};

/// The quintic whose slope at zero is largest.
const COEFFICIENTS: [f64; 3] = [3.4445, -4.7750, 2.0315];

/// Below this a gradient has no direction.
const SMALLEST_NORM: f64 = 1e-7;

/// The parameter and the momentum after one step.
pub(super) fn step(
    config: &MuonConfig,
    shape: &[usize],
    (parameter, momentum): (Tensor<1>, Tensor<1>),
    gradient: &Tensor<1>,
    (rate, scale): (f64, f64),
) -> (Tensor<1>, Tensor<1>) {
    let keep = config.momentum;
    let momentum = blend(momentum, keep, gradient, (1.0 - keep) * scale);
    let direction = match config.nesterov {
        true => blend(momentum.clone(), keep, gradient, (1.0 - keep) * scale),
        false => momentum.clone(),
    };
    let [rows, columns] = [shape[0], shape[1]];
    let direction = orthogonal(direction.reshape([rows, columns]), config.iterations);
    let ratio = match config.match_rate {
        LrMatch::Original => (rows as f64 / columns as f64).max(1.0).sqrt(),
        LrMatch::AdamW => 0.2 * (rows.max(columns) as f64).sqrt(),
    };
    let direction = direction.reshape([rows * columns]);
    let parameter = blend(parameter, 1.0 - rate * config.weight_decay, &direction, -rate * ratio);
    (parameter, momentum)
}

/// `U S' V^T` of a matrix `U S V^T`, where `S'` is about one.
fn orthogonal(matrix: Tensor<2>, iterations: usize) -> Tensor<2> {
    let [rows, columns] = matrix.dims();
    // The products of the shorter side are the smaller ones.
    let tall = rows > columns;
    let matrix = if tall { matrix.transpose() } else { matrix };
    let norm = sum_squares(matrix.clone()).sqrt().max(SMALLEST_NORM);
    let [a, b, c] = COEFFICIENTS;
    let mut x = matrix / norm;
    for _ in 0..iterations {
        let gram = product(x.clone(), x.clone());
        // The gram matrix is its own transpose.
        let square = product(gram.clone(), gram.clone());
        let mix = gram * b + square * c;
        x = x.clone() * a + product(mix, x.transpose());
    }
    if tall { x.transpose() } else { x }
}

/// `left right^T`, by the kernel whose sums have one order.
fn product(left: Tensor<2>, right: Tensor<2>) -> Tensor<2> {
    linear(left, right, None, Activation::Identity)
}
