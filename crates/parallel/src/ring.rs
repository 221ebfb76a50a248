//! Ring attention: keys and values travel around a group while each rank looks at those it has.
//!
//! Queries stay. In every round a rank sends the block of keys and values that it holds to the next rank,
//! looks at it meanwhile, and takes the block of the rank before it. What it finds in each block is merged
//! by the log-sum-exp of the scores, in f32. Going back, blocks travel once more, and their gradients with
//! them.

use std::ops::Range;

use burn::tensor::Tensor;
use comm::Group;
use kernels::{AttentionInputs, AttentionSums};
use nn::{Mask, Qkv};

use crate::exchange::finish;

/// Text that every rank holds beside its own tokens: it leads queries and keys, and counts once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lead {
    /// How many tokens.
    pub(crate) text: usize,
}

/// One attention over a ring.
#[derive(Clone)]
pub(crate) struct Ring {
    /// The ranks, each of which holds a block of the tokens; its calls are named after the site.
    pub(crate) group: Group,
    /// Which queries see which keys, by global index.
    pub(crate) mask: Option<Mask>,
    /// Where this rank's queries and every rank's keys stand in the whole, if a mask wants to know.
    pub(crate) places: Places,
    /// What leads this rank's queries and keys.
    pub(crate) lead: Lead,
}

/// Where tokens stand in the whole, text left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(crate) queries: Range<usize>,
    pub(crate) keys: Vec<Range<usize>>,
}

/// What a query found, and in how much.
struct Found {
    /// `[B, T, N, H]`.
    out: Tensor<4>,
    /// Log-sum-exp of its scores, `[B, N, T]`.
    lse: Tensor<3>,
}

/// Keys and values, or their gradients, `[B, S, N, H]` each.
type Pair = [Tensor<4>; 2];

impl Ring {
    /// Attends and returns `[B, T, N, H]`; queries, keys and values are those of this rank, text first.
    pub(crate) fn attend(&self, qkv: Qkv) -> comm::Result<Tensor<4>> {
        let Qkv { q, k, v } = qkv.clone();
        let plain = Qkv { q: q.clone().inner(), k: k.clone().inner(), v: v.clone().inner() };
        let Found { out, lse } = self.look(&plain)?;
        let (ring, kept) = (self.clone(), out.clone());
        Ok(kernels::with_gradient([q, k, v], out, move |gradient| {
            finish(ring.look_back(&plain, &kept, &lse, gradient))
        }))
    }

    fn look(&self, qkv: &Qkv) -> comm::Result<Found> {
        let ((text_k, mut k), (text_v, mut v)) = (self.cut(&qkv.k), self.cut(&qkv.v));
        let mut found: Option<Found> = None;
        let mut of_text: Vec<Option<Found>> = (0..self.group.size()).map(|_| None).collect();
        for round in 0..self.group.size() {
            let coming = self.pass_on(round, [&k, &v])?;
            let owner = self.owner(round);
            let block = self.block(owner, [&text_k, &text_v], [&k, &v]);
            let (out, lse) = kernels::attention_forward(self.inputs(&qkv.q, block, owner));
            let here = Found { out, lse };
            of_text[owner] = self.text_rows(&here);
            found = Some(match found {
                None => here,
                Some(before) => before.merge(here),
            });
            if let Some(coming) = coming {
                [k, v] = coming.wait()?;
            }
        }
        let found = found.expect("a ring has at least one rank");
        Ok(self.with_text(found, of_text))
    }

    fn look_back(
        &self,
        qkv: &Qkv,
        out: &Tensor<4>,
        lse: &Tensor<3>,
        gradient: Tensor<4>,
    ) -> comm::Result<[Tensor<4>; 3]> {
        let back = Ring { group: self.group.named("the gradients of a ring"), ..self.clone() };
        let delta = kernels::attention_delta(out.clone(), gradient.clone());
        let ((text_k, mut k), (text_v, mut v)) = (self.cut(&qkv.k), self.cut(&qkv.v));
        let mut of_queries: Option<Tensor<4>> = None;
        let mut of_text = [None, None];
        // What is owed to the block at hand; after the last round each block is at home again.
        let mut owed = [k.zeros_like(), v.zeros_like()];
        for round in 0..self.group.size() {
            let coming = back.pass_on(round, [&k, &v])?;
            let owner = self.owner(round);
            let block = self.block(owner, [&text_k, &text_v], [&k, &v]);
            let sums = AttentionSums { lse: lse.clone(), delta: delta.clone() };
            let inputs = self.inputs(&qkv.q, block, owner);
            let [q, more_k, more_v] = kernels::attention_backward(inputs, sums, gradient.clone());
            of_queries = Some(match of_queries {
                None => q,
                Some(sum) => sum + q,
            });
            for (at, more) in [more_k, more_v].into_iter().enumerate() {
                let own = match owner {
                    0 => {
                        let (text, own) = self.cut(&more);
                        of_text[at] = text;
                        own
                    }
                    _ => more,
                };
                owed[at] = owed[at].clone() + own;
            }
            let [next, previous] = self.neighbours();
            let names = ["the gradient of k", "the gradient of v"];
            for (name, part) in names.into_iter().zip(&owed) {
                self.group.named(name).send(next, part.clone())?;
            }
            owed = [
                self.group.named(names[0]).recv(previous)?,
                self.group.named(names[1]).recv(previous)?,
            ];
            if let Some(coming) = coming {
                [k, v] = coming.wait()?;
            }
        }
        let [of_k, of_v] = [0, 1].map(|at| led(of_text[at].as_ref(), owed[at].clone()));
        Ok([of_queries.expect("a ring has at least one rank"), of_k, of_v])
    }

    /// Sends the block at hand to the next rank and expects that of the rank before, unless all were seen.
    fn pass_on(&self, round: usize, [k, v]: [&Tensor<4>; 2]) -> comm::Result<Option<Coming>> {
        if round + 1 == self.group.size() {
            return Ok(None);
        }
        let [next, previous] = self.neighbours();
        self.group.send(next, k.clone())?;
        self.group.send(next, v.clone())?;
        Ok(Some(Coming([self.group.expect(previous)?, self.group.expect(previous)?])))
    }

    fn neighbours(&self) -> [usize; 2] {
        let (rank, size) = (self.group.rank(), self.group.size());
        [(rank + 1) % size, (rank + size - 1) % size]
    }

    /// Whose block is here in a round.
    fn owner(&self, round: usize) -> usize {
        (self.group.rank() + self.group.size() - round) % self.group.size()
    }

    /// What this rank looks at in a round: text is looked at with the first rank's block, and only then.
    fn block(&self, owner: usize, text: [&Option<Tensor<4>>; 2], own: [&Tensor<4>; 2]) -> Pair {
        let [k, v] = own.map(Tensor::clone);
        match owner {
            0 => [led(text[0].as_ref(), k), led(text[1].as_ref(), v)],
            _ => [k, v],
        }
    }

    fn inputs(&self, q: &Tensor<4>, [k, v]: Pair, owner: usize) -> AttentionInputs {
        let scale = 1.0 / (q.dims()[3] as f32).sqrt();
        AttentionInputs { q: q.clone(), k, v, mask: self.piece(q, owner), scale }
    }

    /// What the mask says of this rank's queries and the keys of a block.
    fn piece(&self, q: &Tensor<4>, owner: usize) -> Option<Tensor<4>> {
        let (mask, text) = (self.mask.as_ref()?, self.lead.text);
        let beyond = |range: &Range<usize>| range.start + text..range.end + text;
        let (queries, keys) = (beyond(&self.places.queries), beyond(&self.places.keys[owner]));
        let row = |queries: Range<usize>| {
            let own = mask.piece(queries.clone(), keys.clone(), &q.device());
            if owner != 0 || text == 0 {
                return own;
            }
            let lead = mask.piece(queries.clone(), 0..text, &q.device());
            beside(lead, own, [text, keys.len()], q)
        };
        match text {
            0 => row(queries),
            _ => above(row(0..text), row(queries.clone()), [text, queries.len()], q),
        }
    }

    /// Text, if there is any, and the rest of `[B, S, N, H]`.
    fn cut(&self, x: &Tensor<4>) -> (Option<Tensor<4>>, Tensor<4>) {
        match (self.lead.text, x.dims()[1]) {
            (0, _) => (None, x.clone()),
            (text, all) => {
                (Some(x.clone().slice_dim(1, 0..text)), x.clone().slice_dim(1, text..all))
            }
        }
    }

    /// What the queries of the text found in a block.
    fn text_rows(&self, here: &Found) -> Option<Found> {
        let text = self.lead.text;
        (text > 0).then(|| Found {
            out: here.out.clone().slice_dim(1, 0..text),
            lse: here.lse.clone().slice_dim(2, 0..text),
        })
    }

    /// The same with the answer to the text merged in the order of the ranks: every rank must find the same
    /// bits, whichever block it saw first.
    fn with_text(&self, found: Found, of_text: Vec<Option<Found>>) -> Found {
        let merged = of_text.into_iter().flatten().reduce(Found::merge);
        let Some(text) = merged else { return found };
        let rest = self.lead.text..found.out.dims()[1];
        let own =
            Found { out: found.out.slice_dim(1, rest.clone()), lse: found.lse.slice_dim(2, rest) };
        Found {
            out: Tensor::cat(vec![text.out, own.out], 1),
            lse: Tensor::cat(vec![text.lse, own.lse], 2),
        }
    }
}

/// Text, if there is any, before the rest.
fn led(text: Option<&Tensor<4>>, own: Tensor<4>) -> Tensor<4> {
    match text {
        Some(text) => Tensor::cat(vec![text.clone(), own], 1),
        None => own,
    }
}

/// Keys and values that are on their way.
struct Coming([comm::Expected<4>; 2]);

impl Coming {
    fn wait(self) -> comm::Result<Pair> {
        let [k, v] = self.0;
        Ok([k.wait()?, v.wait()?])
    }
}

impl Found {
    /// What was found in both of two blocks.
    fn merge(self, more: Found) -> Found {
        let [batch, heads, queries] = self.lse.dims();
        let highest = self.lse.clone().max_pair(more.lse.clone());
        // A query that sees nothing in either block has found nothing, and no number has a place there.
        let some = highest.clone().greater_elem(f32::MIN);
        let highest = highest.mask_fill(some.clone().bool_not(), 0.0);
        let weigh = |lse: Tensor<3>| (lse - highest.clone()).exp();
        let [own, other] = [weigh(self.lse), weigh(more.lse)];
        let total = own.clone() + other.clone();
        let lse =
            (total.clone().log() + highest).mask_fill(some.clone().bool_not(), f32::NEG_INFINITY);
        let total = total.mask_fill(some.bool_not(), 1.0);
        let share = |weight: Tensor<3>| -> Tensor<4> {
            let share = (weight / total.clone()).swap_dims(1, 2);
            share.reshape([batch, queries, heads, 1])
        };
        Found { out: self.out * share(own) + more.out * share(other), lse }
    }
}

/// Two pieces of a mask whose keys stand beside each other, of so many keys.
fn beside(
    left: Option<Tensor<4>>,
    right: Option<Tensor<4>>,
    [first, second]: [usize; 2],
    like: &Tensor<4>,
) -> Option<Tensor<4>> {
    joined(left, right, |[b, n, t, _]| ([b, n, t, first], [b, n, t, second]), 3, like)
}

/// Two pieces of a mask whose queries stand above each other, of so many queries.
fn above(
    top: Option<Tensor<4>>,
    bottom: Option<Tensor<4>>,
    [first, second]: [usize; 2],
    like: &Tensor<4>,
) -> Option<Tensor<4>> {
    joined(top, bottom, |[b, n, _, s]| ([b, n, first, s], [b, n, second, s]), 2, like)
}

/// Two pieces along `dim`, either of which may be without effect; `shapes` says what each is like where the
/// other is of some shape.
fn joined(
    left: Option<Tensor<4>>,
    right: Option<Tensor<4>>,
    shapes: impl Fn([usize; 4]) -> ([usize; 4], [usize; 4]),
    dim: usize,
    like: &Tensor<4>,
) -> Option<Tensor<4>> {
    let one = |tensor: &Option<Tensor<4>>| tensor.as_ref().map(Tensor::dims);
    let whole = match (one(&left), one(&right)) {
        (None, None) => return None,
        (Some(left), Some(right)) => std::array::from_fn(|at| left[at].max(right[at])),
        (Some(only), None) | (None, Some(only)) => only,
    };
    let (first, second) = shapes(whole);
    let fill = |tensor: Option<Tensor<4>>, shape: [usize; 4]| match tensor {
        Some(tensor) => tensor.expand(shape),
        None => Tensor::zeros(shape, &like.device()),
    };
    Some(Tensor::cat(vec![fill(left, first), fill(right, second)], dim))
}
