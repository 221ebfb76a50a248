//! Linear layers equal their oracle, forward and gradient.

use burn::tensor::{DType, Device, Tensor};
use kernels::{Activation, InstructionSet, Operands, linear, oracle, to_bf16};
use proptest::prelude::*;

use crate::check::{check_from, close, random, values};
use crate::rounded::rounded;
use crate::sets::on;

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

    /// Operands that are bf16 on both sides: every product is exact, so that only sums round.
    #[test]
    fn of_bf16_equals_its_oracle(
        (rows, inner, outer) in (rows(), inner(), outer()),
        (biased, activation, seed) in (any::<bool>(), activation(), any::<u64>()),
    ) {
        let device = Device::flex();
        let x = to_bf16(random::<2>(seed, [rows, inner], &device));
        let scale = 1.0 / (inner as f32).sqrt();
        let weight = to_bf16(random::<2>(seed ^ 1, [outer, inner], &device) * scale);
        prop_assert_eq!([x.dtype(), weight.dtype()], [DType::BF16; 2]);
        let bias = biased.then(|| random(seed ^ 2, [outer], &device));
        let expected = oracle::linear(x.clone(), weight.clone(), bias.clone(), activation);
        let expected = [values(expected), vec![0.1]].concat();
        for set in InstructionSet::present() {
            let own = on(set, 2, || linear(x.clone(), weight.clone(), bias.clone(), activation));
            prop_assert_eq!(own.dtype(), DType::F32);
            let own = [values(own), vec![0.1]].concat();
            close(&format!("bf16 under {set}"), &own, &expected, TOLERANCE);
        }
    }
}

/// One chain per element in both sets, in an order that differs within pairs: what is multiplied as
/// bf16 is not what is widened, and a test that could not tell them apart would test one of them.
#[test]
fn bf16_is_multiplied_as_such_where_it_can_be() {
    let device = Device::flex();
    let x = to_bf16(random::<2>(1, [100, 512], &device));
    let weight = to_bf16(random::<2>(2, [64, 512], &device));
    let of = |set: InstructionSet| {
        let own = || linear(x.clone(), weight.clone(), None, Activation::Identity);
        values(on(set, 1, own))
    };
    for set in InstructionSet::with_own(Operands::Bf16) {
        assert!(set.multiplies_bf16());
        assert!(of(set) != of(InstructionSet::Avx2), "{set} widened");
    }
}

/// A weight whose pairs lie across words, as a file may have it, and a part of a matrix.
#[test]
fn bf16_may_lie_anywhere() {
    let device = Device::flex();
    let weight = to_bf16(random::<1>(3, [1 + 20 * 34], &device));
    let weight: Tensor<2> = weight.narrow(0, 1, 20 * 34).reshape([20, 34]);
    let x = to_bf16(random::<2>(4, [7, 36], &device)).narrow(1, 1, 34);
    let own = linear(x.clone(), weight.clone(), None, Activation::Identity);
    let expected = oracle::linear(x, weight, None, Activation::Identity);
    close("views of bf16", &values(own), &values(expected), TOLERANCE);
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
