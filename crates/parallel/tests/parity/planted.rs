//! The check sees what a layout can get wrong: each error here is planted, and must be found.

use burn::tensor::Tensor;
use comm::Group;
use nn::{
    Attention, Backward, Inputs, Loss, Mask, Network, Parameters, Plain, Prediction, Provider, Qkv,
    Reach, Result, Schedule, Site,
};
use parallel::Spread;
use testkit::parity::compare;

use super::{SUMS, sharded, toy, ulysses};

/// Runs the toy with two ranks and returns what the check finds.
fn found(layout: impl Fn(&Group) -> Box<dyn Schedule> + Sync) -> String {
    compare(&toy(2, 13), 2, SUMS, layout).expect_err("a planted error was not found")
}

type Twist = fn(Qkv) -> Qkv;
type Untwist = fn(Tensor<4>) -> Tensor<4>;

/// An attention that does `twist` to its inputs and `untwist` to its output.
#[derive(Clone)]
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
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        if reach != Reach::Own {
            return self.inner.attend(site, qkv, reach, mask);
        }
        let out = self.inner.attend(site, (self.twist)(qkv), reach, mask)?;
        Ok((self.untwist)(out))
    }
}

fn twisted(group: &Group, (twist, untwist): (Twist, Untwist)) -> Box<dyn Schedule> {
    let inner = Spread::ulysses(group);
    sharded(group, Twisted { inner, twist, untwist })
}

fn same<T>(x: T) -> T {
    x
}

/// Without an error planted, the same machinery passes.
#[test]
fn nothing_planted_is_nothing_found() {
    compare(&toy(2, 13), 2, SUMS, |group| twisted(group, (same, same))).unwrap();
}

#[test]
fn heads_in_another_order() {
    let found = found(|group| twisted(group, (same, |out| out.flip([2]))));
    assert!(found.contains("the video prediction"), "{found}");
}

#[test]
fn keys_and_values_mixed_up() {
    let swap = |Qkv { q, k, v }| Qkv { q, k: v, v: k };
    let found = found(|group| twisted(group, (swap, same)));
    assert!(found.contains("the video prediction"), "{found}");
}

#[test]
fn keys_of_the_own_shard_only() {
    let found = found(|group| sharded(group, Plain));
    assert!(found.contains("the video prediction"), "{found}");
}

/// A schedule whose answers are changed.
struct Changed {
    inner: Box<dyn Schedule>,
    prediction: fn(Prediction) -> Prediction,
    backward: fn(Backward) -> Backward,
}

impl Schedule for Changed {
    fn predict(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &Inputs,
    ) -> Result<Prediction> {
        self.inner.predict(network, provider, inputs).map(self.prediction)
    }

    fn backward(
        &self,
        network: &dyn Network,
        parameters: Parameters<'_>,
        inputs: &Inputs,
        loss: Loss<'_>,
    ) -> Result<Backward> {
        self.inner.backward(network, parameters, inputs, loss).map(self.backward)
    }
}

#[test]
fn shards_in_another_order() {
    let prediction = |prediction: Prediction| {
        prediction.map(|own| {
            let parts = own.split_with_sizes(vec![7, 6], 1).into_iter().rev().collect();
            Tensor::cat(parts, 1)
        })
    };
    let found =
        found(|group| Box::new(Changed { inner: ulysses(group), prediction, backward: same }));
    assert!(found.contains("the video prediction"), "{found}");
}

/// Ulysses whose backward pass keeps what it should exchange.
#[derive(Clone)]
struct Forgetful(Spread);

impl Attention for Forgetful {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
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
    let found = found(|group| sharded(group, Forgetful(Spread::ulysses(group))));
    assert!(found.contains("the gradient of the video tokens"), "{found}");
}

/// Half the sum stands for the gradient of one rank of two.
#[test]
fn gradients_that_are_not_added_up_over_the_ranks() {
    let backward = |mut own: Backward| {
        for gradient in own.parameters.values_mut() {
            *gradient = gradient.clone() / 2.0;
        }
        own
    };
    let found =
        found(|group| Box::new(Changed { inner: ulysses(group), prediction: same, backward }));
    assert!(found.contains("the gradient of `blocks.0."), "{found}");
}
