//! Queries, keys and values in the type that they are multiplied in.

use std::f32::consts::LOG2_E;
use std::ops::Range;

use half::bf16;

use super::shape::Extents;
use crate::micro::Kernels;
use crate::narrow::{nearest, words};
use crate::pack::{BLOCK, Order, Panels, blocks};

/// Queries, keys and values.
#[derive(Clone, Copy)]
pub(super) enum Operands<'a> {
    /// Floats. The factor on the scores goes into the queries.
    F32([&'a [f32]; 3]),
    /// bf16, of which a word holds two: neighbours in a query and a key, and one element of two
    /// values. The factor goes to the scores.
    Bf16(Pairs<'a>),
}

/// See [`Operands::Bf16`].
#[derive(Clone, Copy)]
pub(super) struct Pairs<'a> {
    kernels: Kernels,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [bf16],
}

impl<'a> Pairs<'a> {
    /// The operands as pairs, if the set in use multiplies them and they lie as pairs do.
    pub(super) fn new(extents: &Extents, [q, k, v]: [&'a [bf16]; 3]) -> Option<Pairs<'a>> {
        let even = extents.width.is_multiple_of(2);
        let (q, k) = (words(q)?, words(k)?);
        Kernels::of_bf16().filter(|_| even).map(|kernels| Pairs { kernels, q, k, v })
    }
}

impl Operands<'_> {
    /// What multiplies them.
    pub(super) fn kernels(&self) -> Kernels {
        match self {
            Operands::F32(_) => Kernels::in_use(),
            Operands::Bf16(pairs) => pairs.kernels,
        }
    }

    /// How many of them a word holds.
    #[inline(always)]
    pub(super) fn of_word(&self) -> usize {
        match self {
            Operands::F32(_) => 1,
            Operands::Bf16(_) => 2,
        }
    }

    /// What the scores are to be multiplied with so that they come out in base 2.
    #[inline(always)]
    pub(super) fn factor(&self, extents: &Extents) -> Option<f32> {
        matches!(self, Operands::Bf16(_)).then_some(extents.scale * LOG2_E)
    }

    /// Keys as columns and values as rows of one head.
    pub(super) fn pack(&self, extents: &Extents, head: usize) -> (Panels, Panels) {
        let Extents { keys, width, .. } = *extents;
        let (stride, start) = (extents.token_stride(), extents.key_start(head));
        match self {
            Operands::F32([_, k, v]) => {
                let apart = Order::ColumnsApart(stride);
                let k = Panels::local(&k[start..], apart, &blocks(width), keys);
                let together = Order::RowsApart(stride);
                (k, Panels::local(&v[start..], together, &blocks(keys), width))
            }
            Operands::Bf16(Pairs { k, v, .. }) => {
                let apart = Order::ColumnsApart(stride / 2);
                let k = Panels::local(&k[start / 2..], apart, &blocks(width / 2), keys);
                // The blocks of floats: as many keys each.
                let pairs =
                    blocks(keys).into_iter().map(|(first, keys)| (first / 2, keys.div_ceil(2)));
                let pairs: Vec<_> = pairs.collect();
                (k, Panels::of_pairs(&v[start..], (stride, keys), &pairs, width))
            }
        }
    }

    /// Copies some queries of a head side by side.
    #[inline(always)]
    pub(super) fn gather(
        &self,
        extents: &Extents,
        head: usize,
        rows: Range<usize>,
        to: &mut [f32],
    ) {
        let Extents { width, scale, .. } = *extents;
        let (stride, start) = (extents.token_stride(), extents.query_start(head));
        match self {
            Operands::F32([q, ..]) => {
                for (to, query) in to.chunks_exact_mut(width).zip(rows) {
                    let from = &q[start + query * stride..][..width];
                    to.iter_mut().zip(from).for_each(|(to, from)| *to = from * (scale * LOG2_E));
                }
            }
            Operands::Bf16(Pairs { q, .. }) => {
                for (to, query) in to.chunks_exact_mut(width / 2).zip(rows) {
                    to.copy_from_slice(&q[(start + query * stride) / 2..][..width / 2]);
                }
            }
        }
    }
}

/// Probabilities of a block of keys, rounded, as words; as many of both as a tile has keys.
#[inline(always)]
pub(super) fn pair_up(probabilities: &[f32; BLOCK], to: &mut [f32; BLOCK / 2]) {
    for (to, pair) in to.iter_mut().zip(probabilities.as_chunks::<2>().0) {
        let [low, high] = pair.map(|value| u32::from(nearest(value).to_bits()));
        *to = f32::from_bits(low | high << 16);
    }
}
