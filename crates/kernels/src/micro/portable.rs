//! The tiles in plain Rust, which LLVM vectorises for the target's baseline.

use super::{COLUMNS, ROWS, Sum, Tile};

/// Words are floats: a tile of at most `WIDTH` columns of one panel.
///
/// # Safety
/// As [`super::Kernel`].
pub(super) unsafe fn floats<const WIDTH: usize>(tile: &Tile<'_>) {
    let mut sums = [[0.0_f32; WIDTH]; ROWS];
    // SAFETY: every access stays within the extents promised by the caller.
    unsafe {
        for k in 0..tile.depth {
            for (sum, row) in sums.iter_mut().zip(tile.rows) {
                let value = *row.add(k);
                for (c, sum) in sum.iter_mut().enumerate() {
                    *sum = fused(value, *tile.panels.add(k * COLUMNS + c), *sum);
                }
            }
        }
        tile.put(&sums, Sum::Float);
    }
}

/// Words are pairs of 16-bit integers, sums are integers.
///
/// # Safety
/// As [`super::Kernel`].
pub(super) unsafe fn shorts<const WIDTH: usize>(tile: &Tile<'_>) {
    let mut sums = [[0_i32; WIDTH]; ROWS];
    // SAFETY: every access stays within the extents promised by the caller.
    unsafe {
        for k in 0..tile.depth {
            for (sum, row) in sums.iter_mut().zip(tile.rows) {
                let [low, high] = halves(*row.add(k));
                for (c, sum) in sum.iter_mut().enumerate() {
                    let right = halves(*tile.panels.add(k * COLUMNS + c));
                    let product = (low * right[0]).wrapping_add(high * right[1]);
                    *sum = sum.wrapping_add(product);
                }
            }
        }
        tile.put(&sums.map(|row| row.map(|sum| f32::from_bits(sum.cast_unsigned()))), Sum::Integer);
    }
}

/// The two integers of a word.
#[inline(always)]
fn halves(word: f32) -> [i32; 2] {
    let bits = word.to_bits().cast_signed();
    [bits << 16 >> 16, bits >> 16]
}

/// `a * b + c`, rounded once where the target has an instruction for it. A machine without one
/// would call a slow library function, so it rounds twice.
#[inline(always)]
fn fused(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, c)
    } else {
        a * b + c
    }
}
