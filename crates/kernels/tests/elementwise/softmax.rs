//! Softmax.

use burn::tensor::{Device, Tensor};
use kernels::{oracle, softmax};
use proptest::prelude::*;

use crate::check::{check, values};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn equals_its_oracle(
        seed: u64,
        rows in 1_usize..100,
        width in prop_oneof![1_usize..70, 500_usize..600],
        scale in 0.1_f32..30.0,
    ) {
        let x = |l: &[Tensor<1>]| l[0].clone().reshape([rows, 1, width]) * scale;
        let tolerance = 2e-6 * scale.max(1.0);
        check(seed, &[rows * width], tolerance, |l| softmax(x(l)), |l| oracle::softmax(x(l)));
    }
}

#[test]
fn masked_and_enormous_scores() {
    let row = [f32::NEG_INFINITY, 3e38, 3e38, -3e38, f32::NEG_INFINITY];
    let x = Tensor::<1>::from_floats(row, &Device::flex());
    assert_eq!(values(softmax(x)), [0.0, 0.5, 0.5, 0.0, 0.0]);
    let x = Tensor::<1>::from_floats([0.0, f32::NAN, 1.0], &Device::flex());
    assert!(values(softmax(x)).iter().all(|value| value.is_nan()));
}
