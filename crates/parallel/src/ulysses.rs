//! DeepSpeed-Ulysses: trade a shard of the tokens for a shard of the heads, attend, and trade back.

use burn::tensor::Tensor;
use comm::Group;
use nn::{Attention, Error, Mask, Qkv, Reach, Result, Site};

use crate::shard::share;

/// The dim of the tokens in `[B, T, N, H]`.
const TOKENS: usize = 1;

/// The dim of the heads.
const HEADS: usize = 2;

/// Attention among tokens that are spread over `group`, served by `inner` with all tokens and some of
/// the heads.
///
/// The number of tokens may differ from rank to rank; the heads must divide by the ranks.
#[derive(Clone, Debug)]
pub struct Ulysses<A> {
    /// Who shares the sequence.
    pub group: Group,
    /// What attends when tokens are whole.
    pub inner: A,
}

/// What it is called when it refuses.
const ULYSSES: &str = "Ulysses";

impl<A: Attention> Attention for Ulysses<A> {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        qkv.check(ULYSSES, site, reach)?;
        match reach {
            Reach::Own | Reach::Sharded => self.attend_spread(site, qkv, reach, mask),
            Reach::Replicated => {
                let mask = mask.map(|mask| self.own_queries(site, &qkv, mask)).transpose()?;
                self.inner.attend(site, qkv, reach, mask.as_ref())
            }
            Reach::Joint { .. } => Err(refuse(site, "it has no joint attention with text yet")),
            Reach::Within { axis } => {
                let reason = format!("tokens that share axis {axis} may be on different ranks");
                Err(refuse(site, reason))
            }
        }
    }
}

impl<A: Attention> Ulysses<A> {
    /// Queries and keys are spread, each by the number of its own tokens; between the exchanges both are
    /// whole, so that any mask means what it means on one device.
    fn attend_spread(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        let [_, _, heads, _] = qkv.q.dims();
        let ranks = self.group.size();
        // Every rank must refuse before the first message, or the others would wait for it.
        if !heads.is_multiple_of(ranks) {
            let reason = format!(
                "{heads} heads cannot be shared evenly by {ranks} ranks; \
                 use a number of ranks that divides {heads}"
            );
            return Err(refuse(site, reason));
        }
        let (q, counts) = self.to_heads(format!("q of {site}"), qkv.q)?;
        let (k, _) = self.to_heads(format!("k of {site}"), qkv.k)?;
        let (v, _) = self.to_heads(format!("v of {site}"), qkv.v)?;
        let mask = mask.map(|mask| self.own_heads(heads / ranks, mask));
        let out = self.inner.attend(site, Qkv { q, k, v }, reach, mask.as_ref())?;
        self.to_tokens(format!("the output of {site}"), out, counts)
    }

    /// `[B, own tokens, N, H]` to `[B, all tokens, N / ranks, H]`, and how many tokens each rank has.
    fn to_heads(&self, label: String, x: Tensor<4>) -> Result<(Tensor<4>, Vec<usize>)> {
        let group = self.group.named(label.as_str());
        let (out, counts) = tokens_to_heads(&group, x.clone().inner()).map_err(exchange)?;
        let (group, back) = (self.group.named(gradient(&label)), counts.clone());
        let adjoint = move |gradient| finish(heads_to_tokens(&group, gradient, &back));
        Ok((kernels::linear_map(x, move |_| out.clone(), adjoint), counts))
    }

    /// `[B, all tokens, N / ranks, H]` to `[B, own tokens, N, H]`.
    fn to_tokens(&self, label: String, x: Tensor<4>, counts: Vec<usize>) -> Result<Tensor<4>> {
        let group = self.group.named(label.as_str());
        let out = heads_to_tokens(&group, x.clone().inner(), &counts).map_err(exchange)?;
        let group = self.group.named(gradient(&label));
        let adjoint = move |gradient| finish(tokens_to_heads(&group, gradient)).0;
        Ok(kernels::linear_map(x, move |_| out.clone(), adjoint))
    }

    /// The part of a mask that is about this rank's heads; only a dense one tells heads apart.
    fn own_heads(&self, share: usize, mask: &Mask) -> Mask {
        match mask {
            Mask::Dense(dense) if dense.dims()[1] > 1 => {
                Mask::Dense(dense.clone().narrow(1, self.group.rank() * share, share))
            }
            mask => mask.clone(),
        }
    }

    /// The part of a mask that is about this rank's queries, where every rank holds all keys.
    fn own_queries(&self, site: Site, qkv: &Qkv, mask: &Mask) -> Result<Mask> {
        let [_, own, _, _] = qkv.q.dims();
        let dense = match mask {
            Mask::Dense(dense) => dense,
            Mask::Lengths(_) => return Ok(mask.clone()),
            Mask::CausalFrames { .. } | Mask::Blocks { .. } => {
                let reason = format!("{} cannot be cut to a shard of the queries", mask.name());
                return Err(refuse(site, reason));
            }
        };
        let [_, _, tokens, _] = dense.dims();
        if tokens == 1 {
            return Ok(mask.clone());
        }
        let range = share(tokens, self.group.rank(), self.group.size());
        if range.len() != own {
            let reason = format!("a mask for {tokens} queries does not fit a shard of {own}");
            return Err(refuse(site, reason));
        }
        Ok(Mask::Dense(dense.clone().narrow(2, range.start, own)))
    }
}

/// `[B, own tokens, N, H]` to `[B, all tokens, N / ranks, H]`, and how many tokens each rank has.
fn tokens_to_heads(group: &Group, x: Tensor<4>) -> comm::Result<(Tensor<4>, Vec<usize>)> {
    let share = x.dims()[HEADS] / group.size();
    let parts = (0..group.size()).map(|rank| x.clone().narrow(HEADS, rank * share, share));
    let parts = group.all_to_all(parts.collect(), TOKENS)?;
    let counts = parts.iter().map(|part| part.dims()[TOKENS]).collect();
    Ok((Tensor::cat(parts, TOKENS), counts))
}

/// `[B, all tokens, N / ranks, H]` to `[B, own tokens, N, H]`: the inverse, and thus the adjoint.
fn heads_to_tokens(group: &Group, x: Tensor<4>, counts: &[usize]) -> comm::Result<Tensor<4>> {
    let parts = x.split_with_sizes(counts.to_vec(), TOKENS);
    Ok(Tensor::cat(group.all_to_all(parts, TOKENS)?, HEADS))
}

fn gradient(label: &str) -> String {
    format!("the gradient of {label}")
}

/// The result of an exchange inside a backward pass, which has no way to return an error. The panic
/// wakes the other ranks.
fn finish<T>(result: comm::Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn exchange(error: comm::Error) -> Error {
    Error::outside(crate::Error::from(error))
}

fn refuse(site: Site, reason: impl Into<String>) -> Error {
    Error::Attention { layout: ULYSSES, site: site.to_string(), reason: reason.into() }
}
