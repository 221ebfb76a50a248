//! One tile's matrix product on the calling thread.

use std::ops::Range;

use crate::micro::{COLUMNS, Kernels, ROWS, Write, partial};
use crate::pack::Panels;

/// Rows of a tile on the left-hand side.
pub(super) const TILE_QUERIES: usize = 16 * ROWS;

/// `out (+)= left x panels[block]` for `rows` rows and the panels that cover `columns`.
///
/// Columns may be written up to the end of the last panel, rows only as far as they exist.
///
/// # Safety
/// `left` holds `rows` rows of that block's depth, its stride apart; `out` has `rows`
/// rows with room for whole panels.
#[inline(always)]
pub(super) unsafe fn multiply(
    (left, left_stride): (*const f32, usize),
    rows: usize,
    (panels, block, columns): (&Panels, usize, Range<usize>),
    (out, out_stride): (*mut f32, usize),
    write: Write,
) {
    let kernels = Kernels::best();
    for (index, panel) in (columns.start / COLUMNS..columns.end.div_ceil(COLUMNS)).enumerate() {
        let values = panels.at(block, panel);
        let (kernel, whole) = kernels.of(columns.end - panel * COLUMNS);
        for row in (0..rows).step_by(ROWS) {
            // SAFETY: rows are clamped to those that exist; tiles fit by the caller's promise.
            unsafe {
                let pointers =
                    std::array::from_fn(|r| left.add((row + r).min(rows - 1) * left_stride));
                let place = out.add(row * out_stride + index * COLUMNS);
                let depth = values.len() / COLUMNS;
                if row + ROWS <= rows {
                    kernel(depth, &pointers, values.as_ptr(), place, out_stride, write);
                } else {
                    let operands = (&pointers, values.as_ptr());
                    let size = (rows - row, whole);
                    partial(kernel, depth, operands, (place, out_stride), size, write);
                }
            }
        }
    }
}
