//! A row's result depends on neither its neighbours nor the threads, to the bit.

use burn::tensor::{DType, Device, Tensor};
use kernels::{
    Activation, AttentionInputs, Convolution, InstructionSet, Operands, attention, conv2d, linear,
    to_bf16,
};

use crate::check::{random, values};
use crate::sets::on;

const DEPTHS: [usize; 3] = [256, 1152, 8960];
const SPLITS: [usize; 6] = [1, 2, 63, 64, 65, 129];
const ROWS: usize = 195;

/// The sets whose laws are checked here; portable code is slow, and its kernel differs in nothing
/// but how it rounds.
fn sets() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::with_own(Operands::F32)
        .filter(|set| *set != InstructionSet::Portable || InstructionSet::best() == *set)
}

/// One bit pattern per element.
fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    values(tensor).into_iter().map(f32::to_bits).collect()
}

/// Result and input gradient of `function`, as bits, for rows that lie along dim 0.
fn run<const D: usize>(
    function: &(impl Fn(Tensor<D>) -> Tensor<D> + Sync),
    x: Tensor<D>,
) -> [Vec<u32>; 2] {
    let leaf = x.autodiff().require_grad();
    let out = function(leaf.clone());
    // An upstream gradient that belongs to the row, wherever it is.
    let upstream = out.clone().detach().sin();
    let gradient = leaf.grad(&(out.clone() * upstream).sum().backward()).expect("a gradient");
    [bits(out.inner()), bits(gradient)]
}

/// Checks that the rows along dim 0, cut into pieces of each size and on 1, 2 and 3 threads, give
/// the bits of the whole, which are the same in every set.
fn check<const D: usize>(
    what: &str,
    x: Tensor<D>,
    splits: &[usize],
    function: impl Fn(Tensor<D>) -> Tensor<D> + Sync,
) {
    let results: Vec<_> =
        sets().map(|set| check_on(set, what, x.clone(), (splits, &function))).collect();
    assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{what}: sets differ");
}

/// [`check`] under one set; returns the bits of the whole.
fn check_on<const D: usize>(
    set: InstructionSet,
    what: &str,
    x: Tensor<D>,
    (splits, function): (&[usize], &(impl Fn(Tensor<D>) -> Tensor<D> + Sync)),
) -> [Vec<u32>; 2] {
    let what = format!("{what}, {set}");
    let rows = x.dims()[0];
    let pools = [1, 2, 3].map(|threads| set.pool(threads).expect("a pool"));
    let whole = pools[0].install(|| run(function, x.clone()));
    for (index, pool) in pools.iter().enumerate() {
        let again = pool.install(|| run(function, x.clone()));
        assert!(again == whole, "{what}: {} threads", index + 1);
        // Outside a graph the epilogue is fused in; it has to be the same epilogue.
        let plain = pool.install(|| bits(function(x.clone())));
        assert!(plain == whole[0], "{what}: without a graph, {} threads", index + 1);
    }
    for (index, split) in splits.iter().enumerate() {
        let mut pieces = [Vec::new(), Vec::new()];
        for first in (0..rows).step_by(*split) {
            let piece = x.clone().narrow(0, first, (*split).min(rows - first));
            let results = pools[index % 3].install(|| run(function, piece));
            pieces.iter_mut().zip(results).for_each(|(all, piece)| all.extend(piece));
        }
        assert!(pieces[0] == whole[0], "{what}: results in pieces of {split}");
        assert!(pieces[1] == whole[1], "{what}: gradients in pieces of {split}");
    }
    whole
}

/// `tensor` on the device of `like`, so that both may meet in one operation.
fn beside<const D: usize, const E: usize>(tensor: Tensor<D>, like: &Tensor<E>) -> Tensor<D> {
    if like.device().is_autodiff() { tensor.autodiff() } else { tensor }
}

#[test]
fn of_linear() {
    let device = Device::flex();
    let narrow = DEPTHS[..2].iter().map(|inner| (*inner, DType::BF16));
    for (inner, dtype) in DEPTHS.map(|inner| (inner, DType::F32)).into_iter().chain(narrow) {
        // More than a block, so that the depth of the input's gradient has several, and odd.
        let outer = 301;
        let weight = random::<2>(1, [outer, inner], &device).cast(dtype);
        let bias: Tensor<1> = random(2, [outer], &device);
        let x = random(3, [ROWS, inner], &device);
        check(&format!("{inner} {dtype:?}"), x, &SPLITS, |x: Tensor<2>| {
            let bias = Some(beside(bias.clone(), &x));
            linear(x.clone(), beside(weight.clone(), &x), bias, Activation::GeluTanh)
        });
    }
}

/// Few rows pack panels as they go, in blocks as large as a cache; many rows pack all of them first.
#[test]
fn of_linear_however_it_is_packed() {
    let device = Device::flex();
    let weight = random::<2>(1, [333, 300], &device);
    let x = random(3, [700, 300], &device);
    check("few and many rows", x, &[97, 288, 289, 576, 577], |x: Tensor<2>| {
        linear(x.clone(), beside(weight.clone(), &x), None, Activation::Identity)
    });
}

/// Rows of bf16 keep the law in the sets that multiply them.
#[test]
fn of_linear_in_bf16() {
    let device = Device::flex();
    for inner in DEPTHS {
        let weight = to_bf16(random::<2>(1, [301, inner], &device));
        let x = to_bf16(random::<2>(3, [ROWS, inner], &device));
        for set in InstructionSet::with_own(Operands::Bf16) {
            let run = |threads, x: Tensor<2>| {
                on(set, threads, || bits(linear(x, weight.clone(), None, Activation::GeluTanh)))
            };
            let whole = run(1, x.clone());
            assert!([2, 3].iter().all(|threads| run(*threads, x.clone()) == whole), "{inner}");
            for split in SPLITS {
                let parts = (0..ROWS)
                    .step_by(split)
                    .flat_map(|first| run(2, x.clone().narrow(0, first, split.min(ROWS - first))));
                assert!(parts.eq(whole.iter().copied()), "{inner} in pieces of {split}");
            }
        }
    }
}

/// The gradient's depth is the other side of the weight, so that side is varied as well.
#[test]
fn of_wide_linear() {
    let device = Device::flex();
    for outer in DEPTHS {
        let weight: Tensor<2> = random(1, [outer, 70], &device);
        let x = random(3, [ROWS, 70], &device);
        check(&format!("to {outer}"), x, &SPLITS, |x: Tensor<2>| {
            linear(x.clone(), beside(weight.clone(), &x), None, Activation::Identity)
        });
    }
}

#[test]
fn of_attention() {
    let device = Device::flex();
    for keys in DEPTHS {
        let (heads, width) = if keys < 2000 { (2, 72) } else { (1, 40) };
        let k: Tensor<4> = random(1, [1, keys, heads, width], &device);
        let v: Tensor<4> = random(2, [1, keys, heads, width], &device);
        let x = random(3, [ROWS, 1, heads, width], &device);
        // Queries lie along dim 0 for the split, and along dim 1 for attention.
        check(&format!("{keys} keys"), x, &SPLITS, |x: Tensor<4>| {
            let (k, v) = (beside(k.clone(), &x), beside(v.clone(), &x));
            let scale = 1.0 / (width as f32).sqrt();
            let inputs = AttentionInputs { q: x.swap_dims(0, 1), k, v, mask: None, scale };
            attention(inputs).swap_dims(0, 1)
        });
    }
}

#[test]
fn of_attention_samples() {
    let device = Device::flex();
    let x = random(3, [5, 101, 3, 40], &device);
    check("samples", x, &[1, 2, 3], |x: Tensor<4>| {
        attention(AttentionInputs { q: x.clone(), k: x.clone(), v: x, mask: None, scale: 0.1 })
    });
}

#[test]
fn of_convolution() {
    let device = Device::flex();
    for (inner, upsample) in [(5, 1), (40, 2), (300, 1)] {
        let weight: Tensor<4> = random(1, [19, inner, 3, 3], &device);
        let bias: Tensor<1> = random(2, [19], &device);
        let x = random(3, [5, 7, 9, inner], &device);
        let convolution = Convolution { stride: 1, padding: [1; 4], upsample };
        check(&format!("{inner} channels"), x, &[1, 2, 3], |x: Tensor<4>| {
            let bias = Some(beside(bias.clone(), &x));
            let weight = beside(weight.clone(), &x);
            conv2d(x, weight, bias, &convolution, Activation::Silu)
        });
    }
}

/// Gradients of parameters and keys sum over rows; threads do not change their order.
#[test]
fn of_sums_over_rows() {
    let device = Device::flex();
    let gradients = || {
        let leaf =
            |seed, shape: [usize; 2]| random::<2>(seed, shape, &device).autodiff().require_grad();
        let (x, weight) = (leaf(1, [1000, 300]), leaf(2, [270, 300]));
        let bias = leaf(3, [1, 270]);
        let offset = bias.clone().reshape([270]);
        let q = linear(x, weight.clone(), Some(offset), Activation::Identity);
        let q: Tensor<4> = q.reshape([1, 1000, 3, 90]) * 0.1;
        let (k, v) = (leaf(4, [400, 270]), leaf(5, [400, 270]));
        let heads = |x: &Tensor<2>| -> Tensor<4> { x.clone().reshape([1, 400, 3, 90]) };
        let out =
            attention(AttentionInputs { q, k: heads(&k), v: heads(&v), mask: None, scale: 0.1 });
        let kernel = leaf(6, [20, 90 * 9]);
        let out = conv2d(
            out.swap_dims(1, 2).reshape([3, 20, 50, 90]),
            kernel.clone().reshape([20, 90, 3, 3]),
            None,
            &Convolution::padded(1),
            Activation::Identity,
        );
        let gradients = (out.clone() * out.detach().sin()).sum().backward();
        [weight, bias, k, v, kernel].map(|leaf| bits(leaf.grad(&gradients).expect("a gradient")))
    };
    let whole = on(InstructionSet::best(), 1, gradients);
    for (set, threads) in sets().flat_map(|set| [1, 2, 3].map(|threads| (set, threads))) {
        assert!(on(set, threads, gradients) == whole, "{set}, {threads} threads");
    }
}
