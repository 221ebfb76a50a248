//! Attention among tokens that are spread over ranks: Ulysses, ring, and both at once.
//!
//! Ulysses trades a shard of the tokens for a shard of the heads, so that a rank sees all tokens of its
//! group with some of the heads, and trades back afterwards. A ring leaves tokens where they are and passes
//! keys and values around. Both at once (USP) trade within a Ulysses group and ring between such groups.

use std::ops::Range;

use burn::tensor::Tensor;
use comm::{Axis, Group, Mesh, share};
use nn::{Attention, Error, Mask, Plain, Qkv, Reach, Result, Site, TrackName, Tracks};

use crate::exchange;
use crate::ring::{Lead, Places, Ring};
use crate::shard::Pieces;
use crate::stale::Stale;

/// The dim of the tokens in `[B, T, N, H]`.
const TOKENS: usize = 1;

/// The dim of the heads.
const HEADS: usize = 2;

/// What it is called when it refuses.
const LAYOUT: &str = "sequence parallelism";

/// Attention among tokens that are spread over a group.
///
/// Numbers of tokens may differ from rank to rank, and so may numbers of heads.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Who holds the tokens of a sequence.
    sequence: Group,
    /// Who trades tokens for heads: neighbours in the sequence.
    ulysses: Group,
    /// Who passes keys and values around: those at the same place of each Ulysses group.
    ring: Group,
    /// How the sequences at hand are cut, where that is into more than shards.
    cuts: Tracks<Cut>,
    /// What of other patches is looked at.
    stale: Option<Stale>,
}

/// A sequence, or one patch of it, in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    /// What is at hand.
    pub(crate) pieces: Pieces,
    /// Where it begins in the whole.
    pub(crate) start: usize,
    /// The whole.
    pub(crate) whole: Pieces,
}

impl Spread {
    /// Over the ranks of a mesh that share a sequence.
    pub fn over(mesh: &Mesh) -> Spread {
        Spread {
            sequence: mesh.sequence().clone(),
            ulysses: mesh.axis(Axis::Ulysses).clone(),
            ring: mesh.axis(Axis::Ring).clone(),
            cuts: Tracks::default(),
            stale: None,
        }
    }

    /// The same for sequences that are cut so, and beside what is kept of other patches.
    pub(crate) fn patched(&self, cuts: Tracks<Cut>, stale: Stale) -> Spread {
        Spread { cuts, stale: Some(stale), ..self.clone() }
    }

    /// By Ulysses alone.
    pub fn ulysses(group: &Group) -> Spread {
        let (sequence, ulysses, ring) = (group.clone(), group.clone(), alone(group));
        Spread { sequence, ulysses, ring, cuts: Tracks::default(), stale: None }
    }

    /// By a ring alone.
    pub fn ring(group: &Group) -> Spread {
        let (sequence, ulysses, ring) = (group.clone(), alone(group), group.clone());
        Spread { sequence, ulysses, ring, cuts: Tracks::default(), stale: None }
    }

    /// Who holds the tokens of a sequence.
    pub fn sequence(&self) -> &Group {
        &self.sequence
    }
}

/// This rank as a group.
fn alone(group: &Group) -> Group {
    group.split("alone", &[group.rank()])
}

impl Attention for Spread {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        qkv.check(LAYOUT, site, reach)?;
        match reach {
            Reach::Own | Reach::Sharded => self.attend_spread(site, qkv, reach, mask),
            Reach::Joint { text } => self.attend_joint(site, qkv, text, mask),
            Reach::Replicated => {
                let mask = mask.map(|mask| self.own_queries(site, &qkv, mask)).transpose()?;
                Plain.attend(site, qkv, reach, mask.as_ref())
            }
            Reach::Within { axis } => {
                let reason = format!("tokens that share axis {axis} may be on different ranks");
                Err(refuse(site, reason))
            }
        }
    }
}

impl Spread {
    /// Queries and keys are spread, each as its stream is.
    fn attend_spread(
        &self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        let heads = self.heads(site, qkv.q.dims()[HEADS])?;
        let [of_q, of_k] = [self.cut(site.track), self.cut(site.keys(reach))];
        let [q, k, v] = [("q", qkv.q), ("k", qkv.k), ("v", qkv.v)]
            .map(|(name, x)| self.to_heads(&format!("{name} of {site}"), x, &heads));
        let ((q, counts), (k, _), (v, _)) = (q?, k?, v?);
        let q = self.by_piece(q, of_q);
        let [k, v] = self.seen(site, [k, v].map(|x| self.by_piece(x, of_k)), of_k)?;
        let mask = mask.map(|mask| self.own_heads(&heads, mask));
        let mask = mask.map(|mask| self.own_patch(site, mask, &q, [of_q, of_k], 0)).transpose()?;
        let reach = if self.stale.is_some() { Reach::Sharded } else { reach };
        let out = self.inner(site, Qkv { q, k, v }, reach, mask.flatten(), Lead::default())?;
        self.to_tokens(&format!("the output of {site}"), self.by_rank(out, of_q), &counts)
    }

    /// Text leads queries and keys, which every rank holds whole: a rank looks after the heads of the text
    /// that it looks after of the other tokens, and all get the answer.
    fn attend_joint(
        &self,
        site: Site,
        qkv: Qkv,
        text: usize,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        let heads = self.heads(site, qkv.q.dims()[HEADS])?;
        let own = heads[self.ulysses.rank()].clone();
        let cut = self.cut(site.track);
        let mut counts = Vec::new();
        let mut trade = |name: &str, x: Tensor<4>| -> Result<[Tensor<4>; 2]> {
            let all = x.dims()[TOKENS];
            let lead = x.clone().slice_dim(TOKENS, 0..text).slice_dim(HEADS, own.clone());
            let rest = x.slice_dim(TOKENS, text..all);
            let (rest, found) = self.to_heads(&format!("{name} of {site}"), rest, &heads)?;
            counts = found;
            Ok([lead, self.by_piece(rest, cut)])
        };
        let ([text_q, q], [text_k, k]) = (trade("q", qkv.q)?, trade("k", qkv.k)?);
        let [text_v, v] = trade("v", qkv.v)?;
        // Text is always fresh.
        let [k, v] = self.seen(site, [k, v], cut)?;
        let mask = mask.map(|mask| self.own_heads(&heads, mask));
        let mask = mask.map(|mask| self.own_patch(site, mask, &q, [cut, cut], text)).transpose()?;
        let led = |text: Tensor<4>, rest: Tensor<4>| Tensor::cat(vec![text, rest], TOKENS);
        let qkv = Qkv { q: led(text_q, q), k: led(text_k, k), v: led(text_v, v) };
        let out = self.inner(site, qkv, Reach::Sharded, mask.flatten(), Lead { text })?;
        let all = out.dims()[TOKENS];
        let lead = out.clone().slice_dim(TOKENS, 0..text);
        let group = self.ulysses.named(format!("the text of {site}"));
        let lead = exchange::gather(&group, lead, HEADS)?;
        let rest = self.by_rank(out.slice_dim(TOKENS, text..all), cut);
        let rest = self.to_tokens(&format!("the output of {site}"), rest, &counts)?;
        Ok(Tensor::cat(vec![lead, rest], TOKENS))
    }

    /// How the sequence of a track is cut.
    fn cut(&self, track: TrackName) -> Option<&Cut> {
        self.cuts.as_ref().of(track)
    }

    /// How many tokens of each piece each rank of the Ulysses group has.
    fn parts(&self, pieces: &Pieces) -> Vec<Vec<usize>> {
        let (ranks, width) = (self.sequence.size(), self.ulysses.size());
        let first = self.ring.rank() * width;
        let of = |rank: usize| pieces.own(first + rank, ranks).iter().map(Range::len).collect();
        (0..width).map(of).collect()
    }

    /// Tokens in the order of the pieces, where they come in the order of the ranks.
    fn by_piece(&self, x: Tensor<4>, cut: Option<&Cut>) -> Tensor<4> {
        let Some(parts) =
            cut.filter(|cut| cut.pieces.count() > 1).map(|cut| self.parts(&cut.pieces))
        else {
            return x;
        };
        let rows = x.split_with_sizes(parts.concat(), TOKENS);
        let (pieces, ranks) = (parts[0].len(), parts.len());
        let order = (0..pieces).flat_map(|piece| (0..ranks).map(move |rank| rank * pieces + piece));
        Tensor::cat(order.map(|at| rows[at].clone()).collect(), TOKENS)
    }

    /// Tokens in the order of the ranks, where they come in the order of the pieces.
    fn by_rank(&self, x: Tensor<4>, cut: Option<&Cut>) -> Tensor<4> {
        let Some(parts) =
            cut.filter(|cut| cut.pieces.count() > 1).map(|cut| self.parts(&cut.pieces))
        else {
            return x;
        };
        let (pieces, ranks) = (parts[0].len(), parts.len());
        let by_piece = (0..pieces).flat_map(|piece| parts.iter().map(move |own| own[piece]));
        let rows = x.split_with_sizes(by_piece.collect(), TOKENS);
        let order = (0..ranks).flat_map(|rank| (0..pieces).map(move |piece| piece * ranks + rank));
        Tensor::cat(order.map(|at| rows[at].clone()).collect(), TOKENS)
    }

    /// The keys and values that are looked at: those at hand, and what is kept of other patches.
    fn seen(&self, site: Site, kv: [Tensor<4>; 2], cut: Option<&Cut>) -> Result<[Tensor<4>; 2]> {
        let Some(stale) = &self.stale else { return Ok(kv) };
        let Some(cut) = cut else {
            return Err(refuse(site, "its keys are of a stream that nobody has cut into patches"));
        };
        let parts = self.parts(&cut.whole);
        let of = |piece: usize| parts.iter().map(|own| own[piece]).sum();
        let lengths: Vec<usize> = (0..cut.whole.count()).map(of).collect();
        stale.look(site, kv, &lengths)
    }

    /// What a mask says of the patch at hand, whose queries see the keys of all patches; text leads both.
    fn own_patch(
        &self,
        site: Site,
        mask: Mask,
        q: &Tensor<4>,
        [of_q, of_k]: [Option<&Cut>; 2],
        text: usize,
    ) -> Result<Option<Mask>> {
        let patched = self.stale.as_ref().is_some_and(|stale| stale.patch.is_some());
        let (Some(of_q), Some(of_k)) = (of_q, of_k) else { return Ok(Some(mask)) };
        if !patched {
            return Ok(Some(mask));
        }
        if self.ring.size() > 1 || text > 0 {
            let reason = format!("{} cannot be cut to a patch of the queries", mask.name());
            return Err(refuse(site, reason));
        }
        let queries = of_q.start..of_q.start + of_q.pieces.tokens();
        Ok(mask.piece(queries, 0..of_k.whole.tokens(), &q.device()).map(Mask::Dense))
    }

    /// Attention with all tokens of the Ulysses group and some of the heads.
    fn inner(
        &self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<Mask>,
        lead: Lead,
    ) -> Result<Tensor<4>> {
        if self.ring.size() == 1 {
            return Plain.attend(site, qkv, reach, mask.as_ref());
        }
        let places = match &mask {
            Some(_) => self.places(&qkv, lead)?,
            None => Places::default(),
        };
        let group = self.ring.named(format!("keys and values of {site}"));
        Ring { group, mask, places, lead }.attend(qkv).map_err(failed)
    }

    /// Where the queries of this rank and the keys of all stand in the whole.
    fn places(&self, qkv: &Qkv, lead: Lead) -> Result<Places> {
        let count = |x: &Tensor<4>| (x.dims()[TOKENS] - lead.text) as f32;
        let own = [count(&qkv.q), count(&qkv.k)];
        let own = Tensor::<1>::from_floats(own, &qkv.q.device().inner());
        let all = self.ring.named("numbers of tokens").all_gather(own, &[]).map_err(failed)?;
        let counts: Vec<Vec<usize>> = all
            .into_iter()
            .map(|own| own.into_data().iter::<f32>().map(|count| count as usize).collect())
            .collect();
        let ranges = |which: usize| -> Vec<Range<usize>> {
            let starts = counts.iter().scan(0, |start, own| {
                *start += own[which];
                Some(*start - own[which]..*start)
            });
            starts.collect()
        };
        Ok(Places { queries: ranges(0)[self.ring.rank()].clone(), keys: ranges(1) })
    }

    /// Which heads are whose in a Ulysses group.
    fn heads(&self, site: Site, heads: usize) -> Result<Vec<Range<usize>>> {
        let ranks = self.ulysses.size();
        // Every rank must refuse before the first message, or the others would wait for it.
        if heads < ranks {
            let reason = format!(
                "{heads} heads cannot be shared by {ranks} Ulysses ranks; use {heads} at the most"
            );
            return Err(refuse(site, reason));
        }
        Ok((0..ranks).map(|rank| share(heads, rank, ranks)).collect())
    }

    /// `[B, own tokens, N, H]` to `[B, tokens of the group, own heads, H]`, and how many tokens each rank
    /// has.
    fn to_heads(
        &self,
        label: &str,
        x: Tensor<4>,
        heads: &[Range<usize>],
    ) -> Result<(Tensor<4>, Vec<usize>)> {
        if self.ulysses.size() == 1 {
            let tokens = x.dims()[TOKENS];
            return Ok((x, vec![tokens]));
        }
        let counts: Vec<usize> = heads.iter().map(Range::len).collect();
        Ok(exchange::all_to_all(&self.ulysses.named(label), x, (HEADS, &counts), TOKENS)?)
    }

    /// `[B, tokens of the group, own heads, H]` to `[B, own tokens, N, H]`.
    fn to_tokens(&self, label: &str, x: Tensor<4>, counts: &[usize]) -> Result<Tensor<4>> {
        if self.ulysses.size() == 1 {
            return Ok(x);
        }
        Ok(exchange::all_to_all(&self.ulysses.named(label), x, (TOKENS, counts), HEADS)?.0)
    }

    /// The part of a mask that is about this rank's heads; only a dense one tells heads apart.
    fn own_heads(&self, heads: &[Range<usize>], mask: &Mask) -> Mask {
        match mask {
            Mask::Dense(dense) if dense.dims()[1] > 1 => {
                let own = heads[self.ulysses.rank()].clone();
                Mask::Dense(dense.clone().slice_dim(1, own))
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
        let range = share(tokens, self.sequence.rank(), self.sequence.size());
        if range.len() != own {
            let reason = format!("a mask for {tokens} queries does not fit a shard of {own}");
            return Err(refuse(site, reason));
        }
        Ok(Mask::Dense(dense.clone().narrow(2, range.start, own)))
    }
}

fn failed(error: comm::Error) -> Error {
    Error::outside(crate::Error::from(error))
}

fn refuse(site: Site, reason: impl Into<String>) -> Error {
    Error::Attention { layout: LAYOUT, site: site.to_string(), reason: reason.into() }
}
