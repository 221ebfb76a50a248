//! Linear layers that learn in f32 and multiply in bf16: all three products are of rounded operands.

use burn::tensor::{DType, Device, Tensor};
use kernels::{Activation, InstructionSet, Operands, linear, linear_mixed};
use proptest::prelude::*;

use crate::check::{close, random, values};
use crate::sets::on;

/// Sums of rounded products in another order, and subnormal products that are taken for zero.
const TOLERANCE: f32 = 5e-5;

fn nearest(x: Tensor<2>) -> Tensor<2> {
    x.cast(DType::BF16).cast(DType::F32)
}

fn plain(x: Tensor<2>, weight: Tensor<2>) -> Vec<f32> {
    values(linear(nearest(x), nearest(weight), None, Activation::Identity))
}

/// The result, and the gradients of the input, the weight and the bias where that of the result is `dy`.
fn run([x, weight, dy]: [&Tensor<2>; 3], bias: &Tensor<1>) -> [Vec<f32>; 4] {
    let leaf = |own: &Tensor<2>| Tensor::<2>::from_inner(own.clone()).require_grad();
    let (x, weight) = (leaf(x), leaf(weight));
    let bias = Tensor::<1>::from_inner(bias.clone()).require_grad();
    let out = linear_mixed(x.clone(), weight.clone(), Some(bias.clone()), Activation::Identity);
    let found = (out.clone() * Tensor::from_inner(dy.clone())).sum().backward();
    let gradient = |own: &Tensor<2>| values(own.grad(&found).expect("a leaf"));
    [
        values(out.inner()),
        gradient(&x),
        gradient(&weight),
        values(bias.grad(&found).expect("a leaf")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    #[test]
    fn every_product_is_of_rounded_operands(
        rows in prop::sample::select(vec![1, 2, 7, 96, 193]),
        inner in prop::sample::select(vec![1, 2, 5, 64, 515]),
        outer in prop::sample::select(vec![1, 3, 16, 65, 130]),
        seed: u64,
    ) {
        let device = Device::flex();
        let [x, dy] = [(1, inner), (2, outer)]
            .map(|(more, width)| random::<2>(seed ^ more, [rows, width], &device));
        let weight = random::<2>(seed ^ 3, [outer, inner], &device);
        let bias = random::<1>(seed ^ 4, [outer], &device);
        let expected = [
            plain(x.clone(), weight.clone()),
            plain(dy.clone(), weight.clone().transpose()),
            plain(dy.clone().transpose(), x.clone().transpose()),
            values(dy.clone().sum_dim(0)),
        ];
        let offset = values(bias.clone());
        for set in InstructionSet::with_own(Operands::F32).chain(InstructionSet::with_own(Operands::Bf16)) {
            let own = on(set, 2, || run([&x, &weight, &dy], &bias));
            let biased: Vec<f32> =
                expected[0].iter().enumerate().map(|(at, own)| own + offset[at % outer]).collect();
            close(&format!("{set}: result"), &own[0], &biased, TOLERANCE);
            for (at, what) in [(1, "dx"), (2, "dw"), (3, "db")] {
                close(&format!("{set}: {what}"), &own[at], &expected[at], TOLERANCE);
            }
        }
    }
}

/// A row's result depends on neither its neighbours nor the threads, in a graph or outside of one.
#[test]
fn rows_do_not_feel_each_other() {
    let device = Device::flex();
    let (x, weight) = (random::<2>(1, [195, 301], &device), random::<2>(2, [130, 301], &device));
    let bits = |x: Tensor<2>| values(x).into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for set in InstructionSet::present() {
        let run = |threads, x: Tensor<2>| {
            bits(on(set, threads, || linear_mixed(x, weight.clone(), None, Activation::Silu)))
        };
        let whole = run(1, x.clone());
        assert!(run(3, x.clone()) == whole, "{set}");
        let parts = (0..195).step_by(64);
        let parts = parts.flat_map(|at| run(2, x.clone().narrow(0, at, 64.min(195 - at))));
        assert!(parts.eq(whole.iter().copied()), "{set}");
        let recorded = on(set, 2, || {
            let leaf = Tensor::<2>::from_inner(x.clone()).require_grad();
            let weight = Tensor::<2>::from_inner(weight.clone()).require_grad();
            bits(linear_mixed(leaf, weight, None, Activation::Silu).inner())
        });
        assert!(recorded == whole, "{set}: a graph has other bits");
        let exact = bits(on(set, 2, || linear(x.clone(), weight.clone(), None, Activation::Silu)));
        assert!(exact != whole, "{set}: nothing is rounded");
    }
}
