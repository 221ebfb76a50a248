//! The forward pass over tiles: 96 queries against 256 keys at a time, softmax kept running.
//!
//! Key tiles start at key 0 and have a fixed size, so the order of every sum depends on the keys
//! alone. Scores live in base 2: `2^x` is cheaper than `e^x`.

use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use rayon::prelude::*;

use super::exponential::exp2;
use super::shape::{Extents, Mask};
use super::tile::{TILE_QUERIES, multiply};
use crate::gemm::Shared;

use crate::micro::{COLUMNS, Write};
use crate::pack::{BLOCK, Order, Panels};
use crate::work::{Work, vectorised};

/// Keys of a tile.
pub(super) const TILE_KEYS: usize = BLOCK;

/// Attends and returns the output `[B, T, N, H]` and the log-sum-exp `[B, N, T]` of the scores.
pub(super) fn forward(
    extents: &Extents,
    q: &[f32],
    [k, v]: [&[f32]; 2],
    mask: Option<&Mask<'_>>,
) -> (Vec<f32>, Vec<f32>) {
    let Extents { queries, keys, width, .. } = *extents;
    let stride = extents.token_stride();
    let packed: Vec<(Panels, Panels)> = (0..extents.batch_heads())
        .into_par_iter()
        .map(|head| {
            let start = extents.key_start(head);
            let k = Panels::local(&k[start..], Order::ColumnsApart(stride), width, keys);
            let v = Panels::local(&v[start..], Order::RowsApart(stride), keys, width);
            (k, v)
        })
        .collect();

    let mut out = vec![0.0; extents.query_elements()];
    let mut lse = vec![0.0; extents.batch_heads() * queries];
    let (out_place, lse_place) = (Shared(out.as_mut_ptr()), Shared(lse.as_mut_ptr()));
    let tiles = queries.div_ceil(TILE_QUERIES);
    (0..extents.batch_heads() * tiles).into_par_iter().for_each_init(
        || Scratch::new(width),
        |scratch, task| {
            let (head, first) = (task / tiles, task % tiles * TILE_QUERIES);
            let rows = first..(first + TILE_QUERIES).min(queries);
            let tile = Tile { extents, q, panels: &packed[head], mask, head, rows };
            vectorised(Attend { tile, scratch, out: out_place, lse: lse_place });
        },
    );
    (out, lse)
}

/// What one worker needs for a tile, reused from tile to tile.
struct Scratch {
    scores: Vec<f32>,
    sums: Vec<f32>,
    largest: [f32; TILE_QUERIES],
    total: [f32; TILE_QUERIES],
}

impl Scratch {
    fn new(width: usize) -> Scratch {
        Scratch {
            scores: vec![0.0; TILE_QUERIES * TILE_KEYS],
            sums: vec![0.0; TILE_QUERIES * width.next_multiple_of(COLUMNS)],
            largest: [0.0; TILE_QUERIES],
            total: [0.0; TILE_QUERIES],
        }
    }
}

struct Attend<'a> {
    tile: Tile<'a>,
    scratch: &'a mut Scratch,
    out: Shared,
    lse: Shared,
}

impl Work for Attend<'_> {
    #[inline(always)]
    fn run(self) {
        self.tile.attend(self.scratch);
        // SAFETY: the rows of a head are written by one task only.
        unsafe { self.tile.finish(self.scratch, self.out, self.lse) };
    }
}

struct Tile<'a> {
    extents: &'a Extents,
    q: &'a [f32],
    panels: &'a (Panels, Panels),
    mask: Option<&'a Mask<'a>>,
    head: usize,
    rows: Range<usize>,
}

impl Tile<'_> {
    #[inline(always)]
    fn attend(&self, scratch: &mut Scratch) {
        let Extents { keys, width, .. } = *self.extents;
        scratch.largest.fill(f32::NEG_INFINITY);
        scratch.total.fill(0.0);
        scratch.sums.fill(0.0);
        let padded = width.next_multiple_of(COLUMNS);
        for (tile, first) in (0..keys).step_by(TILE_KEYS).enumerate() {
            let count = TILE_KEYS.min(keys - first);
            self.score(first, count, &mut scratch.scores);
            for row in 0..self.rows.len() {
                let scores = &mut scratch.scores[row * TILE_KEYS..][..count];
                self.scale(row, first, scores);
                let largest = running_max(scratch.largest[row], scores);
                // With every key masked so far there is nothing to subtract.
                let reference = if largest == f32::NEG_INFINITY { 0.0 } else { largest };
                let shrink = exp2(scratch.largest[row] - reference);
                let total = exponentials(scores, reference);
                scratch.total[row] = scratch.total[row].mul_add(shrink, total);
                scratch.largest[row] = largest;
                if shrink != 1.0 {
                    let sums = &mut scratch.sums[row * padded..][..padded];
                    sums.iter_mut().for_each(|sum| *sum *= shrink);
                }
            }
            let probabilities = (scratch.scores.as_ptr(), TILE_KEYS);
            let out = (scratch.sums.as_mut_ptr(), padded);
            // SAFETY: the scores hold `count` values per row, the sums a whole padded row each.
            unsafe {
                let rows = self.rows.len();
                multiply(probabilities, rows, (&self.panels.1, tile, 0..width), out, Write::Add);
            }
        }
    }

    /// Raw scores of the rows against `count` keys from `first` on.
    #[inline(always)]
    fn score(&self, first: usize, count: usize, scores: &mut [f32]) {
        let stride = self.extents.token_stride();
        let start = self.extents.query_start(self.head) + self.rows.start * stride;
        for (block, (offset, depth)) in self.panels.0.blocks().iter().enumerate() {
            let write = if block == 0 { Write::Store } else { Write::Add };
            let left = &self.q[start + offset..];
            debug_assert!((self.rows.len() - 1) * stride + depth <= left.len());
            // SAFETY: `left` holds `depth` values for each row, `scores` a whole tile.
            unsafe {
                multiply(
                    (left.as_ptr(), stride),
                    self.rows.len(),
                    (&self.panels.0, block, first..first + count),
                    (scores.as_mut_ptr(), TILE_KEYS),
                    write,
                );
            }
        }
    }

    /// Scales to base 2 and adds the mask.
    #[inline(always)]
    fn scale(&self, row: usize, first: usize, scores: &mut [f32]) {
        let scale = self.extents.scale * LOG2_E;
        match self.mask {
            None => scores.iter_mut().for_each(|score| *score *= scale),
            Some(mask) => {
                let mask = &mask.row(self.head, self.rows.start + row)[first..];
                for (score, mask) in scores.iter_mut().zip(mask) {
                    *score = score.mul_add(scale, mask * LOG2_E);
                }
            }
        }
    }

    /// Divides by the totals and writes the rows out.
    ///
    /// # Safety
    /// `out` and `lse` are the whole results, and no one else writes this tile's rows.
    #[inline(always)]
    unsafe fn finish(&self, scratch: &Scratch, out: Shared, lse: Shared) {
        let Extents { queries, width, .. } = *self.extents;
        let padded = width.next_multiple_of(COLUMNS);
        let stride = self.extents.token_stride();
        let start = self.extents.query_start(self.head);
        for (row, query) in self.rows.clone().enumerate() {
            let total = scratch.total[row];
            // A query whose keys are all masked attends to nothing.
            let inverse = if total == 0.0 { 0.0 } else { 1.0 / total };
            let sums = &scratch.sums[row * padded..][..width];
            // SAFETY: the query's values lie within `out`, and belong to this task.
            unsafe {
                let values =
                    std::slice::from_raw_parts_mut(out.0.add(start + query * stride), width);
                values.iter_mut().zip(sums).for_each(|(value, sum)| *value = sum * inverse);
                *lse.0.add(self.head * queries + query) =
                    (scratch.largest[row] + total.log2()) * LN_2;
            }
        }
    }
}

/// The largest of `values` and `start`; NaN is left for the sum to find.
#[inline(always)]
fn running_max(start: f32, values: &[f32]) -> f32 {
    let mut lanes = [start; COLUMNS];
    let (groups, rest) = values.as_chunks::<COLUMNS>();
    for group in groups {
        for (lane, value) in lanes.iter_mut().zip(group) {
            *lane = if *value > *lane { *value } else { *lane };
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane = if *value > *lane { *value } else { *lane };
    }
    lanes.into_iter().fold(start, |a, b| if b > a { b } else { a })
}

/// Replaces scores by `2^(score - reference)` and returns their sum, added in a fixed order.
#[inline(always)]
fn exponentials(scores: &mut [f32], reference: f32) -> f32 {
    let mut lanes = [0.0_f32; COLUMNS];
    let (groups, rest) = scores.as_chunks_mut::<COLUMNS>();
    for group in groups {
        for (lane, score) in lanes.iter_mut().zip(group) {
            *score = exp2(*score - reference);
            *lane += *score;
        }
    }
    for (lane, score) in lanes.iter_mut().zip(rest) {
        *score = exp2(*score - reference);
        *lane += *score;
    }
    let mut width = COLUMNS / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] += lanes[lane + width];
        }
        width /= 2;
    }
    lanes[0]
}
