//! Activations.

use burn::tensor::{DType, Device, Tensor};
use kernels::{Activation, gelu_erf, gelu_tanh, oracle, silu};
use proptest::prelude::*;

use crate::check::{check, close, random, values};

const KINDS: [Activation; 6] = [
    Activation::Identity,
    Activation::GeluErf,
    Activation::GeluTanh,
    Activation::Silu,
    Activation::Relu,
    Activation::QuickGelu,
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn equal_their_oracles(seed: u64, length in 1_usize..20_000, scale in 0.1_f32..20.0) {
        for kind in KINDS {
            check(
                seed,
                &[length],
                5e-6,
                |x| kind.apply(x[0].clone() * scale),
                |x| kind.oracle(x[0].clone() * scale),
            );
        }
    }

    #[test]
    fn take_views_and_half_precision(seed: u64, rows in 1_usize..40, columns in 1_usize..40) {
        let x: Tensor<2> = random(seed, [rows, columns], &Device::flex());
        let expected = values(oracle::silu(x.clone()).swap_dims(0, 1));
        close("view", &values(silu(x.clone().swap_dims(0, 1))), &expected, 1e-6);
        for dtype in [DType::BF16, DType::F16] {
            let stored = x.clone().cast(dtype);
            let expected = values(oracle::silu(stored.clone()));
            close("half precision", &values(silu(stored)), &expected, 1e-6);
        }
    }
}

#[test]
fn have_the_values_of_the_textbook() {
    let x = Tensor::<1>::from_floats([-3.0, -1.0, 0.0, 0.5, 2.0, 30.0, -200.0], &Device::flex());
    let erf = [-0.004_049_694, -0.158_655_26, 0.0, 0.345_731_23, 1.954_499_7, 30.0, 0.0];
    let tanh = [-0.003_637_392, -0.158_808, 0.0, 0.345_714, 1.954_597_7, 30.0, 0.0];
    let sigmoid = [-0.142_277_6, -0.268_941_43, 0.0, 0.311_229_67, 1.761_594_2, 30.0, 0.0];
    let quick = [-0.018_071_31, -0.154_204_23, 0.0, 0.350_388_44, 1.935_658_6, 30.0, 0.0];
    for (value, expected) in [
        (gelu_erf(x.clone()), erf),
        (gelu_tanh(x.clone()), tanh),
        (silu(x.clone()), sigmoid),
        (Activation::QuickGelu.apply(x.clone()), quick),
    ] {
        let value = values(value);
        for (value, expected) in value.iter().zip(expected) {
            assert!((value - expected).abs() < 4e-7, "{value} instead of {expected}");
        }
    }
}

#[test]
fn nan_stays_nan() {
    let x = Tensor::<1>::from_floats([f32::NAN; 19], &Device::flex());
    for kind in KINDS {
        let out = values(kind.apply(x.clone()));
        assert!(out.iter().all(|value| value.is_nan()), "{kind:?}: {out:?}");
    }
}
