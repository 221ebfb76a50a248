//! The tile in plain Rust, which LLVM vectorises for the target's baseline.

use super::{COLUMNS, ROWS, Tile};

/// A tile of at most `WIDTH` columns of one panel.
///
/// # Safety
/// As [`super::Kernel`].
pub(super) unsafe fn tile<const WIDTH: usize>(tile: &Tile<'_>) {
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
        tile.put(0, &sums);
    }
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
