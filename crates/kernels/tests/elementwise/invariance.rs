//! A row's result depends on neither its neighbours nor the threads, to the bit.

use std::ops::Range;

use burn::tensor::{Device, Int, Tensor};
use kernels::{
    Activation, InstructionSet, Modulation, Operands, gated_residual, gelu_erf, gelu_tanh,
    group_norm, layer_norm, rms_norm, silu, softmax,
};

use crate::check::{levels, random, values};
use crate::sets::on;

const WIDTHS: [usize; 3] = [256, 1152, 8960];
const SPLITS: [usize; 6] = [1, 2, 63, 64, 65, 129];
const ROWS: usize = 195;

/// Each set of the machine with each width; portable code is slow and gets the first alone.
fn on_sets(widths: [usize; 3]) -> impl Iterator<Item = (InstructionSet, usize)> {
    let pairs = move |set| widths.into_iter().map(move |width| (set, width));
    let all = InstructionSet::with_own(Operands::F32).flat_map(pairs);
    all.filter(move |(set, width)| *set != InstructionSet::Portable || *width == widths[0])
}

/// One sample `[1, T, D]` and the level of each token `[1, T]`.
type Rows = (Tensor<3>, Tensor<2, Int>);

/// Result and gradient of `function`, row by row, as bits.
fn run(function: &dyn Fn(Tensor<3>, Tensor<2, Int>) -> Tensor<3>, (x, index): Rows) -> Vec<u32> {
    let leaf = x.autodiff().require_grad();
    let out = function(leaf.clone(), index);
    // An upstream gradient that belongs to the row, wherever it is.
    let upstream = leaf.clone().detach().sin();
    let gradient = leaf.grad(&(out.clone() * upstream).sum().backward()).expect("a gradient");
    let both = Tensor::cat(vec![out.inner(), gradient], 2);
    values(both).into_iter().map(f32::to_bits).collect()
}

/// Checks that the rows in pieces of every size, on every thread count, give the bits of the whole.
fn check(function: impl Fn(Tensor<3>, Tensor<2, Int>) -> Tensor<3> + Sync) {
    for (set, width) in on_sets(WIDTHS) {
        let x: Tensor<3> = random(width as u64, [1, ROWS, width], &Device::flex());
        let index = levels(9, [1, ROWS], 3);
        let whole = on(set, 1, || run(&function, (x.clone(), index.clone())));
        for threads in [2, 3] {
            let again = on(set, threads, || run(&function, (x.clone(), index.clone())));
            assert!(again == whole, "{set}, width {width}, {threads} threads");
        }
        for split in SPLITS {
            let mut pieces = Vec::new();
            for (first, count) in [(0, split), (split, ROWS - split)] {
                let piece =
                    (x.clone().narrow(1, first, count), index.clone().narrow(1, first, count));
                pieces.extend(on(set, 2, || run(&function, piece)));
            }
            assert!(pieces == whole, "{set}, width {width}, {split} rows first");
        }
    }
}

fn table(seed: u64, width: usize) -> Tensor<3> {
    random(seed, [1, 3, width], &Device::flex())
}

#[test]
fn of_activations() {
    check(|x, _| gelu_erf(x));
    check(|x, _| gelu_tanh(x));
    check(|x, _| silu(x));
}

#[test]
fn of_softmax() {
    check(|x, _| softmax(x));
}

#[test]
fn of_norms() {
    check(|x, index| {
        let [.., width] = x.dims();
        let modulation =
            Modulation { scale: table(1, width), shift: table(2, width), index: Some(index) };
        layer_norm(x, None, Some(&modulation), 1e-6)
    });
    check(|x, _| {
        let [.., width] = x.dims();
        rms_norm(x, Some(random(3, [width], &Device::flex())), 1e-6)
    });
}

#[test]
fn of_gates() {
    check(|x, index| {
        let [.., width] = x.dims();
        gated_residual(x.clone(), x, table(4, width), Some(index))
    });
}

#[test]
fn of_rope() {
    check(|x, _| {
        let [batch, rows, width] = x.dims();
        let angle = x.clone().detach().narrow(2, 0, 32).cos();
        kernels::rope(x.reshape([batch, rows, width / 64, 64]), angle.clone(), angle)
            .reshape([batch, rows, width])
    });
}

/// Sums over tokens are cut by shape, so threads do not change them; nor do other samples.
#[test]
fn of_parameter_gradients() {
    let run = |samples: Range<usize>| {
        let device = Device::flex();
        let (first, count) = (samples.start, samples.len());
        let x: Tensor<3> = random(1, [3, 200, 100], &device).narrow(0, first, count);
        let table = |seed| random::<3>(seed, [3, 2, 100], &device).narrow(0, first, count);
        let [scale, shift] = [2, 3].map(|seed| table(seed).autodiff().require_grad());
        let index = levels(4, [3, 200], 2).narrow(0, first, count);
        let modulation =
            Modulation { scale: scale.clone(), shift: shift.clone(), index: Some(index) };
        let out = layer_norm(x.clone().autodiff(), None, Some(&modulation), 1e-6);
        let gradients = (out * x.autodiff().sin()).sum().backward();
        [scale, shift].map(|leaf| values(leaf.grad(&gradients).expect("a gradient")))
    };
    for set in InstructionSet::with_own(Operands::F32) {
        let whole = on(set, 1, || run(0..3));
        for threads in [2, 3] {
            assert!(on(set, threads, || run(0..3)) == whole, "{set}, {threads} threads");
        }
        for sample in 0..3 {
            let alone = on(set, 2, || run(sample..sample + 1));
            for (alone, together) in alone.iter().zip(&whole) {
                assert!(alone[..] == together[sample * 200..][..200], "{set}, sample {sample}");
            }
        }
    }
}

/// A group's sums run over all pixels of a picture, more than one task takes.
#[test]
fn of_group_norm() {
    let device = Device::flex();
    let images: Tensor<4> = random(1, [2, 40, 50, 96], &device) + 3.0;
    let [weight, bias] = [2, 3].map(|seed| random::<1>(seed, [96], &device));
    let norm = |samples: Range<usize>| {
        let images = images.clone().narrow(0, samples.start, samples.len());
        let affine = (weight.clone(), bias.clone());
        let out = group_norm(images, 8, affine, 1e-6, Activation::Silu);
        values(out).into_iter().map(f32::to_bits).collect::<Vec<_>>()
    };
    for set in InstructionSet::with_own(Operands::F32) {
        let whole = on(set, 1, || norm(0..2));
        for threads in [2, 3] {
            assert!(on(set, threads, || norm(0..2)) == whole, "{set}, {threads} threads");
        }
        let alone = on(set, 2, || [norm(0..1), norm(1..2)].concat());
        assert!(alone == whole, "{set}, samples alone");
    }
}
