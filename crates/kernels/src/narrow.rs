//! Weights in the type they are stored in, and how they widen to f32; f32 rounded to bf16.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::blocks::Rows;

/// A weight in the type it is stored in.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
}

/// What is packed for a product.
#[derive(Clone, Copy)]
pub(crate) enum Packable<'a> {
    Floats(Stored<'a>),
    /// Pairs of bytes, each of which widens to a word of two 16-bit integers.
    Shorts(&'a [[i8; 2]]),
    /// Four bytes, which are a word.
    Bytes(&'a [[i8; 4]]),
    /// Rows of blocks, which widen to f32.
    Blocks(Rows<'a>),
}

impl<'a> From<Stored<'a>> for Packable<'a> {
    fn from(values: Stored<'a>) -> Packable<'a> {
        Packable::Floats(values)
    }
}

/// The nearest bf16, of two equally near the even one, without a branch.
#[inline(always)]
pub(crate) fn nearest(value: f32) -> bf16 {
    let bits = value.to_bits();
    let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // The payload of a NaN may be all ones, to which nothing can be added.
    bf16::from_bits(if value.is_nan() { 0x7fc0 } else { nearest as u16 })
}

/// Pairs of bf16 as words, if they lie as words do.
pub(crate) fn words(values: &[bf16]) -> Option<&[f32]> {
    bytemuck::try_cast_slice(values).ok()
}

/// A number that widens to f32, or a few that widen to a word.
pub(crate) trait Narrow: Copy + Send + Sync {
    /// The value as f32, or the word.
    fn widen(self) -> f32;

    /// All `values` widened: themselves if they are, else in the beginning of `room`.
    fn widen_all<'a>(values: &'a [Self], room: &'a mut [f32]) -> &'a [f32];
}

impl Narrow for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }

    #[inline(always)]
    fn widen_all<'a>(values: &'a [f32], _: &'a mut [f32]) -> &'a [f32] {
        values
    }
}

impl Narrow for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        // A bf16 is the upper half of an f32; `to_f32` would also quieten NaNs, at a price.
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn widen_all<'a>(values: &'a [bf16], room: &'a mut [f32]) -> &'a [f32] {
        let room = &mut room[..values.len()];
        room.iter_mut().zip(values).for_each(|(to, from)| *to = from.widen());
        room
    }
}

impl Narrow for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }

    #[inline(always)]
    fn widen_all<'a>(values: &'a [f16], room: &'a mut [f32]) -> &'a [f32] {
        let room = &mut room[..values.len()];
        values.convert_to_f32_slice(room);
        room
    }
}

impl Narrow for [i8; 2] {
    #[inline(always)]
    fn widen(self) -> f32 {
        let [low, high] = self.map(|byte| u32::from(i16::from(byte).cast_unsigned()));
        f32::from_bits(low | high << 16)
    }

    #[inline(always)]
    fn widen_all<'a>(values: &'a [[i8; 2]], room: &'a mut [f32]) -> &'a [f32] {
        let room = &mut room[..values.len()];
        room.iter_mut().zip(values).for_each(|(to, from)| *to = from.widen());
        room
    }
}

impl Narrow for [i8; 4] {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from_le_bytes(self.map(i8::cast_unsigned)))
    }

    #[inline(always)]
    fn widen_all<'a>(values: &'a [[i8; 4]], room: &'a mut [f32]) -> &'a [f32] {
        let room = &mut room[..values.len()];
        room.iter_mut().zip(values).for_each(|(to, from)| *to = from.widen());
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_the_nearest() {
        let ties = [0x3f80_8000, 0x3f81_8000, 0xbf80_8000, 0x3f80_8001, 0x3f80_7fff];
        let edges = [0, 0x8000_0000, 1, 0x7f7f_ffff, 0x7f80_0000, 0xff80_0000];
        let spread = (0..100_000_u32).map(|index| index.wrapping_mul(2_654_435_761));
        for bits in ties.into_iter().chain(edges).chain(spread) {
            let value = f32::from_bits(bits);
            match value.is_nan() {
                true => assert!(nearest(value).is_nan(), "{bits:x}"),
                false => assert_eq!(nearest(value), bf16::from_f32(value), "{bits:x}"),
            }
        }
        assert!(nearest(f32::from_bits(0x7fff_ffff)).is_nan());
    }
}
