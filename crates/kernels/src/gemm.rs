//! Matrix products over row pointers and packed panels, with the epilogue fused in.
//!
//! The result is cut into blocks of rows and ranges of columns; within a task the depth is walked block by
//! block in a fixed order, so no element's sum depends on the cut.

use std::ops::Range;

use rayon::prelude::*;

use crate::activation::Activation;
use crate::micro::{COLUMNS, Kernels, ROWS, Tile, Write};
use crate::pack::{Block, Right, Scratch, Unpacked};
use crate::work::{Work, vectorised};

/// Rows of one task: their left-hand values for one depth block stay in the second-level cache.
const TASK_ROWS: usize = 16 * ROWS;
/// Rows of a task that packs panels as it goes: as many as that cache holds with their part of the result, so
/// that a panel serves more of them.
const MOST_ROWS: usize = 3 * TASK_ROWS;
/// Up to so many rows, panels are packed as they are needed: writing all of them to memory and reading them
/// again costs more than packing them once for each block of rows.
const FEW_ROWS: usize = 2 * MOST_ROWS;
/// Columns of one task at most: its part of the result, which every block of the depth adds to, stays
/// in the second-level cache beside them.
const TASK_COLUMNS: usize = 32 * COLUMNS;

/// The left-hand side: rows that are found, not copied.
pub(crate) trait Left: Sync {
    /// Where the values of each of `rows` for a block of the depth begin.
    ///
    /// # Safety
    /// The implementor promises that each pointer is readable for the depth of that block.
    unsafe fn pointers(&self, rows: Range<usize>, block: Block, into: &mut [*const f32]);
}

/// A matrix whose rows lie `stride` floats apart.
pub(crate) struct Matrix<'a> {
    /// The values.
    pub(crate) values: &'a [f32],
    /// Distance between rows.
    pub(crate) stride: usize,
}

impl Left for Matrix<'_> {
    #[inline(always)]
    unsafe fn pointers(&self, rows: Range<usize>, (start, depth): Block, into: &mut [*const f32]) {
        for (row, pointer) in rows.zip(into) {
            *pointer = self.values[row * self.stride + start..][..depth].as_ptr();
        }
    }
}

/// What happens to a tile after its last depth block.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    /// Added to every row.
    pub(crate) bias: Option<&'a [f32]>,
    /// Then applied to every element.
    pub(crate) activation: Activation,
    /// Then added, `[rows, columns]`.
    pub(crate) residual: Option<&'a [f32]>,
    /// What makes floats of sums that are integers, before all of this.
    pub(crate) scales: Option<Scales<'a>>,
}

/// The sum of row `r` and column `c` stands for `(sum - offset[c]) * rows[r] * columns[c]`.
#[derive(Clone, Copy)]
pub(crate) struct Scales<'a> {
    pub(crate) rows: &'a [f32],
    pub(crate) columns: &'a [f32],
    pub(crate) offsets: &'a [i32],
}

impl Epilogue<'_> {
    /// Nothing.
    pub(crate) const NONE: Epilogue<'static> =
        Epilogue { bias: None, activation: Activation::Identity, residual: None, scales: None };

    fn is_none(&self) -> bool {
        let Epilogue { bias, activation, residual, scales } = self;
        let identity = *activation == Activation::Identity;
        identity && bias.is_none() && residual.is_none() && scales.is_none()
    }
}

impl Scales<'_> {
    /// Integers to floats, for some columns of a row.
    #[inline(always)]
    fn apply(&self, row: usize, first: usize, values: &mut [f32]) {
        let scale = self.rows[row];
        let columns = &self.columns[first..][..values.len()];
        let offsets = &self.offsets[first..][..values.len()];
        for ((value, column), offset) in values.iter_mut().zip(columns).zip(offsets) {
            let sum = value.to_bits().cast_signed().wrapping_sub(*offset);
            *value = sum as f32 * (scale * column);
        }
    }
}

/// A pointer that tasks share because they write disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) *mut f32);

impl Shared {
    /// The place so many floats on.
    ///
    /// # Safety
    /// It lies within what is shared.
    #[inline(always)]
    pub(crate) unsafe fn at(self, offset: usize) -> *mut f32 {
        // SAFETY: by the caller's promise.
        unsafe { self.0.add(offset) }
    }
}

// SAFETY: each task writes only the rows and columns that are its own.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// Vectors of the given lengths, written by `write` and not filled before.
///
/// # Safety
/// `write` writes every float of every vector.
pub(crate) unsafe fn written<const N: usize>(
    lengths: [usize; N],
    write: impl FnOnce([Shared; N]),
) -> [Vec<f32>; N] {
    let mut vectors = lengths.map(Vec::with_capacity);
    write(vectors.each_mut().map(|vector| Shared(vector.as_mut_ptr())));
    for (vector, length) in vectors.iter_mut().zip(lengths) {
        // SAFETY: by the caller's promise.
        unsafe { vector.set_len(length) };
    }
    vectors
}

/// `left x right`, `rows` rows of `right.columns` columns, with all threads.
pub(crate) fn product(
    left: &impl Left,
    rows: usize,
    right: &Unpacked<'_>,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    product_by(Kernels::in_use(), left, rows, right, epilogue)
}

/// [`product`] of whatever words these kernels multiply.
pub(crate) fn product_by(
    kernels: Kernels,
    left: &impl Left,
    rows: usize,
    right: &Unpacked<'_>,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    if rows <= FEW_ROWS {
        // A panel is packed where it is used and never written to memory.
        let blocks = rows.div_ceil(MOST_ROWS).max(1);
        let height = rows.div_ceil(blocks).next_multiple_of(ROWS);
        return in_tasks(kernels, left, (rows, height), right, epilogue);
    }
    packed_product_by(kernels, left, rows, &right.pack(), epilogue)
}

/// [`product`] with a right-hand side that is packed already.
pub(crate) fn packed_product(
    left: &impl Left,
    rows: usize,
    right: &impl Right,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    packed_product_by(Kernels::in_use(), left, rows, right, epilogue)
}

/// [`product_by`] with a right-hand side that is packed already.
pub(crate) fn packed_product_by(
    kernels: Kernels,
    left: &impl Left,
    rows: usize,
    right: &impl Right,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    in_tasks(kernels, left, (rows, TASK_ROWS), right, epilogue)
}

/// A product in tasks of at most `height` rows.
fn in_tasks(
    kernels: Kernels,
    left: &impl Left,
    (rows, height): (usize, usize),
    right: &impl Right,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    let tasks = tasks((rows, height), right.columns());
    let run = |place: Shared, (rows, columns): (Range<usize>, Range<usize>)| {
        vectorised(Task { left, right, epilogue, place, kernels, rows, columns });
    };
    let write = |[place]: [Shared; 1]| match tasks.len() {
        1 => tasks.into_iter().for_each(|task| run(place, task)),
        _ => tasks.into_par_iter().for_each(|task| run(place, task)),
    };
    // SAFETY: the tasks cover every row and column, and a task stores each of its elements.
    let [out] = unsafe { written([rows * right.columns()], write) };
    out
}

/// The cut: rows first, columns too where there are few rows, so that every thread finds several tasks. One
/// thread alone has tasks as wide as can be.
fn tasks((rows, height): (usize, usize), columns: usize) -> Vec<(Range<usize>, Range<usize>)> {
    let row_blocks = rows.div_ceil(height.max(1)).max(1);
    let wanted = match rayon::current_num_threads() {
        1 => 1,
        threads => (16 * threads).div_ceil(row_blocks),
    };
    let width = columns.div_ceil(wanted).next_multiple_of(COLUMNS).clamp(4 * COLUMNS, TASK_COLUMNS);
    (0..columns)
        .step_by(width)
        .flat_map(|column| {
            (0..rows).step_by(height.max(1)).map(move |row| {
                (row..(row + height).min(rows), column..(column + width).min(columns))
            })
        })
        .collect()
}

struct Task<'a, L, R> {
    left: &'a L,
    right: &'a R,
    epilogue: Epilogue<'a>,
    place: Shared,
    kernels: Kernels,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl<L: Left, R: Right> Work for Task<'_, L, R> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (rows, columns) = (&self.rows, &self.columns);
        let mut pointers = [std::ptr::null(); MOST_ROWS];
        let mut scratch = Scratch::NEW;
        let blocks = self.right.blocks();
        if blocks.is_empty() {
            // An empty sum.
            for row in rows.clone() {
                let first = row * self.right.columns() + columns.start;
                // SAFETY: these columns of this row belong to this task.
                unsafe { self.place.at(first).write_bytes(0, columns.len()) };
            }
            return self.finish((rows.start, columns.start), (rows.len(), columns.len()));
        }
        for (block, extent) in blocks.iter().enumerate() {
            // SAFETY: there is room for one pointer per row of a task.
            unsafe { self.left.pointers(rows.clone(), *extent, &mut pointers[..rows.len()]) };
            // Missing rows of the last tile repeat a row that exists and are never stored.
            let repeated = pointers[rows.len() - 1];
            let tiled = rows.len().next_multiple_of(ROWS);
            pointers[rows.len()..tiled].fill(repeated);
            let write = if block == 0 { Write::Store } else { Write::Add };
            let panels = columns.start / COLUMNS..columns.end.div_ceil(COLUMNS);
            for group in self.kernels.groups(panels) {
                let column = group.start * COLUMNS;
                let width = columns.end.min(group.end * COLUMNS) - column;
                let panels = (self.right.panels(block, group, &mut scratch), extent.1);
                for (tile, pointers) in pointers[..tiled].as_chunks::<ROWS>().0.iter().enumerate() {
                    let row = rows.start + tile * ROWS;
                    let height = ROWS.min(rows.end - row);
                    self.tile(pointers, panels, (row, column), (height, width), write);
                    if block + 1 == blocks.len() {
                        self.finish((row, column), (height, width));
                    }
                }
            }
        }
    }
}

impl<L: Left, R: Right> Task<'_, L, R> {
    #[inline(always)]
    fn tile(
        &self,
        pointers: &[*const f32; ROWS],
        (panels, depth): (&[f32], usize),
        (row, column): (usize, usize),
        (height, width): (usize, usize),
        write: Write,
    ) {
        let stride = self.right.columns();
        // SAFETY: the pointers hold `depth` values by the contract of `Left`; the tile lies within
        // the rows and columns of this task, which no other task writes.
        unsafe {
            self.kernels.compute(&Tile {
                depth,
                rows: pointers,
                panels: panels.as_ptr(),
                apart: depth * COLUMNS,
                out: self.place.at(row * stride + column),
                stride,
                height,
                width,
                write,
            });
        }
    }

    #[inline(always)]
    fn finish(&self, (row, column): (usize, usize), (height, width): (usize, usize)) {
        let Epilogue { bias, activation, residual, scales } = self.epilogue;
        if self.epilogue.is_none() {
            return;
        }
        let stride = self.right.columns();
        for r in row..row + height {
            // SAFETY: the tile was stored by this task and belongs to it alone.
            let values = unsafe {
                std::slice::from_raw_parts_mut(self.place.at(r * stride + column), width)
            };
            if let Some(scales) = scales {
                scales.apply(r, column, values);
            }
            if let Some(bias) = bias {
                let bias = &bias[column..column + width];
                values.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
            }
            activation.apply_slice(values);
            if let Some(residual) = residual {
                let residual = &residual[r * stride + column..][..width];
                values.iter_mut().zip(residual).for_each(|(value, residual)| *value += residual);
            }
        }
    }
}
