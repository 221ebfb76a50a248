//! The forward pass over tiles: 96 queries against 256 keys at a time, softmax kept running.
//!
//! Key tiles start at key 0 and have a fixed size, so the order of every sum depends on the keys
//! alone. Scores live in base 2: `2^x` is cheaper than `e^x`.

use std::f32::consts::{LN_2, LOG2_E};
use std::ops::Range;

use rayon::prelude::*;

use super::exponential::exp2;
use super::operands::{Operands, pair_up};
use super::shape::{Extents, Mask};
use super::tile::{TILE_QUERIES, multiply};
use crate::gemm::{Shared, written};
use crate::micro::{COLUMNS, Write};
use crate::pack::{BLOCK, Panels, Right};
use crate::work::{Work, vectorised};

/// Keys of a tile.
pub(super) const TILE_KEYS: usize = BLOCK;

/// Attends and returns the output `[B, T, N, H]` and the log-sum-exp `[B, N, T]` of the scores.
pub(super) fn forward(
    extents: &Extents,
    operands: &Operands<'_>,
    mask: Option<&Mask<'_>>,
) -> (Vec<f32>, Vec<f32>) {
    let Extents { queries, width, .. } = *extents;
    let packed: Vec<(Panels, Panels)> = (0..extents.batch_heads())
        .into_par_iter()
        .map(|head| operands.pack(extents, head))
        .collect();

    let tiles = queries.div_ceil(TILE_QUERIES);
    let write = |[out, lse]: [Shared; 2]| {
        (0..extents.batch_heads() * tiles).into_par_iter().for_each_init(
            || Scratch::new(width),
            |scratch, task| {
                let (head, first) = (task / tiles, task % tiles * TILE_QUERIES);
                let rows = first..(first + TILE_QUERIES).min(queries);
                let tile = Tile { extents, operands, panels: &packed[head], mask, head, rows };
                vectorised(Attend { tile, scratch, out, lse });
            },
        );
    };
    // SAFETY: each tile writes its queries of its head, and the tiles are all of them.
    let [out, lse] =
        unsafe { written([extents.query_elements(), extents.batch_heads() * queries], write) };
    (out, lse)
}

/// What one worker needs for a tile, reused from tile to tile.
struct Scratch {
    queries: Vec<f32>,
    scores: Vec<f32>,
    /// Probabilities as words, where those are not the scores themselves.
    pairs: Vec<f32>,
    sums: Vec<f32>,
    /// The largest score of each row so far, in base 2.
    largest: [f32; TILE_QUERIES],
    /// The sum of `2^(score - largest)` of each row so far.
    total: [f32; TILE_QUERIES],
    /// What earlier sums of each row are to be multiplied with, since a larger score was found.
    shrink: [f32; TILE_QUERIES],
}

impl Scratch {
    fn new(width: usize) -> Scratch {
        Scratch {
            queries: vec![0.0; TILE_QUERIES * width],
            scores: vec![0.0; TILE_QUERIES * TILE_KEYS],
            pairs: vec![0.0; TILE_QUERIES * TILE_KEYS / 2],
            sums: vec![0.0; TILE_QUERIES * width.next_multiple_of(COLUMNS)],
            largest: [0.0; TILE_QUERIES],
            total: [0.0; TILE_QUERIES],
            shrink: [0.0; TILE_QUERIES],
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
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.tile.attend(self.scratch);
        // SAFETY: the rows of a head are written by one task only.
        unsafe { self.tile.finish(self.scratch, self.out, self.lse) };
    }
}

struct Tile<'a> {
    extents: &'a Extents,
    operands: &'a Operands<'a>,
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
        let (head, rows) = (self.head, self.rows.clone());
        self.operands.gather(self.extents, head, rows, &mut scratch.queries);
        let padded = width.next_multiple_of(COLUMNS);
        for (tile, first) in (0..keys).step_by(TILE_KEYS).enumerate() {
            let keys = first..(first + TILE_KEYS).min(keys);
            self.score(&scratch.queries, keys.clone(), &mut scratch.scores);
            self.soften(scratch, keys);
            let write = if tile == 0 { Write::Store } else { Write::Add };
            if write == Write::Add {
                let rows = scratch.sums.chunks_exact_mut(padded).zip(scratch.shrink);
                for (sums, shrink) in rows.filter(|(_, shrink)| *shrink != 1.0) {
                    sums.iter_mut().for_each(|sum| *sum *= shrink);
                }
            }
            let probabilities = match self.operands {
                Operands::F32(_) => (scratch.scores.as_ptr(), TILE_KEYS),
                Operands::Bf16(_) => (scratch.pairs.as_ptr(), TILE_KEYS / 2),
            };
            let right = (&self.panels.1, tile, 0..width);
            let out = (scratch.sums.as_mut_ptr(), padded);
            let kernels = self.operands.kernels();
            // SAFETY: the scores hold a value per key and row, the sums a whole padded row each.
            unsafe { multiply(kernels, probabilities, self.rows.len(), right, out, write) };
        }
    }

    /// Scores to probabilities relative to the largest score so far.
    #[inline(always)]
    fn soften(&self, scratch: &mut Scratch, keys: Range<usize>) {
        let Scratch { scores, pairs, largest, total, shrink, .. } = scratch;
        let mut references = [0.0; TILE_QUERIES];
        let whole = keys.len().next_multiple_of(COLUMNS);
        for (row, reference) in references.iter_mut().enumerate().take(self.rows.len()) {
            let scores = &mut scores[row * TILE_KEYS..][..whole];
            // Columns beyond the keys weigh nothing, and every loop is over whole groups.
            scores[keys.len()..].fill(f32::NEG_INFINITY);
            if let Some(factor) = self.operands.factor(self.extents) {
                scores[..keys.len()].iter_mut().for_each(|score| *score *= factor);
            }
            self.add_mask(row, keys.start, &mut scores[..keys.len()]);
            *reference = largest_of(scores);
        }
        let rows = largest.iter_mut().zip(shrink.iter_mut());
        for (reference, (largest, shrink)) in references.iter_mut().zip(rows) {
            let before = *largest;
            *largest = if *reference > before { *reference } else { before };
            // With every key masked so far there is nothing to subtract.
            *reference = if *largest == f32::NEG_INFINITY { 0.0 } else { *largest };
            *shrink = exp2(before - *reference);
        }
        for (row, reference) in references.into_iter().enumerate().take(self.rows.len()) {
            let sum = exponentials(&mut scores[row * TILE_KEYS..][..whole], reference);
            total[row] = total[row].mul_add(shrink[row], sum);
        }
        if let Operands::Bf16(_) = self.operands {
            let scores = scores.as_chunks::<TILE_KEYS>().0.iter();
            let pairs = pairs.as_chunks_mut::<{ TILE_KEYS / 2 }>().0;
            let rows = scores.zip(pairs).take(self.rows.len());
            rows.for_each(|(scores, pairs)| pair_up(scores, pairs));
        }
    }

    /// Scores of the gathered rows against some keys, without the mask.
    #[inline(always)]
    fn score(&self, queries: &[f32], keys: Range<usize>, scores: &mut [f32]) {
        let width = self.extents.width / self.operands.of_word();
        let kernels = self.operands.kernels();
        for (block, (offset, _)) in self.panels.0.blocks().iter().enumerate() {
            let write = if block == 0 { Write::Store } else { Write::Add };
            let left = (queries[*offset..].as_ptr(), width);
            let right = (&self.panels.0, block, keys.clone());
            // SAFETY: the queries hold the whole width of each row, `scores` a whole tile.
            unsafe {
                let out = (scores.as_mut_ptr(), TILE_KEYS);
                multiply(kernels, left, self.rows.len(), right, out, write);
            }
        }
    }

    #[inline(always)]
    fn add_mask(&self, row: usize, first: usize, scores: &mut [f32]) {
        if let Some(mask) = self.mask {
            let mask = &mask.row(self.head, self.rows.start + row)[first..];
            for (score, mask) in scores.iter_mut().zip(mask) {
                *score = mask.mul_add(LOG2_E, *score);
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
                let values = std::slice::from_raw_parts_mut(out.at(start + query * stride), width);
                values.iter_mut().zip(sums).for_each(|(value, sum)| *value = sum * inverse);
                *lse.at(self.head * queries + query) = (scratch.largest[row] + total.log2()) * LN_2;
            }
        }
    }
}

/// The largest of whole groups of scores; NaN is left for the sum to find.
#[inline(always)]
fn largest_of(scores: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; COLUMNS];
    for group in scores.as_chunks::<COLUMNS>().0 {
        for (lane, score) in lanes.iter_mut().zip(group) {
            *lane = if *score > *lane { *score } else { *lane };
        }
    }
    fold(lanes, |a, b| if b > a { b } else { a })
}

/// Replaces whole groups of scores by `2^(score - reference)` and returns their sum, added in a
/// fixed order.
#[inline(always)]
fn exponentials(scores: &mut [f32], reference: f32) -> f32 {
    let mut lanes = [0.0_f32; COLUMNS];
    for group in scores.as_chunks_mut::<COLUMNS>().0 {
        for (lane, score) in lanes.iter_mut().zip(group) {
            *score = exp2(*score - reference);
            *lane += *score;
        }
    }
    fold(lanes, |a, b| a + b)
}

/// All lanes combined, one half with the other again and again.
#[inline(always)]
fn fold(mut lanes: [f32; COLUMNS], combine: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = COLUMNS / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = combine(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
