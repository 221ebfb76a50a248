//! Matrix products over row pointers and packed panels, with the epilogue fused in.
//!
//! The result is cut into blocks of rows and ranges of columns by shape alone; within a task the
//! depth is walked block by block in a fixed order, so no element's sum depends on the cut.

use std::ops::Range;

use rayon::prelude::*;

use crate::activation::Activation;
use crate::micro::{COLUMNS, ROWS, Write, kernel, partial};
use crate::pack::Panels;
use crate::work::{Work, vectorised};

/// Rows of one task: their left-hand values for one depth block stay in the second-level cache.
const TASK_ROWS: usize = 16 * ROWS;
/// Columns of one task at most.
const TASK_COLUMNS: usize = 128 * COLUMNS;

/// The left-hand side: rows that are found, not copied.
pub(crate) trait Left: Sync {
    /// Where the values of each of `rows` for the depth block number `block` begin.
    ///
    /// # Safety
    /// The implementor promises that each pointer is readable for the depth of that block.
    unsafe fn pointers(&self, rows: Range<usize>, block: usize, into: &mut [*const f32]);
}

/// A matrix whose rows lie `stride` floats apart, cut into depth blocks as the panels are.
pub(crate) struct Matrix<'a> {
    /// The values.
    pub(crate) values: &'a [f32],
    /// Distance between rows.
    pub(crate) stride: usize,
    /// Start of every depth block.
    pub(crate) blocks: &'a [(usize, usize)],
}

impl Left for Matrix<'_> {
    unsafe fn pointers(&self, rows: Range<usize>, block: usize, into: &mut [*const f32]) {
        let (start, depth) = self.blocks[block];
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
}

impl Epilogue<'_> {
    /// Nothing.
    pub(crate) const NONE: Epilogue<'static> =
        Epilogue { bias: None, activation: Activation::Identity };
}

/// A pointer that tasks share because they write disjoint parts.
#[derive(Clone, Copy)]
pub(crate) struct Shared(pub(crate) *mut f32);

// SAFETY: each task writes only the rows and columns that are its own.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// `left x panels`, `rows` rows of `panels.columns()` columns, with all threads.
pub(crate) fn product(
    left: &impl Left,
    rows: usize,
    panels: &Panels,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    let columns = panels.columns();
    let mut out: Vec<f32> = Vec::with_capacity(rows * columns);
    if panels.blocks().is_empty() {
        // An empty sum: no task would write the elements.
        out.resize(rows * columns, 0.0);
    }
    let place = Shared(out.as_mut_ptr());
    let tasks = tasks(rows, columns);
    let run = |(rows, columns): (Range<usize>, Range<usize>)| {
        let stride = panels.columns();
        vectorised(Task { left, panels, epilogue, place, stride, rows, columns });
    };
    match tasks.len() {
        1 => tasks.into_iter().for_each(run),
        _ => tasks.into_par_iter().for_each(run),
    }
    // SAFETY: the tasks cover every row and column, and a task stores each of its elements.
    unsafe { out.set_len(rows * columns) };
    out
}

/// The cut: rows first, columns too where there are few rows.
fn tasks(rows: usize, columns: usize) -> Vec<(Range<usize>, Range<usize>)> {
    let row_blocks = rows.div_ceil(TASK_ROWS).max(1);
    let wanted = 32_usize.div_ceil(row_blocks);
    let width = columns.div_ceil(wanted).next_multiple_of(COLUMNS).clamp(4 * COLUMNS, TASK_COLUMNS);
    (0..columns)
        .step_by(width)
        .flat_map(|column| {
            (0..rows).step_by(TASK_ROWS).map(move |row| {
                (row..(row + TASK_ROWS).min(rows), column..(column + width).min(columns))
            })
        })
        .collect()
}

struct Task<'a, L> {
    left: &'a L,
    panels: &'a Panels,
    epilogue: Epilogue<'a>,
    place: Shared,
    stride: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl<L: Left> Work for Task<'_, L> {
    #[inline(always)]
    fn run(self) {
        let (rows, columns) = (&self.rows, &self.columns);
        let mut pointers = [std::ptr::null(); TASK_ROWS];
        let last = self.panels.blocks().len().saturating_sub(1);
        for block in 0..self.panels.blocks().len() {
            // SAFETY: there is room for one pointer per row of a task.
            unsafe { self.left.pointers(rows.clone(), block, &mut pointers[..rows.len()]) };
            // Missing rows of the last tile repeat a row that exists and are never stored.
            let repeated = pointers[rows.len() - 1];
            pointers[rows.len()..].fill(repeated);
            let write = if block == 0 { Write::Store } else { Write::Add };
            for column in columns.clone().step_by(COLUMNS) {
                let panel = self.panels.panel(block, column / COLUMNS);
                let width = COLUMNS.min(columns.end - column);
                for (tile, pointers) in pointers.as_chunks::<ROWS>().0.iter().enumerate() {
                    let row = rows.start + tile * ROWS;
                    if rows.end <= row {
                        break;
                    }
                    let height = ROWS.min(rows.end - row);
                    self.tile(pointers, panel, (row, column), (height, width), write);
                    if block == last {
                        self.finish((row, column), (height, width));
                    }
                }
            }
        }
    }
}

impl<L: Left> Task<'_, L> {
    #[inline(always)]
    fn tile(
        &self,
        pointers: &[*const f32; ROWS],
        panel: &[f32],
        (row, column): (usize, usize),
        (height, width): (usize, usize),
        write: Write,
    ) {
        let depth = panel.len() / COLUMNS;
        // SAFETY: the pointers hold `depth` values by the contract of `Left`; the tile lies within
        // the rows and columns of this task, which no other task writes.
        unsafe {
            let out = self.place.0.add(row * self.stride + column);
            if height == ROWS && width == COLUMNS {
                kernel()(depth, pointers, panel.as_ptr(), out, self.stride, write);
            } else {
                let operands = (pointers, panel.as_ptr());
                partial(kernel(), depth, operands, (out, self.stride), (height, width), write);
            }
        }
    }

    #[inline(always)]
    fn finish(&self, (row, column): (usize, usize), (height, width): (usize, usize)) {
        let Epilogue { bias, activation } = self.epilogue;
        if bias.is_none() && activation == Activation::Identity {
            return;
        }
        for r in row..row + height {
            // SAFETY: the tile was stored by this task and belongs to it alone.
            let values = unsafe {
                std::slice::from_raw_parts_mut(self.place.0.add(r * self.stride + column), width)
            };
            if let Some(bias) = bias {
                let bias = &bias[column..column + width];
                values.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
            }
            activation.apply_slice(values);
        }
    }
}
