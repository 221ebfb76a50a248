//! Numbers rounded to blocks, as ggml's reference rounds them.

use half::f16;

use super::BlockType;
use super::formats::{Format, Q4K, scales_and_least};

impl BlockType {
    /// Whether numbers can be rounded to it here.
    pub fn is_written(self) -> bool {
        matches!(self, BlockType::Q8_0 | BlockType::Q4K)
    }

    /// Numbers as blocks, one after the other. None if a block has no finite scale, as its numbers are too large or
    /// not finite, if they are no whole blocks, or if this type is not written.
    pub fn nearest(self, values: &[f32]) -> Option<Vec<u8>> {
        let round: fn(&[f32], &mut [u8]) -> bool = match self {
            BlockType::Q8_0 => q8_0,
            BlockType::Q4K => q4_k,
            _ => return None,
        };
        let length = self.length();
        if !values.len().is_multiple_of(length) {
            return None;
        }
        let mut out = vec![0; values.len() / length * self.bytes()];
        let blocks = values.chunks_exact(length).zip(out.chunks_exact_mut(self.bytes()));
        for (values, block) in blocks {
            let finite = values.iter().all(|value| value.is_finite());
            if !finite || !round(values, block) {
                return None;
            }
        }
        Some(out)
    }
}

/// Writes a scale; false if two bytes cannot hold it.
fn put(value: f32, to: &mut [u8]) -> bool {
    let short = f16::from_f32(value);
    to.copy_from_slice(&short.to_le_bytes());
    short.is_finite()
}

fn q8_0(values: &[f32], block: &mut [u8]) -> bool {
    let largest = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };
    let (head, bytes) = block.split_at_mut(2);
    for (value, byte) in values.iter().zip(bytes) {
        *byte = ((value * inverse).round() as i8).cast_unsigned();
    }
    put(scale, head)
}

/// Numbers of a part of a block that has a scale of its own.
const PART: usize = 32;
/// The largest of a number's four bits.
const MOST: f32 = 15.0;
/// The largest scale of a part.
const MOST_SCALE: f32 = 63.0;

fn q4_k(values: &[f32], block: &mut [u8]) -> bool {
    let mut numbers = [0; Q4K::LENGTH];
    let (mut scales, mut leasts) = ([0.0; 8], [0.0; 8]);
    let parts = values.as_chunks::<PART>().0.iter().zip(numbers.as_chunks_mut::<PART>().0);
    for (at, (values, numbers)) in parts.enumerate() {
        let fit = fitted(values);
        (scales[at], leasts[at], *numbers) = (fit.scale, -fit.least, fit.numbers);
    }
    let larger = |most, own| if own > most { own } else { most };
    let most = |all: &[f32; 8]| all.iter().copied().fold(0.0, larger);
    let (scale, least) = (most(&scales), most(&leasts));
    let (head, bytes) = block.split_at_mut(16);
    let (shorts, packed) = head.split_at_mut(4);
    pack(packed, [(scales, scale), (leasts, least)].map(|(all, most)| six_bits(all, most)));
    let (first, second) = shorts.split_at_mut(2);
    if !put(scale / MOST_SCALE, first) || !put(least / MOST_SCALE, second) {
        return false;
    }
    let [scale, least] =
        [&*first, &*second].map(|own| f16::from_le_bytes([own[0], own[1]]).to_f32());
    let [scales, leasts] = scales_and_least(packed);
    let parts = values.as_chunks::<PART>().0.iter().zip(numbers.as_chunks_mut::<PART>().0);
    for (at, (values, numbers)) in parts.enumerate() {
        let scale = scale * f32::from(scales[at]);
        if scale == 0.0 {
            continue;
        }
        let least = least * f32::from(leasts[at]);
        for (value, number) in values.iter().zip(numbers) {
            *number = ((value + least) / scale).round_ties_even().clamp(0.0, MOST) as u8;
        }
    }
    for (numbers, bytes) in numbers.chunks_exact(2 * PART).zip(bytes.chunks_exact_mut(PART)) {
        let (low, high) = numbers.split_at(PART);
        for ((low, high), byte) in low.iter().zip(high).zip(bytes) {
            *byte = low | high << 4;
        }
    }
    true
}

/// Numbers as shares of the largest, in six bits.
fn six_bits(all: [f32; 8], most: f32) -> [u8; 8] {
    let inverse = if most > 0.0 { MOST_SCALE / most } else { 0.0 };
    all.map(|own| (inverse * own).round_ties_even().min(MOST_SCALE) as u8)
}

/// Eight scales and eight least numbers of six bits in twelve bytes.
fn pack(packed: &mut [u8], [scales, leasts]: [[u8; 8]; 2]) {
    for at in 0..4 {
        packed[at] = scales[at] | scales[at + 4] >> 4 << 6;
        packed[at + 4] = leasts[at] | leasts[at + 4] >> 4 << 6;
        packed[at + 8] = scales[at + 4] & 15 | (leasts[at + 4] & 15) << 4;
    }
}

/// What a part of a block is rounded to.
struct Fit {
    scale: f32,
    least: f32,
    numbers: [u8; PART],
}

/// Sums over a part, weighed.
#[derive(Default)]
struct Sums {
    number: f32,
    square: f32,
    product: f32,
}

/// The scale and the least number that serve a part best: those between its ends, or one of 21 fits of a line to
/// numbers that are rounded a little wider or narrower. Errors weigh more where a number is large.
fn fitted(values: &[f32; PART]) -> Fit {
    let power: f32 = values.iter().fold(0.0, |sum, value| sum + value * value);
    let mean = (power / PART as f32).sqrt();
    let weights = values.map(|value| mean + value.abs());
    let sum_weights = weights.iter().fold(0.0, |sum, weight| sum + weight);
    let sum_values =
        values.iter().zip(&weights).fold(0.0, |sum, (value, weight)| sum + weight * value);
    let most = values.iter().copied().fold(values[0], f32::max);
    let least = values.iter().copied().fold(values[0], f32::min).min(0.0);
    if most == least {
        return Fit { scale: 0.0, least, numbers: [0; PART] };
    }
    let rounded = |inverse: f32, least: f32| {
        values.map(|value| (inverse * (value - least)).round_ties_even().clamp(0.0, MOST) as u8)
    };
    let error = |fit: &Fit| {
        let each = values.iter().zip(&weights).zip(&fit.numbers);
        each.fold(0.0, |sum, ((value, weight), number)| {
            let off = fit.scale * f32::from(*number) + fit.least - value;
            sum + weight * (off * off)
        })
    };
    let inverse = MOST / (most - least);
    let mut best = Fit { scale: 1.0 / inverse, least, numbers: rounded(inverse, least) };
    let mut best_error = error(&best);
    for step in 0..=20_u8 {
        // From the least number found so far, as the reference does.
        let inverse = (-1.0 + 0.1 * f32::from(step) + MOST) / (most - best.least);
        let numbers = rounded(inverse, best.least);
        let mut sums = Sums::default();
        for ((value, weight), number) in values.iter().zip(&weights).zip(&numbers) {
            let number = f32::from(*number);
            sums.number += weight * number;
            sums.square += weight * number * number;
            sums.product += weight * number * value;
        }
        let determinant = sum_weights * sums.square - sums.number * sums.number;
        if determinant <= 0.0 {
            continue;
        }
        let scale = (sum_weights * sums.product - sum_values * sums.number) / determinant;
        let least = (sums.square * sum_values - sums.number * sums.product) / determinant;
        let fit = match least > 0.0 {
            true => Fit { scale: sums.product / sums.square, least: 0.0, numbers },
            false => Fit { scale, least, numbers },
        };
        let own = error(&fit);
        if own < best_error {
            (best, best_error) = (fit, own);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_scale_is_no_block() {
        for kind in [BlockType::Q8_0, BlockType::Q4K] {
            let mut values = vec![1.0; kind.length()];
            assert!(kind.nearest(&values).is_some());
            assert!(kind.nearest(&values[1..]).is_none(), "part of a block");
            for broken in [f32::NAN, f32::INFINITY, -1e12] {
                values[7] = broken;
                assert!(kind.nearest(&values).is_none(), "{broken}");
            }
            assert_eq!(kind.nearest(&vec![0.0; kind.length()]), Some(vec![0; kind.bytes()]));
        }
        assert!(BlockType::Q6K.nearest(&[0.0; 256]).is_none(), "it is read only");
    }

    #[test]
    fn six_bits_come_back() {
        let all: [u8; 8] = std::array::from_fn(|at| (at * 9) as u8);
        let other = all.map(|own| 63 - own);
        let mut packed = [0; 12];
        pack(&mut packed, [all, other]);
        assert_eq!(scales_and_least(&packed), [all, other]);
    }
}
