//! The backward pass, one head per task: 96 keys against 256 queries at a time.
//!
//! Scores are recomputed transposed (keys as rows), so that their products with the queries' side
//! need no copy; only the one product with the keys' side wants its left-hand transposed.

use std::f32::consts::LOG2_E;

use rayon::prelude::*;

use super::exponential::exp2;
use super::shape::{Extents, Mask};
use super::tile::{TILE_QUERIES, multiply};
use crate::gemm::Shared;

use crate::micro::{COLUMNS, Write};
use crate::pack::{BLOCK, Order, Panels};
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
    let mut dq = vec![0.0; extents.query_elements()];
    let mut dk = vec![0.0; extents.key_elements()];
    let mut dv = vec![0.0; extents.key_elements()];
    let places = [&mut dq, &mut dk, &mut dv].map(|values| Shared(values.as_mut_ptr()));
    (0..extents.batch_heads()).into_par_iter().for_each_init(
        || Scratch::new(extents),
        |scratch, head| {
            let head = Head::new(extents, given, head);
            vectorised(Differentiate { head, scratch, places });
        },
    );
    [dq, dk, dv]
}

/// What one worker needs for a head, reused from head to head.
struct Scratch {
    probabilities: Vec<f32>,
    slopes: Vec<f32>,
    turned: Vec<f32>,
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
}

impl Scratch {
    fn new(extents: &Extents) -> Scratch {
        let padded = extents.width.next_multiple_of(COLUMNS);
        Scratch {
            probabilities: vec![0.0; TILE_KEYS * QUERIES],
            slopes: vec![0.0; TILE_KEYS * QUERIES],
            turned: vec![0.0; QUERIES * TILE_KEYS],
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
        let key_blocks =
            (0..keys).step_by(TILE_KEYS).map(|first| (first, TILE_KEYS.min(keys - first)));
        Head {
            extents,
            given,
            head,
            q_as_columns: Panels::local(q, Order::ColumnsApart(stride), width, queries),
            gradient_as_columns: Panels::local(
                gradient,
                Order::ColumnsApart(stride),
                width,
                queries,
            ),
            q_as_rows: Panels::local(q, Order::RowsApart(stride), queries, width),
            gradient_as_rows: Panels::local(gradient, Order::RowsApart(stride), queries, width),
            k_as_rows: Panels::blocked(k, Order::RowsApart(stride), key_blocks.collect(), width),
        }
    }

    /// # Safety
    /// `places` are the whole gradients, and no one else writes this head's part.
    #[inline(always)]
    unsafe fn run(&self, scratch: &mut Scratch, [dq, dk, dv]: [Shared; 3]) {
        let Extents { queries, keys, width, .. } = *self.extents;
        let stride = self.extents.token_stride();
        let padded = width.next_multiple_of(COLUMNS);
        scratch.dq.fill(0.0);
        for (tile, first) in (0..keys).step_by(TILE_KEYS).enumerate() {
            let count = TILE_KEYS.min(keys - first);
            scratch.dk.fill(0.0);
            scratch.dv.fill(0.0);
            for block in 0..queries.div_ceil(QUERIES) {
                self.tile(scratch, (tile, first, count), block);
            }
            let start = self.extents.key_start(self.head) + first * stride;
            // SAFETY: these keys of this head belong to this task.
            unsafe {
                copy_out(&scratch.dk, padded, (dk.0.add(start), stride), (count, width));
                copy_out(&scratch.dv, padded, (dv.0.add(start), stride), (count, width));
            }
        }
        let start = self.extents.query_start(self.head);
        // SAFETY: the queries of this head belong to this task.
        unsafe { copy_out(&scratch.dq, padded, (dq.0.add(start), stride), (queries, width)) };
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
        self.scores(
            self.given.k,
            &self.q_as_columns,
            (first, count),
            start..start + wide,
            &mut scratch.probabilities,
        );
        self.scores(
            self.given.v,
            &self.gradient_as_columns,
            (first, count),
            start..start + wide,
            &mut scratch.slopes,
        );
        self.differentiate(scratch, (first, count), start..start + wide);
        // SAFETY: the tiles have `count` rows of `wide` values, the sums whole padded rows.
        unsafe {
            let probabilities = (scratch.probabilities.as_ptr(), QUERIES);
            let right = (&self.gradient_as_rows, block, 0..width);
            multiply(probabilities, count, right, (scratch.dv.as_mut_ptr(), padded), Write::Add);
            let slopes = (scratch.slopes.as_ptr(), QUERIES);
            let right = (&self.q_as_rows, block, 0..width);
            multiply(slopes, count, right, (scratch.dk.as_mut_ptr(), padded), Write::Add);
            turn(&scratch.slopes, (count, wide), &mut scratch.turned);
            let turned = (scratch.turned.as_ptr(), TILE_KEYS);
            let right = (&self.k_as_rows, tile, 0..width);
            let place = scratch.dq.as_mut_ptr().add(start * padded);
            multiply(turned, wide, right, (place, padded), Write::Add);
        }
    }

    /// Keys (or values) as rows times queries (or gradients) as columns.
    #[inline(always)]
    fn scores(
        &self,
        left: &[f32],
        right: &Panels,
        (first, count): (usize, usize),
        queries: std::ops::Range<usize>,
        out: &mut [f32],
    ) {
        let stride = self.extents.token_stride();
        let start = self.extents.key_start(self.head) + first * stride;
        for (block, (offset, _)) in right.blocks().iter().enumerate() {
            let write = if block == 0 { Write::Store } else { Write::Add };
            let left = (left[start + offset..].as_ptr(), stride);
            // SAFETY: every key has the whole width; `out` holds whole tiles.
            unsafe {
                multiply(
                    left,
                    count,
                    (right, block, queries.clone()),
                    (out.as_mut_ptr(), QUERIES),
                    write,
                );
            }
        }
    }

    /// Scores to probabilities, and products with the gradient to the slopes of the scores.
    #[inline(always)]
    fn differentiate(
        &self,
        scratch: &mut Scratch,
        (first, count): (usize, usize),
        queries: std::ops::Range<usize>,
    ) {
        let scale = self.extents.scale;
        let head = self.head * self.extents.queries;
        let lse = &self.given.lse[head..][queries.clone()];
        let delta = &self.given.delta[head..][queries.clone()];
        for key in 0..count {
            let scores = &mut scratch.probabilities[key * QUERIES..][..lse.len()];
            let slopes = &mut scratch.slopes[key * QUERIES..][..lse.len()];
            match self.given.mask {
                None => scores.iter_mut().for_each(|score| *score *= scale * LOG2_E),
                Some(mask) => {
                    for (score, query) in scores.iter_mut().zip(queries.clone()) {
                        let mask = mask.row(self.head, query)[first + key];
                        *score = score.mul_add(scale * LOG2_E, mask * LOG2_E);
                    }
                }
            }
            for ((score, slope), (lse, delta)) in
                scores.iter_mut().zip(slopes).zip(lse.iter().zip(delta))
            {
                // A query that saw no key at all has no probabilities.
                let dead = *lse == f32::NEG_INFINITY;
                let probability = if dead { 0.0 } else { exp2(*score - lse * LOG2_E) };
                *score = probability;
                *slope = probability * (*slope - delta) * scale;
            }
        }
    }
}

/// `[rows, columns]` of `values` (rows `QUERIES` apart) to `[columns, rows]` (rows `TILE_KEYS` apart).
#[inline(always)]
fn turn(values: &[f32], (rows, columns): (usize, usize), out: &mut [f32]) {
    const SIDE: usize = 8;
    for first_row in (0..rows).step_by(SIDE) {
        for first in (0..columns).step_by(SIDE) {
            for row in first_row..(first_row + SIDE).min(rows) {
                for column in first..(first + SIDE).min(columns) {
                    out[column * TILE_KEYS + row] = values[row * QUERIES + column];
                }
            }
        }
    }
}

/// Copies `rows x width` values whose rows lie `padded` apart to rows that lie `stride` apart.
///
/// # Safety
/// `out` is writable for those rows.
#[inline(always)]
unsafe fn copy_out(
    values: &[f32],
    padded: usize,
    (out, stride): (*mut f32, usize),
    (rows, width): (usize, usize),
) {
    for row in 0..rows {
        let from = &values[row * padded..][..width];
        // SAFETY: by the caller's promise; source and target are different buffers.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), out.add(row * stride), width) };
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
