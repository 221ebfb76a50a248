//! A kernel equals its oracle, forward and gradient.

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::sets::same_on_every_set;

/// Repeatable numbers, spread like a sum of four dice around 0 with deviation 1.
pub(crate) fn numbers(seed: u64, count: usize) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x2545_f491_4f6c_dd1d;
    let mut uniform = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..count)
        .map(|_| (uniform() + uniform() + uniform() + uniform() - 2.0) * 3.0_f32.sqrt())
        .collect()
}

/// A tensor of [`numbers`].
pub(crate) fn random<const D: usize>(seed: u64, shape: [usize; D], device: &Device) -> Tensor<D> {
    let count = shape.iter().product();
    Tensor::from_data(TensorData::new(numbers(seed, count), shape), device)
}

/// Levels below `count` for every token, in irregular runs.
pub(crate) fn levels(seed: u64, [batch, tokens]: [usize; 2], count: usize) -> Tensor<2, Int> {
    let draws = numbers(seed, batch * tokens);
    let mut level = 0;
    let values: Vec<i64> = draws
        .iter()
        .map(|draw| {
            if *draw > 0.5 {
                level = (level + 1 + (draw * 100.0) as usize) % count;
            }
            level as i64
        })
        .collect();
    Tensor::from_data(TensorData::new(values, [batch, tokens]), &Device::flex())
}

/// The elements of a tensor, in f32.
pub(crate) fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().convert::<f32>().try_to_vec().expect("f32 elements")
}

/// What the largest element counts as at least.
const LEAST: f32 = 1e-3;

/// Checks that all elements agree within `tolerance` of the largest.
pub(crate) fn close(what: &str, value: &[f32], expected: &[f32], tolerance: f32) {
    close_from(LEAST, what, [value, expected], tolerance);
}

/// [`close`], where the largest element counts as at least `least`.
fn close_from(least: f32, what: &str, [value, expected]: [&[f32]; 2], tolerance: f32) {
    assert_eq!(value.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(least, |most, x| most.max(x.abs()));
    for (index, (value, expected)) in value.iter().zip(expected).enumerate() {
        assert!(
            (value - expected).abs() <= tolerance * largest,
            "{what}[{index}]: {value} instead of {expected}, of at most {largest}"
        );
    }
}

/// The function under test takes flat leaves, which it reshapes as it likes.
type Leaves<'a> = &'a [Tensor<1>];

/// Checks that `kernel` and `oracle` agree on random leaves of the given lengths: the result on
/// plain tensors, the result under autodiff, and the gradient of every leaf. This holds under every
/// instruction set of the machine, with the same bits in all that have fused multiply-adds.
pub(crate) fn check<const D: usize>(
    seed: u64,
    lengths: &[usize],
    tolerance: f32,
    kernel: impl Fn(Leaves<'_>) -> Tensor<D> + Sync,
    oracle: impl Fn(Leaves<'_>) -> Tensor<D>,
) {
    check_from(LEAST, seed, lengths, tolerance, (kernel, oracle));
}

/// [`check`], where the largest element of the result counts as at least `least`.
pub(crate) fn check_from<const D: usize>(
    least: f32,
    seed: u64,
    lengths: &[usize],
    tolerance: f32,
    (kernel, oracle): (impl Fn(Leaves<'_>) -> Tensor<D> + Sync, impl Fn(Leaves<'_>) -> Tensor<D>),
) {
    let leaf = |(index, length): (usize, &usize)| {
        random(seed.wrapping_add(1000 * index as u64), [*length], &Device::flex())
    };
    let plain: Vec<Tensor<1>> = lengths.iter().enumerate().map(leaf).collect();
    let expected = values(oracle(&plain));
    let gradients = |function: &dyn Fn(Leaves<'_>) -> Tensor<D>| {
        let leaves: Vec<_> =
            plain.iter().map(|leaf| leaf.clone().autodiff().require_grad()).collect();
        let out = function(&leaves);
        let upstream = random(seed ^ 77, out.dims(), &out.device());
        let result = values(out.clone());
        let gradients = (out * upstream).sum().backward();
        let of_leaf = |leaf: &Tensor<1>| values(leaf.grad(&gradients).expect("a gradient"));
        (result, leaves.iter().map(of_leaf).collect::<Vec<_>>())
    };
    let (_, reference) = gradients(&oracle);
    same_on_every_set(|set| {
        let close = |what: &str, value: &[f32]| {
            close_from(least, &format!("{what} under {set}"), [value, &expected], tolerance);
        };
        let result = values(kernel(&plain));
        close("plain result", &result);
        let (recorded, own) = gradients(&kernel);
        close("recorded result", &recorded);
        for (index, (own, reference)) in own.iter().zip(&reference).enumerate() {
            // The terms of a gradient are about 1 even where they cancel.
            let what = format!("gradient of leaf {index} under {set}");
            close_from(1.0, &what, [own, reference], tolerance);
        }
        let all = [vec![result, recorded], own].concat().concat();
        all.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    });
}
