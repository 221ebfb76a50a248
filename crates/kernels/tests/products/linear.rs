//! Linear layers equal their oracle, forward and gradient.

use burn::tensor::{DType, Device, Tensor};
use kernels::{Activation, linear, oracle};
use proptest::prelude::*;

use crate::check::{check_from, close, random, values};
use crate::rounded::rounded;

const TOLERANCE: f32 = 2e-5;

/// Row counts around the tile of 6 and the task of 96.
fn rows() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![1, 2, 5, 6, 7, 31, 95, 96, 97, 193])
}

/// Depths around the block of 256.
fn inner() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![1, 3, 8, 41, 72, 255, 256, 257, 523])
}

/// Widths around the panel of 16 and the least task of 64.
fn outer() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![1, 2, 15, 16, 17, 37, 64, 65, 129, 257])
}

fn activation() -> impl Strategy<Value = Activation> {
    use Activation::{GeluErf, GeluTanh, Identity, Silu};
    prop::sample::select(vec![Identity, GeluErf, GeluTanh, Silu])
}

fn dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::F32, DType::BF16, DType::F16])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn equals_its_oracle(
        (batch, rows, inner, outer) in (1_usize..4, rows(), inner(), outer()),
        (biased, activation, dtype) in (any::<bool>(), activation(), dtype()),
        seed: u64,
    ) {
        let inputs = |leaves: &[Tensor<1>]| -> (Tensor<3>, Tensor<2>, Option<Tensor<1>>) {
            let x = leaves[0].clone().reshape([batch, rows, inner]);
            // Sums of `inner` terms stay near 1, where activations bend.
            let scale = 1.0 / (inner as f32).sqrt();
            (x, (leaves[1].clone() * scale).reshape([outer, inner]), leaves.get(2).cloned())
        };
        let lengths = [batch * rows * inner, outer * inner, outer];
        let kernel = |leaves: &[Tensor<1>]| {
            let (x, weight, bias) = inputs(leaves);
            linear(x, weight.cast(dtype), bias, activation)
        };
        let plain = |leaves: &[Tensor<1>]| {
            let (x, weight, bias) = inputs(leaves);
            oracle::linear(x, rounded(weight, dtype), bias, activation)
        };
        // The terms of a sum are about 1; where a lone sum cancels, their rounding does not.
        let lengths = if biased { &lengths[..] } else { &lengths[..2] };
        check_from(0.1, seed, lengths, TOLERANCE, (kernel, plain));
    }
}

/// A weight that is a transposed view is read as what it shows, not as it lies.
#[test]
fn reads_views() {
    let device = Device::flex();
    let x: Tensor<2> = random(1, [70, 33], &device);
    let wide: Tensor<2> = random(2, [33, 50], &device);
    let view = || (x.clone().transpose(), wide.clone().transpose().narrow(1, 3, 20));
    let x = || view().0.narrow(0, 3, 20).transpose();
    let own = linear(x(), view().1, None, Activation::Identity);
    let reference = oracle::linear(x(), view().1, None, Activation::Identity);
    close("views", &values(own), &values(reference), TOLERANCE);
}

/// No rows, no columns and an empty sum are all well-formed.
#[test]
fn takes_empty_sizes() {
    let device = Device::flex();
    for (rows, inner, outer) in [(0, 3, 4), (3, 3, 0), (3, 0, 4)] {
        let x: Tensor<2> = Tensor::zeros([rows, inner], &device);
        let weight = Tensor::zeros([outer, inner], &device);
        let bias: Tensor<1> = Tensor::ones([outer], &device);
        let out = linear(x, weight, Some(bias), Activation::Identity);
        assert_eq!(out.dims(), [rows, outer]);
        assert!(values(out).iter().all(|value| *value == 1.0), "bias alone for {inner} inputs");
    }
}
