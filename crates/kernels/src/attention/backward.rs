//! The backward pass, one head per task: 96 keys against 256 queries at a time.
//!
//! Scores are recomputed transposed (keys as rows), so that their products with the queries' side
//! need no copy; only the one product with the keys' side wants its left-hand transposed.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use rayon::prelude::*;

use super::exponential::exp2;
use super::shape::{Extents, Mask};
use super::tile::{TILE_QUERIES, multiply};
use crate::gemm::{Shared, written};
use crate::micro::{COLUMNS, Kernels, Write};
use crate::pack::{BLOCK, Block, Order, Panels, Right, blocks};
use crate::transpose::{SIDE, transpose_columns};
use crate::work::{Work, vectorised};

/// Keys of a tile, here the rows of the transposed scores.
const TILE_KEYS: usize = TILE_QUERIES;
/// Queries of a tile, here its columns.
const QUERIES: usize = BLOCK;

/// What the forward pass left, and the gradient that came back.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) q: &'a [f32],
    pub(super) k: &'a [f32],
    pub(super) v: &'a [f32],
    pub(super) mask: Option<&'a Mask<'a>>,
    /// Log-sum-exp of every query's scores, `[B, N, T]`; it may cover more keys than `k`.
    pub(super) lse: &'a [f32],
    /// Sum over the width of output times its gradient, `[B, N, T]`.
    pub(super) delta: &'a [f32],
    pub(super) gradient: &'a [f32],
}

/// Gradients of `q`, `k` and `v`.
pub(super) fn backward(extents: &Extents, given: Given<'_>) -> [Vec<f32>; 3] {
    let (queries, keys) = (extents.query_elements(), extents.key_elements());
    let write = |places: [Shared; 3]| {
        (0..extents.batch_heads()).into_par_iter().for_each_init(
            || Scratch::new(extents),
            |scratch, head| {
                let head = Head::new(extents, given, head);
                vectorised(Differentiate { head, scratch, places });
            },
        );
    };
    // SAFETY: each head writes its own queries, keys and values, and the heads are all of them.
    unsafe { written([queries, keys, keys], write) }
}

/// What one worker needs for a head, reused from head to head.
struct Scratch {
    keys: Vec<f32>,
    values: Vec<f32>,
    probabilities: Vec<f32>,
    slopes: Vec<f32>,
    transposed: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

impl Scratch {
    fn new(extents: &Extents) -> Scratch {
        let padded = extents.width.next_multiple_of(COLUMNS);
        Scratch {
            keys: vec![0.0; TILE_KEYS * extents.width],
            values: vec![0.0; TILE_KEYS * extents.width],
            probabilities: vec![0.0; TILE_KEYS * QUERIES],
            slopes: vec![0.0; TILE_KEYS * QUERIES],
            transposed: vec![0.0; QUERIES * TILE_KEYS],
            dq: vec![0.0; extents.queries * padded],
            dk: vec![0.0; TILE_KEYS * padded],
            dv: vec![0.0; TILE_KEYS * padded],
        }
    }
}

struct Differentiate<'a> {
    head: Head<'a>,
    scratch: &'a mut Scratch,
    places: [Shared; 3],
}

impl Work for Differentiate<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        // SAFETY: each head writes its own part of the gradients.
        unsafe { self.head.run(self.scratch, self.places) };
    }
}

/// One head with its right-hand sides packed.
struct Head<'a> {
    extents: &'a Extents,
    given: Given<'a>,
    head: usize,
    q_as_columns: Panels,
    gradient_as_columns: Panels,
    q_as_rows: Panels,
    gradient_as_rows: Panels,
    k_as_rows: Panels,
}

impl<'a> Head<'a> {
    fn new(extents: &'a Extents, given: Given<'a>, head: usize) -> Head<'a> {
        let Extents { queries, keys, width, .. } = *extents;
        let stride = extents.token_stride();
        let start = extents.query_start(head);
        let (q, gradient) = (&given.q[start..], &given.gradient[start..]);
        let k = &given.k[extents.key_start(head)..];
        let (apart, together) = (Order::ColumnsApart(stride), Order::RowsApart(stride));
        let (width_blocks, query_blocks) = (blocks(width), blocks(queries));
        let key_blocks: Vec<Block> = (0..keys)
            .step_by(TILE_KEYS)
            .map(|first| (first, TILE_KEYS.min(keys - first)))
            .collect();
        Head {
            extents,
            given,
            head,
            q_as_columns: Panels::local(q, apart, &width_blocks, queries),
            gradient_as_columns: Panels::local(gradient, apart, &width_blocks, queries),
            q_as_rows: Panels::local(q, together, &query_blocks, width),
            gradient_as_rows: Panels::local(gradient, together, &query_blocks, width),
            k_as_rows: Panels::local(k, together, &key_blocks, width),
        }
    }

    /// # Safety
    /// `places` are the whole gradients, and no one else writes this head's part.
    #[inline(always)]
    unsafe fn run(&self, scratch: &mut Scratch, [dq, dk, dv]: [Shared; 3]) {
        let Extents { queries, keys, width, scale, .. } = *self.extents;
        let stride = self.extents.token_stride();
        scratch.dq.fill(0.0);
        for (tile, first) in (0..keys).step_by(TILE_KEYS).enumerate() {
            let count = TILE_KEYS.min(keys - first);
            scratch.dk.fill(0.0);
            scratch.dv.fill(0.0);
            self.gather(self.given.k, first..first + count, scale * LOG2_E, &mut scratch.keys);
            self.gather(self.given.v, first..first + count, 1.0, &mut scratch.values);
            for block in 0..queries.div_ceil(QUERIES) {
                self.tile(scratch, (tile, first, count), block);
            }
            let start = self.extents.key_start(self.head) + first * stride;
            // SAFETY: these keys of this head belong to this task.
            unsafe {
                copy_out((&scratch.dk, scale), (dk.at(start), stride), (count, width));
                copy_out((&scratch.dv, 1.0), (dv.at(start), stride), (count, width));
            }
        }
        let start = self.extents.query_start(self.head);
        // SAFETY: the queries of this head belong to this task.
        unsafe { copy_out((&scratch.dq, scale), (dq.at(start), stride), (queries, width)) };
    }

    /// Adds what one tile of keys and one block of queries owe to each other.
    #[inline(always)]
    fn tile(
        &self,
        scratch: &mut Scratch,
        (tile, first, count): (usize, usize, usize),
        block: usize,
    ) {
        let Extents { queries, width, .. } = *self.extents;
        let padded = width.next_multiple_of(COLUMNS);
        let start = block * QUERIES;
        let wide = QUERIES.min(queries - start);
        let Scratch { keys, values, probabilities, slopes, .. } = scratch;
        let columns = start..start + wide;
        self.scores(keys, count, (&self.q_as_columns, columns.clone()), probabilities);
        self.scores(values, count, (&self.gradient_as_columns, columns.clone()), slopes);
        self.differentiate(scratch, (first, count), columns);
        let kernels = Kernels::in_use();
        // SAFETY: the tiles have `count` rows of `wide` values, the sums whole padded rows.
        unsafe {
            let probabilities = (scratch.probabilities.as_ptr(), QUERIES);
            let right = (&self.gradient_as_rows, block, 0..width);
            let out = (scratch.dv.as_mut_ptr(), padded);
            multiply(kernels, probabilities, count, right, out, Write::Add);
            let slopes = (scratch.slopes.as_ptr(), QUERIES);
            let right = (&self.q_as_rows, block, 0..width);
            let out = (scratch.dk.as_mut_ptr(), padded);
            multiply(kernels, slopes, count, right, out, Write::Add);
            transpose_slopes(&scratch.slopes, (count, wide), &mut scratch.transposed);
            let transposed = (scratch.transposed.as_ptr(), TILE_KEYS);
            let right = (&self.k_as_rows, tile, 0..width);
            let place = scratch.dq.as_mut_ptr().add(start * padded);
            multiply(kernels, transposed, wide, right, (place, padded), Write::Add);
        }
    }

    /// Copies some keys (or values) of this head side by side, times `factor`.
    #[inline(always)]
    fn gather(&self, from: &[f32], keys: Range<usize>, factor: f32, to: &mut [f32]) {
        let Extents { width, .. } = *self.extents;
        let start = self.extents.key_start(self.head);
        for (to, key) in to.chunks_exact_mut(width).zip(keys) {
            let from = &from[start + key * self.extents.token_stride()..][..width];
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from * factor);
        }
    }

    /// Gathered keys (or values) as rows times queries (or gradients) as columns.
    #[inline(always)]
    fn scores(
        &self,
        left: &[f32],
        count: usize,
        (right, queries): (&Panels, Range<usize>),
        out: &mut [f32],
    ) {
        let width = self.extents.width;
        for (block, (offset, _)) in right.blocks().iter().enumerate() {
            let write = if block == 0 { Write::Store } else { Write::Add };
            let left = (left[*offset..].as_ptr(), width);
            let right = (right, block, queries.clone());
            let out = (out.as_mut_ptr(), QUERIES);
            // SAFETY: every key has the whole width; `out` holds whole tiles.
            unsafe { multiply(Kernels::in_use(), left, count, right, out, write) };
        }
    }

    /// Scores to probabilities, and products with the gradient to the slopes of the scores.
    #[inline(always)]
    fn differentiate(
        &self,
        scratch: &mut Scratch,
        (first, count): (usize, usize),
        queries: Range<usize>,
    ) {
        let head = self.head * self.extents.queries;
        let lse = &self.given.lse[head..][queries.clone()];
        let delta = &self.given.delta[head..][queries.clone()];
        for key in 0..count {
            let scores = &mut scratch.probabilities[key * QUERIES..][..lse.len()];
            let slopes = &mut scratch.slopes[key * QUERIES..][..lse.len()];
            if let Some(mask) = self.given.mask {
                for (score, query) in scores.iter_mut().zip(queries.clone()) {
                    let mask = mask.row(self.head, query)[first + key];
                    *score = mask.mul_add(LOG2_E, *score);
                }
            }
            for ((score, slope), (lse, delta)) in
                scores.iter_mut().zip(slopes).zip(lse.iter().zip(delta))
            {
                // A query that saw no key at all has no probabilities.
                let dead = *lse == f32::NEG_INFINITY;
                let probability = if dead { 0.0 } else { exp2(*score - lse * LOG2_E) };
                *score = probability;
                *slope = probability * (*slope - delta);
            }
        }
    }
}

/// `[rows, columns]` of `values` (rows `QUERIES` apart) to `[columns, rows]` (rows `TILE_KEYS`
/// apart). Rows that are missing from the last group of eight are transposed as they lie.
fn transpose_slopes(values: &[f32], (rows, columns): (usize, usize), out: &mut [f32]) {
    let transpose = transpose_columns();
    for first in (0..rows).step_by(SIDE) {
        let pointers = std::array::from_fn(|r| values[(first + r) * QUERIES..][..columns].as_ptr());
        let out = &mut out[first..][..(columns - 1) * TILE_KEYS + SIDE];
        // SAFETY: each row holds so many columns, and `out` was cut to what is written.
        unsafe { transpose(columns, &pointers, out.as_mut_ptr(), TILE_KEYS) };
    }
}

/// Writes `rows x width` values, which lie in whole panels, times `factor` to rows `stride` apart.
///
/// # Safety
/// `out` is writable for those rows.
#[inline(always)]
unsafe fn copy_out(
    (values, factor): (&[f32], f32),
    (out, stride): (*mut f32, usize),
    (rows, width): (usize, usize),
) {
    let padded = width.next_multiple_of(COLUMNS);
    for (row, from) in values.chunks_exact(padded).take(rows).enumerate() {
        // SAFETY: by the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(out.add(row * stride), width) };
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from * factor);
    }
}

/// Sum over the width of output times its gradient, `[B, N, T]`.
pub(super) fn delta(extents: &Extents, out: &[f32], gradient: &[f32]) -> Vec<f32> {
    let Extents { queries, heads, width, .. } = *extents;
    let mut delta = vec![0.0; extents.batch_heads() * queries];
    delta.par_chunks_mut(queries.max(1)).enumerate().for_each(|(head, delta)| {
        let start = extents.query_start(head);
        for (query, delta) in delta.iter_mut().enumerate() {
            let at = start + query * heads * width;
            let products = out[at..at + width].iter().zip(&gradient[at..at + width]);
            *delta = products.map(|(out, gradient)| out * gradient).sum();
        }
    });
    delta
}
