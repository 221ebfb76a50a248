//! Weights in the type they are stored in, and how they widen to f32.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A weight in the type it is stored in.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
    F16(&'a [f16]),
}

/// A number that widens to f32.
pub(crate) trait Narrow: Copy + Send + Sync {
    /// The value as f32.
    fn widen(self) -> f32;

    /// All `values` as f32: themselves if they are, else in the beginning of `room`.
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
