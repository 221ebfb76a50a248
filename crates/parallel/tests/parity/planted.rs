//! The check sees what a layout can get wrong: each error here is planted, and must be found.

use burn::tensor::Tensor;
use comm::Group;
use nn::{
    Attention, Bag, Dit, Inputs, Parameter, Plain, Prediction, Qkv, Reach, Result, Site, Weights,
};
use parallel::Ulysses;
use testkit::parity::{Answer, Equals, Question, all, compare, loss};
use testkit::toy::{Shared, Stream, Toy};

use super::{TOLERANCE, sharded, toy, ulysses};

/// Runs the toy with two ranks and returns what the check finds.
fn found(run: impl Fn(&Question<Toy>, &Group) -> Answer + Sync) -> String {
    compare(&toy(2, 13), 2, TOLERANCE, run).expect_err("a planted error was not found")
}

type Twist = fn(Qkv) -> Qkv;
type Untwist = fn(Tensor<4>) -> Tensor<4>;

/// An attention that does `twist` to its inputs and `untwist` to its output.
struct Twisted<A> {
    inner: A,
    twist: Twist,
    untwist: Untwist,
}

impl<A: Attention> Attention for Twisted<A> {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Tensor<4>>,
    ) -> Result<Tensor<4>> {
        if reach != Reach::Own {
            return self.inner.attend(site, qkv, reach, mask);
        }
        let out = self.inner.attend(site, (self.twist)(qkv), reach, mask)?;
        Ok((self.untwist)(out))
    }
}

fn twisted(question: &Question<Toy>, group: &Group, (twist, untwist): (Twist, Untwist)) -> Answer {
    let inner = Ulysses { group: group.clone(), inner: Plain };
    sharded(question, group, &mut Twisted { inner, twist, untwist })
}

fn same<T>(x: T) -> T {
    x
}

/// Without an error planted, the same machinery passes.
#[test]
fn nothing_planted_is_nothing_found() {
    let question = toy(2, 13);
    compare(&question, 2, TOLERANCE, |question, group| twisted(question, group, (same, same)))
        .unwrap();
}

#[test]
fn heads_in_another_order() {
    let found = found(|question, group| twisted(question, group, (same, |out| out.flip([2]))));
    assert!(found.contains("the prediction"), "{found}");
}

#[test]
fn keys_and_values_mixed_up() {
    let swap = |Qkv { q, k, v }| Qkv { q, k: v, v: k };
    let found = found(|question, group| twisted(question, group, (swap, same)));
    assert!(found.contains("the prediction"), "{found}");
}

#[test]
fn keys_of_the_own_shard_only() {
    let found = found(|question, group| sharded(question, group, &mut Plain));
    assert!(found.contains("the prediction"), "{found}");
}

#[test]
fn shards_in_another_order() {
    let found = found(|question, group| {
        let mut answer = ulysses(question, group);
        let video = answer.prediction.video;
        let parts = video.split_with_sizes(vec![7, 6], 1).into_iter().rev().collect();
        answer.prediction.video = Tensor::cat(parts, 1);
        answer
    });
    assert!(found.contains("the prediction"), "{found}");
}

/// Ulysses whose backward pass keeps what it should exchange.
struct Forgetful(Ulysses<Plain>);

impl Attention for Forgetful {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Tensor<4>>,
    ) -> Result<Tensor<4>> {
        if reach != Reach::Own {
            return self.0.attend(site, qkv, reach, mask);
        }
        let Qkv { q, k, v } = qkv.clone();
        let inner = Qkv { q: q.inner(), k: k.inner(), v: v.inner() };
        let out = self.0.attend(site, inner, reach, mask)?;
        // The gradient of attention among the own tokens, around the right output.
        let own = Plain.attend(site, qkv, reach, mask)?;
        Ok(kernels::linear_map(own, move |_| out.clone(), same))
    }
}

#[test]
fn an_adjoint_that_forgets_to_exchange() {
    let found = found(|question, group| {
        let inner = Ulysses { group: group.clone(), inner: Plain };
        sharded(question, group, &mut Forgetful(inner))
    });
    assert!(found.contains("the gradient of the tokens"), "{found}");
}

/// Half the sum stands for the gradient of one rank of two.
#[test]
fn gradients_that_are_not_added_up_over_the_ranks() {
    let found = found(|question, group| {
        let mut answer = ulysses(question, group);
        for gradient in answer.backward.parameters.values_mut() {
            *gradient = gradient.clone() / 2.0;
        }
        answer
    });
    assert!(found.contains("the gradient of `blocks.0."), "{found}");
}

/// A toy of which only the first block owes `Shared` a gradient: what block-wise backward would give
/// if it kept the gradient of the block it visited last, where it should add up all of them.
struct Forgotten(Toy);

impl Dit for Forgotten {
    type Shared = Shared;
    type Stream = Stream;

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.0.declare(weights)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        self.0.shared(weights, inputs)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Shared) -> Result<Stream> {
        self.0.embed(weights, inputs, shared)
    }

    fn block(
        &self,
        index: usize,
        weights: &Weights<'_>,
        stream: Stream,
        shared: &Shared,
        attention: &mut dyn Attention,
    ) -> Result<Stream> {
        let cut = |x: Parameter| Parameter { values: x.values.inner(), shape: x.shape };
        let shared = match index {
            0 => shared.clone(),
            _ => shared.with_tensors(shared.tensors().into_iter().map(cut).collect()),
        };
        self.0.block(index, weights, stream, &shared, attention)
    }

    fn head(&self, weights: &Weights<'_>, stream: Stream, shared: &Shared) -> Result<Prediction> {
        self.0.head(weights, stream, shared)
    }
}

#[test]
fn a_backward_pass_that_does_not_add_up_over_the_blocks() {
    let Question { model, store, inputs } = toy(2, 13);
    let whole = nn::backward_whole(&model, &store, &all, &inputs, (&mut Plain, &loss)).unwrap();
    let forgotten = Forgotten(model);
    let blocks = nn::backward(&forgotten, &store, &all, &inputs, (&mut Plain, &loss)).unwrap();
    let found = whole.equals(&blocks, 1e-2).expect_err("a planted error was not found");
    assert!(found.contains("the gradient of `text.bias`"), "{found}");
}
