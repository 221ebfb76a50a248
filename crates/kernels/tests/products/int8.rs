//! Linear layers of bytes: exact sums, the oracle, gradients, and what rounding costs.

use burn::tensor::{Device, Tensor};
use kernels::{Activation, InstructionSet, Int8Matrix, Operands, linear, linear_int8, oracle};
use proptest::prelude::*;

use crate::check::{check_from, close, random, values};
use crate::sets::on;

const TOLERANCE: f32 = 2e-5;

/// Sizes around tiles, tasks, words and blocks.
fn sizes() -> impl Strategy<Value = [usize; 3]> {
    let rows = prop::sample::select(vec![1, 2, 6, 7, 96, 97, 193]);
    let inner = prop::sample::select(vec![1, 2, 3, 4, 5, 41, 511, 512, 515, 1029]);
    let outer = prop::sample::select(vec![1, 8, 15, 17, 64, 65, 257]);
    (rows, inner, outer).prop_map(|(rows, inner, outer)| [rows, inner, outer])
}

/// A matrix whose sums of `inner` terms are about 1.
fn matrix(seed: u64, [outer, inner]: [usize; 2]) -> Tensor<2> {
    random::<2>(seed, [outer, inner], &Device::flex()) / (inner as f32).sqrt()
}

fn bits<const D: usize>(x: Tensor<D>) -> Vec<u32> {
    values(x).into_iter().map(f32::to_bits).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The result and the gradient of the input, which every set gives with the same bits.
    #[test]
    fn equals_its_oracle([rows, inner, outer] in sizes(), biased: bool, seed: u64) {
        let weight = Int8Matrix::nearest(matrix(seed ^ 1, [outer, inner]));
        let lengths = if biased { vec![rows * inner, outer] } else { vec![rows * inner] };
        let x = |leaves: &[Tensor<1>]| -> Tensor<2> { leaves[0].clone().reshape([rows, inner]) };
        let kernel = |leaves: &[Tensor<1>]| {
            linear_int8(x(leaves), &weight, leaves.get(1).cloned(), Activation::GeluTanh)
        };
        let plain = |leaves: &[Tensor<1>]| {
            let bias = leaves.get(1).cloned();
            oracle::linear_int8(x(leaves), &weight, bias, Activation::GeluTanh)
        };
        check_from(0.1, seed, &lengths, TOLERANCE, (kernel, plain));
    }

    /// Also those sets that have no code of their own for floats.
    #[test]
    fn every_set_has_the_same_bits([rows, inner, outer] in sizes(), seed: u64) {
        let weight = Int8Matrix::nearest(matrix(seed, [outer, inner]));
        let x = random::<2>(seed ^ 1, [rows, inner], &Device::flex());
        let own = |set| on(set, 2, || linear_int8(x.clone(), &weight, None, Activation::Identity));
        let portable = bits(own(InstructionSet::Portable));
        for set in InstructionSet::with_own(Operands::Int8) {
            prop_assert!(bits(own(set)) == portable, "{} differs", set);
        }
    }

    /// A row rounds to its scale, so a weight is off by at most half of it.
    #[test]
    fn a_matrix_is_rounded_to_the_nearest([_, inner, outer] in sizes(), seed: u64) {
        let weight = matrix(seed, [outer, inner]);
        let rounded = Int8Matrix::nearest(weight.clone());
        prop_assert_eq!(rounded.shape(), [outer, inner]);
        let widened = values(rounded.widened(&Device::flex()));
        let weight = values(weight);
        for (row, own) in weight.chunks(inner).zip(widened.chunks(inner)) {
            let scale = row.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / 127.0;
            for (value, own) in row.iter().zip(own) {
                prop_assert!((value - own).abs() <= 0.5001 * scale, "{} for {}", own, value);
            }
        }
    }

    /// A part of the matrix is the part of what it stands for.
    #[test]
    fn parts_are_parts([_, inner, outer] in sizes(), seed: u64) {
        let whole = Int8Matrix::nearest(matrix(seed, [outer, inner]));
        let (outputs, inputs) = (outer / 3..outer.div_ceil(2), inner / 4..inner);
        let part = whole.part(outputs.clone(), inputs.clone()).widened(&Device::flex());
        let expected = whole.widened(&Device::flex()).slice([outputs, inputs]);
        prop_assert_eq!(values(part), values(expected));
    }
}

/// A row's result depends on neither its neighbours nor the threads, to the bit.
#[test]
fn rows_do_not_feel_each_other() {
    let weight = Int8Matrix::nearest(matrix(1, [301, 1153]));
    let x = random::<2>(2, [195, 1153], &Device::flex());
    for set in InstructionSet::with_own(Operands::Int8) {
        let run = |threads, x: Tensor<2>| {
            bits(on(set, threads, || linear_int8(x, &weight, None, Activation::Silu)))
        };
        let whole = run(1, x.clone());
        assert!(run(3, x.clone()) == whole, "{set}");
        for split in [1, 64, 97] {
            let parts = (0..195).step_by(split);
            let parts =
                parts.flat_map(|first| run(2, x.clone().narrow(0, first, split.min(195 - first))));
            assert!(parts.eq(whole.iter().copied()), "{set}, pieces of {split}");
        }
    }
}

/// What rounding both sides costs where values are spread like noise: under 2 % of the deviation.
#[test]
fn rounding_costs_little() {
    let weight = matrix(1, [128, 1536]);
    let x = random::<2>(2, [64, 1536], &Device::flex());
    let exact = linear(x.clone(), weight.clone(), None, Activation::Identity);
    let own = linear_int8(x, &Int8Matrix::nearest(weight), None, Activation::Identity);
    let power = |x: Vec<f32>| x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>();
    let error = power(values(own - exact.clone())) / power(values(exact));
    assert!(error.sqrt() < 0.02, "{}", error.sqrt());
}

/// The largest values of both sides, whose sums would not fit sixteen bits.
#[test]
fn nothing_saturates() {
    let device = Device::flex();
    let weight = Int8Matrix::nearest(Tensor::<2>::full([70, 9000], 3.0, &device));
    let x = Tensor::<2>::full([7, 9000], -2.0, &device);
    for set in InstructionSet::with_own(Operands::Int8) {
        let own = on(set, 1, || linear_int8(x.clone(), &weight, None, Activation::Identity));
        close(&format!("{set}"), &values(own), &vec![-54_000.0; 490], 1e-6);
    }
}

/// No rows, no columns and an empty sum are all well-formed, and a NaN is seen.
#[test]
fn edges() {
    let device = Device::flex();
    for (rows, inner, outer) in [(0, 3, 4), (3, 3, 0), (3, 0, 4)] {
        let weight = Int8Matrix::nearest(Tensor::zeros([outer, inner], &device));
        let x: Tensor<2> = Tensor::ones([rows, inner], &device);
        let bias: Tensor<1> = Tensor::ones([outer], &device);
        let out = linear_int8(x, &weight, Some(bias), Activation::Identity);
        assert_eq!(out.dims(), [rows, outer]);
        assert!(values(out).iter().all(|value| *value == 1.0), "bias alone for {inner} inputs");
    }
    let weight = Int8Matrix::nearest(matrix(1, [3, 40]));
    let mut x = vec![1.0; 80];
    x[45] = f32::NAN;
    let x: Tensor<2> = Tensor::<1>::from_floats(&x[..], &device).reshape([2, 40]);
    let out = values(linear_int8(x, &weight, None, Activation::Identity));
    assert!(out[..3].iter().all(|x| x.is_finite()) && out[3..].iter().all(|x| x.is_nan()));
}
