//! Attention by burn's own operations: what the tiles are compared with, and what other backends run.

use burn::tensor::{DType, Tensor, activation::softmax};

use crate::attention::{AttentionInputs, AttentionSums};

/// Output `[B, T, N, H]` and log-sum-exp `[B, N, T]`.
pub fn attention(inputs: AttentionInputs) -> (Tensor<4>, Tensor<3>) {
    let v = by_head(inputs.v.clone());
    let scores = scores(&inputs);
    let largest = scores.clone().detach().max_dim(3);
    // A query that sees no key: its scores are all -inf, and nothing may be subtracted from them.
    let blind = largest.clone().equal_elem(f32::NEG_INFINITY);
    let reference = largest.mask_fill(blind.clone(), 0.0);
    let total = (scores.clone() - reference.clone()).exp().sum_dim(3);
    let lse = (total.log() + reference).squeeze_dim::<3>(3);
    let safe = scores.mask_fill(blind.clone(), 0.0);
    let probabilities = softmax(safe, 3).mask_fill(blind, 0.0);
    (probabilities.matmul(v).swap_dims(1, 2), lse)
}

/// Gradients of `q`, `k`, `v`.
pub fn attention_backward(
    inputs: AttentionInputs,
    sums: AttentionSums,
    gradient: Tensor<4>,
) -> [Tensor<4>; 3] {
    let [q, k, v] = [&inputs.q, &inputs.k, &inputs.v].map(|x| by_head(x.clone()));
    let gradient = by_head(gradient);
    let blind = sums.lse.clone().equal_elem(f32::NEG_INFINITY).unsqueeze_dim::<4>(3);
    let scores = scores(&inputs).mask_fill(blind.clone(), f32::NEG_INFINITY);
    let lse = sums.lse.unsqueeze_dim::<4>(3).mask_fill(blind, 0.0);
    let probabilities = (scores - lse).exp();
    let products = gradient.clone().matmul(v.transpose()) - sums.delta.unsqueeze_dim::<4>(3);
    let slopes = probabilities.clone() * products * inputs.scale;
    let dq = slopes.clone().matmul(k);
    let dk = slopes.transpose().matmul(q);
    let dv = probabilities.transpose().matmul(gradient);
    [dq, dk, dv].map(|x| x.swap_dims(1, 2))
}

/// Scaled and masked scores `[B, N, T, S]`.
fn scores(inputs: &AttentionInputs) -> Tensor<4> {
    let (q, k) = (by_head(inputs.q.clone()), by_head(inputs.k.clone()));
    let scores = q.matmul(k.transpose()) * inputs.scale;
    match &inputs.mask {
        Some(mask) => scores + mask.clone().cast(DType::F32),
        None => scores,
    }
}

/// `[B, T, N, H]` to `[B, N, T, H]` in f32.
fn by_head(x: Tensor<4>) -> Tensor<4> {
    x.cast(DType::F32).swap_dims(1, 2)
}
