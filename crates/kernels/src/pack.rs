//! Right-hand sides packed into panels of sixteen columns, the form the micro-kernel reads.
//!
//! A matrix of `depth x columns` becomes, for each block of the depth, one panel per sixteen
//! columns; a panel holds its sixteen values of one depth index side by side. Columns beyond the
//! matrix are zero. Weights stored in bf16, f16 or blocks are widened here and nowhere else.

use std::mem::MaybeUninit;
use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use crate::blocks::Rows;
use crate::gemm::Shared;
use crate::micro::{COLUMNS, PANELS};
use crate::narrow::{Narrow, Packable, Stored};
use crate::transpose::{SIDE, transpose_columns};

/// How much of the depth one panel covers: sixteen columns of it fill half of a first-level cache.
pub(crate) const BLOCK: usize = 256;

/// A part `(start, depth)` of the depth, at most [`BLOCK`] deep.
pub(crate) type Block = (usize, usize);

/// The blocks of a depth.
pub(crate) fn blocks(depth: usize) -> Vec<Block> {
    (0..depth).step_by(BLOCK).map(|start| (start, BLOCK.min(depth - start))).collect()
}

/// Where element (k, column) of the matrix to pack lies.
#[derive(Clone, Copy)]
pub(crate) enum Order {
    /// `values[column * stride + k]`: rows of a weight `[out, in]` are columns of the product.
    ColumnsApart(usize),
    /// `values[k * stride + column]`: the matrix as it is written.
    RowsApart(usize),
}

/// A right-hand side of a product, given panel by panel.
pub(crate) trait Right: Sync {
    /// The blocks of the depth in the order of their sums.
    fn blocks(&self) -> &[Block];

    /// The columns of the matrix.
    fn columns(&self) -> usize;

    /// Some panels of block number `block`, one after the other, at most [`PANELS`]; panel number
    /// `p` starts at column `p * COLUMNS`. They may lie in `scratch`.
    fn panels<'a>(
        &'a self,
        block: usize,
        panels: Range<usize>,
        scratch: &'a mut Scratch,
    ) -> &'a [f32];
}

/// Room for the panels of a tile. Nothing in it is written before it is needed.
pub(crate) struct Scratch {
    panels: [MaybeUninit<f32>; PANELS * BLOCK * COLUMNS],
    widened: Widened,
}

impl Scratch {
    pub(crate) const NEW: Scratch =
        Scratch { panels: [MaybeUninit::uninit(); PANELS * BLOCK * COLUMNS], widened: WIDENED };
}

/// Room for half the columns of a panel, widened and not yet transposed.
type Widened = [[f32; BLOCK]; SIDE];
const WIDENED: Widened = [[0.0; BLOCK]; SIDE];
/// A column that is not there.
const ZEROS: &[f32; BLOCK] = &[0.0; BLOCK];

/// A right-hand side where it lies; a panel is packed whenever it is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Unpacked<'a> {
    /// The values in their stored type.
    pub(crate) values: Packable<'a>,
    /// How they lie.
    pub(crate) order: Order,
    /// The blocks of the depth.
    pub(crate) blocks: &'a [Block],
    /// The columns of the matrix.
    pub(crate) columns: usize,
}

impl Unpacked<'_> {
    /// Packs with all threads, for products that all threads share.
    pub(crate) fn pack(&self) -> Panels {
        let mut panels = Panels::unfilled(self.blocks.to_vec(), self.columns);
        let places = panels.places();
        places.into_par_iter().for_each_init(
            || WIDENED,
            // SAFETY: each place is a panel of its own.
            |widened, place| unsafe { self.fill(place, widened) },
        );
        // SAFETY: every panel was filled.
        unsafe { panels.filled() }
    }

    /// Packs on this thread, for products that one task keeps to itself.
    fn pack_here(&self) -> Panels {
        let mut panels = Panels::unfilled(self.blocks.to_vec(), self.columns);
        let mut widened = WIDENED;
        for place in panels.places() {
            // SAFETY: each place is a panel of its own.
            unsafe { self.fill(place, &mut widened) };
        }
        // SAFETY: every panel was filled.
        unsafe { panels.filled() }
    }

    /// Packs one panel.
    ///
    /// # Safety
    /// The place is writable for a whole panel and no one else's.
    #[inline(always)]
    unsafe fn fill(&self, place: Place, widened: &mut Widened) {
        // SAFETY: by the caller's promise.
        unsafe {
            match self.values {
                Packable::Floats(Stored::F32(values)) => self.fill_from(values, place, widened),
                Packable::Floats(Stored::Bf16(values)) => self.fill_from(values, place, widened),
                Packable::Floats(Stored::F16(values)) => self.fill_from(values, place, widened),
                Packable::Shorts(values) => self.fill_from(values, place, widened),
                Packable::Bytes(values) => self.fill_from(values, place, widened),
                Packable::Blocks(rows) => self.fill_from_blocks(rows, place, widened),
            }
        }
    }

    /// # Safety
    /// As [`Unpacked::fill`].
    #[inline(always)]
    unsafe fn fill_from<T: Narrow>(&self, values: &[T], place: Place, widened: &mut Widened) {
        let Place { block: (start, depth), first, panel } = place;
        let wide = COLUMNS.min(self.columns - first);
        // SAFETY: by the caller's promise.
        unsafe {
            match self.order {
                Order::RowsApart(stride) => {
                    for k in 0..depth {
                        let row = &values[(start + k) * stride + first..][..wide];
                        copy_group(row, panel.0.add(k * COLUMNS));
                    }
                }
                Order::ColumnsApart(stride) => {
                    for half in (0..COLUMNS).step_by(SIDE) {
                        let column = |c: usize| {
                            let column = first + half + c;
                            (column < self.columns)
                                .then(|| &values[column * stride + start..][..depth])
                        };
                        let columns = std::array::from_fn(column);
                        transpose_half(depth, columns, widened, panel.0.add(half));
                    }
                }
            }
        }
    }
}

impl Unpacked<'_> {
    /// Columns of the product are rows of blocks, whatever the order says: nothing else is packed of them.
    ///
    /// # Safety
    /// As [`Unpacked::fill`].
    #[inline(always)]
    unsafe fn fill_from_blocks(&self, rows: Rows<'_>, place: Place, widened: &mut Widened) {
        let Place { block: (start, depth), first, panel } = place;
        for half in (0..COLUMNS).step_by(SIDE) {
            let count = self.columns.saturating_sub(first + half).min(SIDE);
            for (column, room) in widened[..count].iter_mut().enumerate() {
                rows.widen(first + half + column, start, &mut room[..depth]);
            }
            let columns = widened.each_ref().map(|room| room.as_ptr());
            let pointers = std::array::from_fn(|column| match column < count {
                true => columns[column],
                false => ZEROS.as_ptr(),
            });
            // SAFETY: every pointer reads `depth` values; the panel by the caller's promise.
            unsafe { transpose_columns()(depth, &pointers, panel.0.add(half), COLUMNS) };
        }
    }
}

impl Right for Unpacked<'_> {
    fn blocks(&self) -> &[Block] {
        self.blocks
    }

    fn columns(&self) -> usize {
        self.columns
    }

    #[inline(always)]
    fn panels<'a>(
        &'a self,
        block: usize,
        panels: Range<usize>,
        scratch: &'a mut Scratch,
    ) -> &'a [f32] {
        let block = self.blocks[block];
        let values = &mut scratch.panels[..panels.len() * block.1 * COLUMNS];
        for (values, panel) in values.chunks_exact_mut(block.1 * COLUMNS).zip(panels) {
            let place = Shared(values.as_mut_ptr().cast());
            let place = Place { block, first: panel * COLUMNS, panel: place };
            // SAFETY: the chunk is as long as a panel.
            unsafe { self.fill(place, &mut scratch.widened) };
        }
        // SAFETY: every panel of the slice was filled.
        unsafe { values.assume_init_ref() }
    }
}

/// One group of a panel: as many values as there are, then zeros.
///
/// # Safety
/// `to` is writable for `COLUMNS` floats.
#[inline(always)]
unsafe fn copy_group<T: Narrow>(row: &[T], to: *mut f32) {
    let mut group = [0.0; COLUMNS];
    match row.first_chunk::<COLUMNS>() {
        Some(row) => group = row.map(T::widen),
        None => group.iter_mut().zip(row).for_each(|(to, from)| *to = from.widen()),
    }
    // SAFETY: by the caller's promise.
    unsafe { to.cast::<[f32; COLUMNS]>().write(group) };
}

/// Half a panel from the columns that exist; the others are zero.
///
/// # Safety
/// `to` is writable for `depth` groups of `SIDE` floats, `COLUMNS` apart; `depth <= BLOCK`.
#[inline(always)]
unsafe fn transpose_half<T: Narrow>(
    depth: usize,
    columns: [Option<&[T]>; SIDE],
    widened: &mut Widened,
    to: *mut f32,
) {
    let mut pointers = [ZEROS.as_ptr(); SIDE];
    for ((column, room), pointer) in columns.iter().zip(widened).zip(&mut pointers) {
        if let Some(column) = column {
            *pointer = T::widen_all(column, room).as_ptr();
        }
    }
    // SAFETY: every pointer reads `depth` values; `to` by the caller's promise.
    unsafe { transpose_columns()(depth, &pointers, to, COLUMNS) };
}

/// Where a panel is to be written.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    block: Block,
    first: usize,
    panel: Shared,
}

/// A packed right-hand side.
pub(crate) struct Panels {
    values: Vec<f32>,
    blocks: Vec<Block>,
    /// Where the panels of each block begin.
    starts: Vec<usize>,
    columns: usize,
}

impl Panels {
    /// Packs on this thread, for products that one task keeps to itself.
    pub(crate) fn local(values: &[f32], order: Order, blocks: &[Block], columns: usize) -> Panels {
        Unpacked { values: Stored::F32(values).into(), order, blocks, columns }.pack_here()
    }

    /// Packs pairs of rows, which lie `stride` apart: a word holds one column of two of them. Blocks
    /// count pairs; a pair that lacks its second of so many `rows` has a zero there.
    pub(crate) fn of_pairs(
        values: &[bf16],
        (stride, rows): (usize, usize),
        blocks: &[Block],
        columns: usize,
    ) -> Panels {
        let mut panels = Panels::unfilled(blocks.to_vec(), columns);
        for Place { block: (start, depth), first, panel } in panels.places() {
            let wide = COLUMNS.min(columns - first);
            for k in 0..depth {
                let row = 2 * (start + k);
                let group = |row: usize| {
                    let mut group = [bf16::ZERO; COLUMNS];
                    if row < rows {
                        group[..wide].copy_from_slice(&values[row * stride + first..][..wide]);
                    }
                    group
                };
                let (low, high) = (group(row), group(row + 1));
                let words: [f32; COLUMNS] = std::array::from_fn(|c| {
                    let bits = [low[c], high[c]].map(|half| u32::from(half.to_bits()));
                    f32::from_bits(bits[0] | bits[1] << 16)
                });
                // SAFETY: a place is a whole panel.
                unsafe { panel.0.add(k * COLUMNS).cast::<[f32; COLUMNS]>().write(words) };
            }
        }
        // SAFETY: every panel was filled.
        unsafe { panels.filled() }
    }

    /// Panels whose values are still to be written.
    fn unfilled(blocks: Vec<Block>, columns: usize) -> Panels {
        let padded = columns.next_multiple_of(COLUMNS);
        let mut length = 0;
        let starts = blocks.iter().map(|block| {
            length += block.1 * padded;
            length - block.1 * padded
        });
        let starts = starts.collect();
        Panels { values: Vec::with_capacity(length), blocks, starts, columns }
    }

    /// Every panel that is to be written.
    fn places(&mut self) -> Vec<Place> {
        let values = self.values.as_mut_ptr();
        let mut places = Vec::with_capacity(self.blocks.len() * self.columns.div_ceil(COLUMNS));
        for (block, start) in self.blocks.iter().zip(&self.starts) {
            for (panel, first) in (0..self.columns).step_by(COLUMNS).enumerate() {
                // SAFETY: the values have room for every panel of every block.
                let panel = unsafe { values.add(start + panel * block.1 * COLUMNS) };
                places.push(Place { block: *block, first, panel: Shared(panel) });
            }
        }
        places
    }

    /// # Safety
    /// All of [`Panels::places`] were written.
    unsafe fn filled(mut self) -> Panels {
        // SAFETY: the places make up the whole capacity asked for.
        unsafe {
            let depth: usize = self.blocks.iter().map(|block| block.1).sum();
            self.values.set_len(depth * self.columns.next_multiple_of(COLUMNS));
        }
        self
    }

    /// Some panels of block number `block`, one after the other.
    #[inline(always)]
    pub(crate) fn at(&self, block: usize, panels: Range<usize>) -> &[f32] {
        let length = self.blocks[block].1 * COLUMNS;
        &self.values[self.starts[block] + panels.start * length..][..panels.len() * length]
    }
}

impl Right for Panels {
    fn blocks(&self) -> &[Block] {
        &self.blocks
    }

    fn columns(&self) -> usize {
        self.columns
    }

    #[inline(always)]
    fn panels<'a>(&'a self, block: usize, panels: Range<usize>, _: &'a mut Scratch) -> &'a [f32] {
        self.at(block, panels)
    }
}
