//! Norms, modulation and gates.

use burn::tensor::{Device, Int, Tensor};
use kernels::{Activation, Modulation, oracle};
use proptest::prelude::*;

use crate::check::{check, close, levels, random, values};

const TOLERANCE: f32 = 1e-5;

/// Sizes of one, small ones, and such that the tokens pass the runs of 64 that sums are made of.
fn sizes() -> impl Strategy<Value = [usize; 4]> {
    let tokens = prop_oneof![Just(1), 2_usize..20, Just(64), Just(127), 128_usize..200];
    let width = prop_oneof![1_usize..8, Just(31), Just(64), Just(97), Just(257)];
    (1_usize..4, tokens, 1_usize..4, width).prop_map(|(b, t, k, d)| [b, t, k, d])
}

/// Of few numbers the variance may be close to 0, and its inverse root would magnify rounding.
fn epsilon(width: usize) -> f32 {
    if width < 8 { 0.1 } else { 1e-6 }
}

fn modulation(leaves: &[Tensor<1>], [b, k, d]: [usize; 3], index: &Tensor<2, Int>) -> Modulation {
    let index = (k > 1).then(|| index.clone());
    let [scale, shift] = [&leaves[0], &leaves[1]].map(|leaf| leaf.clone().reshape([b, k, d]));
    Modulation { scale, shift, index }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn layer_norm_equals_its_oracle(seed: u64, [b, t, k, d] in sizes(), offset in -3.0_f32..3.0) {
        let x = |x: &[Tensor<1>]| x[0].clone().reshape([b, t, d]) + offset;
        let affine = |x: &[Tensor<1>]| Some((x[0].clone(), x[1].clone()));
        let index = levels(seed, [b, t], k);
        let of = |x: &[Tensor<1>]| modulation(x, [b, k, d], &index);
        let (n, m) = (b * t * d, b * k * d);
        check(seed, &[n], TOLERANCE,
            |l| kernels::layer_norm(x(l), None, None, epsilon(d)),
            |l| oracle::layer_norm(x(l), None, None, epsilon(d)));
        check(seed, &[n, d, d], TOLERANCE,
            |l| kernels::layer_norm(x(l), affine(&l[1..]), None, epsilon(d)),
            |l| oracle::layer_norm(x(l), affine(&l[1..]), None, epsilon(d)));
        check(seed, &[n, m, m], TOLERANCE,
            |l| kernels::layer_norm(x(l), None, Some(&of(&l[1..])), epsilon(d)),
            |l| oracle::layer_norm(x(l), None, Some(&of(&l[1..])), epsilon(d)));
        check(seed, &[n, d, d, m, m], TOLERANCE,
            |l| kernels::layer_norm(x(l), affine(&l[1..]), Some(&of(&l[3..])), epsilon(d)),
            |l| oracle::layer_norm(x(l), affine(&l[1..]), Some(&of(&l[3..])), epsilon(d)));
    }

    #[test]
    fn rms_norm_equals_its_oracle(seed: u64, [b, t, k, d] in sizes()) {
        let x = |x: &[Tensor<1>]| x[0].clone().reshape([b, t, d]);
        let index = levels(seed, [b, t], k);
        let of = |x: &[Tensor<1>]| modulation(x, [b, k, d], &index);
        let (n, m) = (b * t * d, b * k * d);
        check(seed, &[n], TOLERANCE,
            |l| kernels::rms_norm(l[0].clone().reshape([t, b, 1, d]), None, epsilon(d)),
            |l| oracle::rms_norm(l[0].clone().reshape([t, b, 1, d]), None, epsilon(d)));
        check(seed, &[n, d], TOLERANCE,
            |l| kernels::rms_norm(x(l), Some(l[1].clone()), epsilon(d)),
            |l| oracle::rms_norm(x(l), Some(l[1].clone()), epsilon(d)));
        check(seed, &[n, m, m], TOLERANCE,
            |l| kernels::modulated_rms_norm(x(l), None, &of(&l[1..]), epsilon(d)),
            |l| oracle::modulated_rms_norm(x(l), None, &of(&l[1..]), epsilon(d)));
        check(seed, &[n, m, m, d], TOLERANCE,
            |l| kernels::modulated_rms_norm(x(l), Some(l[3].clone()), &of(&l[1..]), epsilon(d)),
            |l| oracle::modulated_rms_norm(x(l), Some(l[3].clone()), &of(&l[1..]), epsilon(d)));
    }

    #[test]
    fn unit_norm_equals_its_oracle(seed: u64, [b, t, _, d] in sizes()) {
        for activation in [Activation::Identity, Activation::Silu] {
            let x = |l: &[Tensor<1>]| l[0].clone().reshape([b, t, 1, d]) * 3.0;
            let leaves: Vec<Tensor<1>> =
                vec![random(seed, [b * t * d], &Device::flex()), random(seed ^ 9, [d], &Device::flex())];
            let own = kernels::unit_norm(x(&leaves), leaves[1].clone(), activation);
            let expected = oracle::unit_norm(x(&leaves), leaves[1].clone(), activation);
            close("unit norm", &values(own), &values(expected), TOLERANCE);
        }
    }

    #[test]
    fn modulation_and_gates_equal_their_oracles(seed: u64, [b, t, k, d] in sizes()) {
        let [x, y] = [0, 1].map(|i| move |x: &[Tensor<1>]| x[i].clone().reshape([b, t, d]));
        let index = levels(seed, [b, t], k);
        let of = |x: &[Tensor<1>]| modulation(x, [b, k, d], &index);
        let (n, m) = (b * t * d, b * k * d);
        check(seed, &[n, m, m], TOLERANCE,
            |l| kernels::modulate(x(l), &of(&l[1..])),
            |l| oracle::modulate(x(l), &of(&l[1..])));
        let index = (k > 1).then(|| index.clone());
        let gate = |x: &[Tensor<1>]| x[2].clone().reshape([b, k, d]);
        check(seed, &[n, n, m], TOLERANCE,
            |l| kernels::gated_residual(x(l), y(l), gate(l), index.clone()),
            |l| oracle::gated_residual(x(l), y(l), gate(l), index.clone()));
    }

    #[test]
    fn group_norm_equals_its_oracle(
        seed: u64,
        [b, height, width] in [1_usize..3, 1_usize..40, 1_usize..40],
        [groups, size] in [1_usize..5, 1_usize..9],
        offset in -30.0_f32..30.0,
    ) {
        let channels = groups * size;
        prop_assume!(height * width * size > 1);
        let x = |x: &[Tensor<1>]| x[0].clone().reshape([b, height, width, channels]) + offset;
        let affine = |x: &[Tensor<1>]| (x[1].clone(), x[2].clone());
        for activation in [Activation::Identity, Activation::Silu] {
            check(seed, &[b * height * width * channels, channels, channels], 5e-5,
                |l| kernels::group_norm(x(l), groups, affine(l), 1e-6, activation),
                |l| oracle::group_norm(x(l), groups, affine(l), 1e-6, activation));
        }
    }
}

/// A constant among the inputs gets no gradient and changes nobody else's.
#[test]
fn inputs_without_a_gradient_leave_the_others_theirs() {
    let device = Device::flex();
    let leaf = |seed, shape| random::<3>(seed, shape, &device).autodiff();
    let (x, scale, shift) = (leaf(1, [2, 70, 33]), leaf(2, [2, 1, 33]), leaf(3, [2, 1, 33]));
    let gradient = |wanted: usize| {
        let mut leaves = [x.clone(), scale.clone(), shift.clone()];
        leaves[wanted] = leaves[wanted].clone().detach().require_grad();
        let [x, scale, shift] = leaves.clone();
        let modulation = Modulation { scale, shift, index: None };
        let out = kernels::layer_norm(x, None, Some(&modulation), 1e-6);
        let upstream = random(4, out.dims(), &out.device());
        let gradients = (out * upstream).sum().backward();
        for (index, leaf) in leaves.iter().enumerate().filter(|(index, _)| *index != wanted) {
            assert!(leaf.grad(&gradients).is_none(), "leaf {index} is a constant");
        }
        values(leaves[wanted].grad(&gradients).expect("a gradient"))
    };
    let all = {
        let leaves = [&x, &scale, &shift].map(|leaf| leaf.clone().detach().require_grad());
        let [x, scale, shift] = leaves.clone();
        let modulation = Modulation { scale, shift, index: None };
        let out = kernels::layer_norm(x, None, Some(&modulation), 1e-6);
        let upstream = random(4, out.dims(), &out.device());
        let gradients = (out * upstream).sum().backward();
        leaves.map(|leaf| values(leaf.grad(&gradients).expect("a gradient")))
    };
    for (index, expected) in all.iter().enumerate() {
        assert_eq!(&gradient(index), expected, "leaf {index}");
    }
}

/// A variance far below the square of the mean: the difference of two squares would lose it.
#[test]
fn statistics_survive_a_large_mean() {
    let device = Device::flex();
    let noise: Tensor<3> = random(5, [1, 3, 1000], &device);
    let expected = values(oracle::layer_norm(noise.clone(), None, None, 0.0));
    let own = values(kernels::layer_norm(noise.clone() + 4096.0, None, None, 0.0));
    close("layer norm", &own, &expected, 2e-3);

    let image = |x: Tensor<3>| x.reshape([1, 10, 10, 30]);
    let affine = || (Tensor::ones([30], &device), Tensor::zeros([30], &device));
    let norm = |x| kernels::group_norm(image(x), 3, affine(), 0.0, Activation::Identity);
    close("group norm", &values(norm(noise.clone() + 4096.0)), &values(norm(noise)), 2e-3);
}

#[test]
#[should_panic(expected = "level 2 of 2 does not exist")]
fn a_level_beyond_the_table_is_refused() {
    let device = Device::flex();
    let index = Tensor::<2, Int>::from_ints([[0, 2, 1]], &device);
    let table = || Tensor::<3>::ones([1, 2, 4], &device);
    let modulation = Modulation { scale: table(), shift: table(), index: Some(index) };
    kernels::modulate(Tensor::ones([1, 3, 4], &device), &modulation);
}

#[test]
fn a_row_of_zeros_has_no_direction() {
    let device = Device::flex();
    let zeros = Tensor::<2>::zeros([3, 5], &device);
    let out = kernels::unit_norm(zeros, Tensor::ones([5], &device), Activation::Identity);
    assert_eq!(values(out), [0.0; 15]);
}

/// Under autodiff the oracle runs.
#[test]
fn unit_norm_has_a_gradient() {
    let device = Device::flex();
    let x: Tensor<2> = random(1, [3, 5], &device);
    let gain: Tensor<1> = random(2, [5], &device);
    let plain = kernels::unit_norm(x.clone(), gain.clone(), Activation::Silu);
    let leaf = x.autodiff().require_grad();
    let out = kernels::unit_norm(leaf.clone(), gain.autodiff(), Activation::Silu);
    close("recorded", &values(out.clone()), &values(plain), TOLERANCE);
    assert!(leaf.grad(&out.sum().backward()).is_some());
}
