//! The part of a pass that is one rank's.

use comm::{Axis, share};

use super::network::{Mixing, Product, Rows};
use crate::plan::Plan;

/// What one rank does of a pass over the whole sequence, or over the largest patch of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) tensor: usize,
    pub(super) ulysses: usize,
    pub(super) ring: usize,
    /// Where the rank stands among those of its sequence, and its Ulysses group.
    sequence_rank: usize,
    ulysses_rank: usize,
    /// Patches of the sequence, one of which is at hand; one where all of it is.
    pub(super) patches: usize,
    /// Whether the step is one of patches.
    is_patched: bool,
}

impl Share {
    /// All of it, by one rank.
    pub(super) const ALONE: Share = Share {
        tensor: 1,
        ulysses: 1,
        ring: 1,
        sequence_rank: 0,
        ulysses_rank: 0,
        patches: 1,
        is_patched: false,
    };

    /// Of the whole sequence.
    pub(super) fn of(plan: &Plan, rank: usize) -> Share {
        let mesh = &plan.layout().mesh;
        let at = |axis| mesh.coordinate(rank, axis);
        let [tensor, ulysses, ring] =
            [Axis::Tensor, Axis::Ulysses, Axis::Ring].map(|a| mesh.degree(a));
        let sequence_rank = at(Axis::Ring) * ulysses + at(Axis::Ulysses);
        let ulysses_rank = at(Axis::Ulysses);
        Share { tensor, ulysses, ring, sequence_rank, ulysses_rank, patches: 1, is_patched: false }
    }

    /// The same of one of so many patches, if the step is one of patches.
    pub(super) fn patched(self, patches: Option<usize>) -> Share {
        Share { patches: patches.unwrap_or(1), is_patched: patches.is_some(), ..self }
    }

    /// Ranks of the sequence.
    pub(super) fn sequence(&self) -> usize {
        self.ulysses * self.ring
    }

    /// Spread tokens that the rank holds.
    pub(super) fn own(&self, rows: Rows) -> f64 {
        share(rows.spread, self.sequence_rank, self.sequence()).len() as f64 / self.patches as f64
    }

    /// All tokens that the rank holds.
    pub(super) fn rows(&self, rows: Rows) -> f64 {
        let constant = if self.is_patched { 0 } else { rows.constant };
        self.own(rows) + (rows.whole + constant) as f64
    }

    /// The part of a layer that the rank has.
    pub(super) fn of_layer(&self, product: &Product) -> f64 {
        match product.split {
            Some(_) => 1.0 / self.tensor as f64,
            None => 1.0,
        }
    }

    /// Heads of a tensor rank.
    pub(super) fn tensor_heads(&self, mixing: &Mixing) -> f64 {
        mixing.heads as f64 / self.tensor as f64
    }

    /// Heads that the rank looks after while tokens are traded for heads.
    pub(super) fn heads(&self, mixing: &Mixing) -> f64 {
        let heads = (mixing.heads / self.tensor).max(1);
        share(heads, self.ulysses_rank, self.ulysses).len() as f64
    }

    /// Tokens that the rank sees of spread ones while tokens are traded for heads.
    pub(super) fn of_group(&self, rows: Rows) -> f64 {
        rows.spread as f64 / self.ring as f64
    }
}

/// Whether ranks of a sequence exchange anything for it.
pub(super) fn is_exchanged(mixing: &Mixing) -> bool {
    mixing.keys.spread > 0
}

/// The samples of the fullest replica.
pub(super) fn samples(plan: &Plan) -> usize {
    plan.samples().iter().map(ExactSizeIterator::len).max().unwrap_or(0)
}
