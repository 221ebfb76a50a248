//! Sums over all elements.

use burn::tensor::{Device, Tensor};
use kernels::{InstructionSet, Operands, oracle, sum, sum_squares};
use proptest::prelude::*;

use crate::check::{check, numbers, random, values};
use crate::sets::on;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn equal_their_oracles(seed: u64, length in prop_oneof![1_usize..50, 4000_usize..150_000]) {
        // An offset, so that the sum is not a small difference of large numbers.
        check(seed, &[length], 1e-5, |x| sum(x[0].clone() + 0.7), |x| oracle::sum(x[0].clone() + 0.7));
        let values = numbers(seed, length);
        let exact: f64 = values.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
        let own = sum_squares(random::<1>(seed, [length], &Device::flex()));
        prop_assert!((own - exact).abs() <= 1e-12 * exact, "{own} instead of {exact}");
    }
}

#[test]
fn of_five_mebi_elements_are_one_number_over_twenty_runs_and_all_thread_counts() {
    let length = 5 << 20;
    let x: Tensor<1> = random(3, [length], &Device::flex());
    let exact: f64 = numbers(3, length).iter().map(|x| f64::from(*x)).sum();
    let both = || (values(sum(x.clone()))[0], sum_squares(x.clone()));
    let first = both();
    assert!((f64::from(first.0) - exact).abs() < 0.01, "{} instead of {exact}", first.0);
    for set in InstructionSet::with_own(Operands::F32) {
        for run in 0..20 {
            assert_eq!(on(set, 1 + run % 3, both), first, "{set}, run {run}");
        }
    }
}

#[test]
fn squares_do_not_overflow() {
    let x = Tensor::<1>::from_floats([1e30, 1e30], &Device::flex()).autodiff();
    let total = sum_squares(x);
    assert!((total / 2e60 - 1.0).abs() < 1e-6, "{total}");
}
