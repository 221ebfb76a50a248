//! The attention of LTX-2, of its streams and of its connectors.

use std::ops::Range;

use burn::tensor::{Tensor, activation};
use nn::{Linear, Pairing, Qkv, Result, RmsNorm, Rope, Weights, join_heads, split_heads};

use super::Ltx2Config;

/// Projections around an attention. Queries and keys are normalised over all heads together, and each head
/// of the answer may have a gate.
pub(crate) struct Mixer {
    q: Linear,
    k: Linear,
    v: Linear,
    norms: [RmsNorm; 2],
    gates: Option<Linear>,
    out: Linear,
    head_width: usize,
    /// The heads that are computed here.
    heads: Range<usize>,
    pairing: Pairing,
}

/// The sizes of an attention, and how its heads turn.
#[derive(Clone, Copy)]
pub(crate) struct MixerSizes {
    /// Width of what asks, and of the answer.
    pub(crate) queries: usize,
    /// Width of what is asked.
    pub(crate) keys: usize,
    pub(crate) heads: usize,
    pub(crate) head_width: usize,
    pub(crate) gated: bool,
    pub(crate) pairing: Pairing,
}

impl Mixer {
    pub(crate) fn new(weights: &Weights<'_>, sizes: MixerSizes) -> Result<Mixer> {
        let MixerSizes { queries, keys, heads, head_width, gated, pairing } = sizes;
        let inner = heads * head_width;
        let norm = |name| weights.rms_norm(name, inner, Ltx2Config::EPSILON);
        let gates = gated.then(|| weights.linear("to_gate_logits", queries, heads));
        let own = weights.own_outputs("to_q", inner);
        Ok(Mixer {
            q: weights.linear("to_q", queries, inner)?,
            k: weights.linear("to_k", keys, inner)?,
            v: weights.linear("to_v", keys, inner)?,
            norms: [norm("norm_q")?, norm("norm_k")?],
            gates: gates.transpose()?,
            out: weights.linear("to_out.0", inner, queries)?,
            head_width,
            heads: own.start / head_width..own.end / head_width,
            pairing,
        })
    }

    /// Queries of `x` `[B, T, D]`, keys and values of `other` `[B, S, D']`, cut into heads; queries and keys
    /// are rotated where there are ropes for them.
    pub(crate) fn project(
        &self,
        x: Tensor<3>,
        other: Tensor<3>,
        ropes: Option<[&Rope; 2]>,
    ) -> Result<Qkv> {
        let q = self.norms[0].apply(self.q.apply(x)?)?;
        let k = self.norms[1].apply(self.k.apply(other.clone())?)?;
        let [q, k, v] = [q, k, self.v.apply(other)?].map(|x| split_heads(x, self.head_width));
        let Some([queries, keys]) = ropes else { return Ok(Qkv { q, k, v }) };
        let turn = |rope: &Rope, x| rope.rotate_bands(x, self.heads.clone(), self.pairing);
        Ok(Qkv { q: turn(queries, q), k: turn(keys, k), v })
    }

    /// The answer `[B, T, N, H]` to `x` `[B, T, D]`, as `[B, T, D]`. A gate of 0 leaves a head as it is.
    pub(crate) fn join(&self, x: Tensor<3>, answer: Tensor<4>) -> Result<Tensor<3>> {
        let answer = match &self.gates {
            Some(gates) => {
                let gates = activation::sigmoid(gates.apply(x)?) * 2.0;
                answer * gates.unsqueeze_dim::<4>(3)
            }
            None => answer,
        };
        self.out.apply(join_heads(answer))
    }
}
