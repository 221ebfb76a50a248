//! Right-hand sides packed into panels of sixteen columns, the form the micro-kernel reads.
//!
//! A matrix of `depth x columns` becomes, for each block of the depth, one panel per sixteen
//! columns; a panel holds its sixteen values of one depth index side by side. Columns beyond the
//! matrix are zero. Weights stored in bf16 or f16 are widened here and nowhere else.

use half::{bf16, f16};
use rayon::prelude::*;

use crate::micro::COLUMNS;
use crate::storage::Stored;

/// How much of the depth one panel covers: sixteen columns of it fill half of a first-level cache.
pub(crate) const BLOCK: usize = 256;

/// A number that widens to f32.
pub(crate) trait Narrow: Copy + Send + Sync {
    /// The value as f32.
    fn widen(self) -> f32;
}

impl Narrow for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}

impl Narrow for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        // A bf16 is the upper half of an f32; `to_f32` would also quieten NaNs, at a price.
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

impl Narrow for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self.to_f32()
    }
}

/// Where element (k, column) of the matrix to pack lies.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// `values[column * stride + k]`: rows of a weight `[out, in]` are columns of the product.
    ColumnsApart(usize),
    /// `values[k * stride + column]`: the matrix as it is written.
    RowsApart(usize),
}

/// A packed right-hand side.
pub(crate) struct Panels {
    values: Vec<f32>,
    blocks: Vec<(usize, usize)>,
    columns: usize,
}

/// The blocks `(start, depth)` of a depth.
pub(crate) fn blocks(depth: usize) -> Vec<(usize, usize)> {
    (0..depth).step_by(BLOCK).map(|start| (start, BLOCK.min(depth - start))).collect()
}

impl Panels {
    /// Packs a stored weight with all threads.
    pub(crate) fn stored(
        values: &Stored<'_>,
        order: Order,
        depth: usize,
        columns: usize,
    ) -> Panels {
        match values {
            Stored::F32(values) => Panels::parallel(values, order, depth, columns),
            Stored::Bf16(values) => Panels::parallel(values, order, depth, columns),
            Stored::F16(values) => Panels::parallel(values, order, depth, columns),
        }
    }

    /// Packs with all threads, for products that all threads share.
    pub(crate) fn parallel<T: Narrow>(
        values: &[T],
        order: Order,
        depth: usize,
        columns: usize,
    ) -> Panels {
        let mut panels = Panels::empty(blocks(depth), columns);
        panels.each_panel().into_par_iter().for_each(|(block, first, panel)| {
            pack(values, order, block, (first, columns), panel);
        });
        panels
    }

    /// Packs on this thread, for products that one task keeps to itself.
    pub(crate) fn local(values: &[f32], order: Order, depth: usize, columns: usize) -> Panels {
        Panels::blocked(values, order, blocks(depth), columns)
    }

    /// Packs on this thread with blocks of the caller's choice.
    pub(crate) fn blocked(
        values: &[f32],
        order: Order,
        blocks: Vec<(usize, usize)>,
        columns: usize,
    ) -> Panels {
        let mut panels = Panels::empty(blocks, columns);
        for (block, first, panel) in panels.each_panel() {
            pack(values, order, block, (first, columns), panel);
        }
        panels
    }

    /// Zeroed panels for blocks of the caller's choice.
    pub(crate) fn empty(blocks: Vec<(usize, usize)>, columns: usize) -> Panels {
        let depth: usize = blocks.iter().map(|block| block.1).sum();
        let padded = columns.next_multiple_of(COLUMNS);
        Panels { values: vec![0.0; depth * padded], blocks, columns }
    }

    /// Every panel with its block and its first column, to be filled.
    pub(crate) fn each_panel(&mut self) -> Vec<((usize, usize), usize, &mut [f32])> {
        let mut rest = self.values.as_mut_slice();
        let mut panels = Vec::new();
        for block in &self.blocks {
            for first in (0..self.columns).step_by(COLUMNS) {
                let (panel, others) = rest.split_at_mut(block.1 * COLUMNS);
                panels.push((*block, first, panel));
                rest = others;
            }
        }
        panels
    }

    /// The blocks `(start, depth)` in the order of their sums.
    pub(crate) fn blocks(&self) -> &[(usize, usize)] {
        &self.blocks
    }

    /// The columns of the matrix.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// The panel of block `block` that starts at column `panel * COLUMNS`.
    pub(crate) fn panel(&self, block: usize, panel: usize) -> &[f32] {
        let before: usize = self.blocks[..block].iter().map(|block| block.1).sum();
        let depth = self.blocks[block].1;
        let start = before * self.columns.next_multiple_of(COLUMNS) + panel * depth * COLUMNS;
        &self.values[start..start + depth * COLUMNS]
    }
}

/// Fills one panel: `depth` groups of sixteen columns starting at `first`.
fn pack<T: Narrow>(
    values: &[T],
    order: Order,
    (start, depth): (usize, usize),
    (first, columns): (usize, usize),
    panel: &mut [f32],
) {
    let wide = COLUMNS.min(columns - first);
    match order {
        Order::RowsApart(stride) => {
            for (k, group) in panel.chunks_exact_mut(COLUMNS).enumerate() {
                let row = &values[(start + k) * stride + first..][..wide];
                group.iter_mut().zip(row).for_each(|(to, from)| *to = from.widen());
            }
        }
        Order::ColumnsApart(stride) => {
            let column = |c: usize| &values[(first + c) * stride + start..][..depth];
            if wide == COLUMNS {
                transpose(std::array::from_fn(column), panel);
                return;
            }
            for c in 0..wide {
                for (k, from) in column(c).iter().enumerate() {
                    panel[k * COLUMNS + c] = from.widen();
                }
            }
        }
    }
}

/// Sixteen columns into groups of sixteen, eight depths at a time so that reads stay in lines.
#[inline(always)]
fn transpose<T: Narrow>(columns: [&[T]; COLUMNS], panel: &mut [f32]) {
    let depth = columns[0].len();
    for start in (0..depth).step_by(8) {
        let count = 8.min(depth - start);
        let chunk = &mut panel[start * COLUMNS..(start + count) * COLUMNS];
        for (c, column) in columns.iter().enumerate() {
            for (k, from) in column[start..start + count].iter().enumerate() {
                chunk[k * COLUMNS + c] = from.widen();
            }
        }
    }
}
