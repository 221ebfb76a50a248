//! Tokens spread over a group, as a schedule.
//!
//! Callers give whole inputs and get whole answers on every rank; only the network in between sees a
//! shard.

use burn::tensor::Tensor;
use comm::Group;
use nn::{
    Attention, Backward, Inputs, Loss, Modality, Network, Parameters, Plain, Prediction, Provider,
    Recompute, Schedule, Weights,
};

use crate::error::Result;
use crate::shard::{shard, share};
use crate::ulysses::Ulysses;

/// The same network, its tokens spread over a group.
///
/// Losses see the whole prediction on every rank and must compute the same there. Gradients of
/// parameters are added up in rank order, so all ranks hold the same bits; those of tokens are whole.
///
/// An exchange that fails inside a backward step, which has no way to return an error, panics; that ends
/// the other ranks too.
#[derive(Clone, Debug)]
pub struct Sharded<A = Ulysses<Plain>> {
    /// Who shares the tokens.
    pub group: Group,
    /// How tokens mix over that group; every pass has a clone of it.
    pub attention: A,
    /// What is kept for the backward pass.
    pub recompute: Recompute,
}

impl Sharded {
    /// Tokens spread over `group` by Ulysses.
    pub fn ulysses(group: Group) -> Sharded {
        let attention = Ulysses { group: group.clone(), inner: Plain };
        Sharded { group, attention, recompute: Recompute::default() }
    }
}

impl<A: Attention + Clone + Send + Sync> Schedule for Sharded<A> {
    fn predict(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &Inputs,
    ) -> nn::Result<Prediction> {
        let own = shard(inputs, &self.group)?;
        let weights = Weights::new(provider);
        let prediction = nn::forward(network, &weights, &own, &mut self.attention.clone())?;
        Ok(whole(&prediction, inputs, &self.group)?)
    }

    fn backward(
        &self,
        network: &dyn Network,
        parameters: Parameters<'_>,
        inputs: &Inputs,
        loss: Loss<'_>,
    ) -> nn::Result<Backward> {
        let Sharded { group, attention, recompute } = self;
        let own = shard(inputs, group)?;
        let mut of_whole = |prediction: &Prediction| loss(&whole(prediction, inputs, group)?);
        let mut attention = attention.clone();
        let found =
            nn::backward(network, parameters, &own, &mut attention, &mut of_whole, *recompute)?;
        Ok(add_up(found, group)?)
    }
}

/// What the ranks found, added up for parameters and put together for tokens.
fn add_up(mut own: Backward, group: &Group) -> Result<Backward> {
    for (name, gradient) in &mut own.parameters {
        let group = group.named(format!("the gradient of `{name}`"));
        *gradient = group.all_reduce(gradient.clone())?;
    }
    own.tokens = own.tokens.named().try_map(|(name, tokens)| {
        gather(&group.named(format!("the gradient of the {name} tokens")), tokens)
    })?;
    Ok(own)
}

/// What all ranks predict together. `inputs` are whole too.
fn whole(own: &Prediction, inputs: &Inputs, group: &Group) -> Result<Prediction> {
    let join = |(name, (own, all)): (&str, (&Tensor<3>, &Modality))| -> comm::Result<Tensor<3>> {
        let label = format!("the {name} prediction");
        let joined = gather(&group.named(label), own.clone().inner())?;
        // Every rank computes the whole loss, so the part of its gradient that is this rank's
        // business is here already: nothing is exchanged and nothing is added up.
        let range = share(all.tokens.dims()[1], group.rank(), group.size());
        let adjoint = move |gradient: Tensor<3>| gradient.narrow(1, range.start, range.len());
        Ok(kernels::linear_map(own.clone(), move |_| joined.clone(), adjoint))
    };
    Ok(own.as_ref().zip(inputs.as_ref()).named().try_map(join)?)
}

/// `[B, own tokens, C]` to `[B, all tokens, C]`.
fn gather(group: &Group, own: Tensor<3>) -> comm::Result<Tensor<3>> {
    Ok(Tensor::cat(group.all_gather(own, 1)?, 1))
}
