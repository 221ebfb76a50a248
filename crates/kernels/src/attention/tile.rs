//! One tile's matrix product on the calling thread.

use std::ops::Range;

use crate::micro::{COLUMNS, HALF, Kernels, ROWS, Tile, Write};
use crate::pack::{Panels, Right};

/// Rows of a tile on the left-hand side.
pub(super) const TILE_QUERIES: usize = 16 * ROWS;

/// `out (+)= left x panels[block]` for `rows` rows and the panels that cover `columns`, by `kernels`.
///
/// Columns may be written up to the end of the last panel, rows only as far as they exist.
///
/// # Safety
/// `left` holds `rows` rows of that block's depth, its stride apart; `out` has `rows`
/// rows with room for whole panels.
#[inline(always)]
pub(super) unsafe fn multiply(
    kernels: Kernels,
    (left, left_stride): (*const f32, usize),
    rows: usize,
    (panels, block, columns): (&Panels, usize, Range<usize>),
    (out, out_stride): (*mut f32, usize),
    write: Write,
) {
    let depth = panels.blocks()[block].1;
    let first = columns.start / COLUMNS;
    // There is room for whole panels, and whole halves of them are quicker to write.
    let end = columns.end.next_multiple_of(HALF);
    for group in kernels.groups(first..columns.end.div_ceil(COLUMNS)) {
        let values = panels.at(block, group.clone()).as_ptr();
        let width = end.min(group.end * COLUMNS) - group.start * COLUMNS;
        for row in (0..rows).step_by(ROWS) {
            // SAFETY: rows are clamped to those that exist; tiles fit by the caller's promise.
            unsafe {
                let pointers =
                    std::array::from_fn(|r| left.add((row + r).min(rows - 1) * left_stride));
                kernels.compute(&Tile {
                    depth,
                    rows: &pointers,
                    panels: values,
                    apart: depth * COLUMNS,
                    out: out.add(row * out_stride + (group.start - first) * COLUMNS),
                    stride: out_stride,
                    height: ROWS.min(rows - row),
                    width,
                    write,
                });
            }
        }
    }
}
