//! Loops over slices, written so that the compiler turns them into vector code.
//!
//! All of them are to be called where the machine's instructions are already chosen, that is, below
//! [`crate::rows`] or [`crate::work`], and are always inlined for that reason. Sums run in
//! [`LANES`] partial sums by index modulo [`LANES`], joined by a fixed tree, so the result depends
//! on the elements alone and not on the width of the machine's vectors.

use std::mem::MaybeUninit;

const LANES: usize = 32;

/// Writes `function` of the elements of all inputs to every slot.
#[inline(always)]
pub(crate) fn map<'a, const N: usize>(
    slots: &'a mut [MaybeUninit<f32>],
    inputs: [&[f32]; N],
    function: impl Fn([f32; N]) -> f32,
) -> &'a mut [f32] {
    let inputs = inputs.map(|input| &input[..slots.len()]);
    for (index, slot) in slots.iter_mut().enumerate() {
        slot.write(function(std::array::from_fn(|input| inputs[input][index])));
    }
    // SAFETY: the loop above wrote every slot.
    unsafe { slots.assume_init_mut() }
}

/// Copies `input` to the slots.
#[inline(always)]
pub(crate) fn copy<'a>(slots: &'a mut [MaybeUninit<f32>], input: &[f32]) -> &'a mut [f32] {
    map(slots, [input], |[value]| value)
}

/// Replaces every value by `function` of itself and the elements of all inputs.
#[inline(always)]
pub(crate) fn update<const N: usize>(
    values: &mut [f32],
    inputs: [&[f32]; N],
    function: impl Fn(f32, [f32; N]) -> f32,
) {
    let inputs = inputs.map(|input| &input[..values.len()]);
    for (index, value) in values.iter_mut().enumerate() {
        *value = function(*value, std::array::from_fn(|input| inputs[input][index]));
    }
}

/// The sum over all indices of `term` of the elements of all inputs.
#[inline(always)]
pub(crate) fn sum<const N: usize>(inputs: [&[f32]; N], term: impl Fn([f32; N]) -> f32) -> f32 {
    fold(inputs, 0.0, |a, b| a + b, term)
}

/// The largest element; NaN elements are passed over.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    fold([values], f32::NEG_INFINITY, f32::max, |[value]| value)
}

/// Joins `term` of every index to `start`.
#[inline(always)]
fn fold<const N: usize>(
    inputs: [&[f32]; N],
    start: f32,
    join: impl Fn(f32, f32) -> f32,
    term: impl Fn([f32; N]) -> f32,
) -> f32 {
    let length = inputs[0].len();
    let inputs = inputs.map(|input| input[..length].as_chunks::<LANES>());
    let mut lanes = [start; LANES];
    for index in 0..length / LANES {
        let chunk = inputs.map(|(chunks, _)| &chunks[index]);
        for lane in 0..LANES {
            let value = term(std::array::from_fn(|input| chunk[input][lane]));
            lanes[lane] = join(lanes[lane], value);
        }
    }
    // The tail is spread over lanes of its own: writing single ones of the sum above would make
    // the compiler keep all of them apart.
    let mut tail = [start; LANES];
    for (index, slot) in tail.iter_mut().enumerate().take(length % LANES) {
        *slot = term(inputs.map(|(_, rest)| rest[index]));
    }
    for lane in 0..LANES {
        lanes[lane] = join(lanes[lane], tail[lane]);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = join(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}
