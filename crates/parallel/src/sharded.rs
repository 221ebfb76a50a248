//! One prediction spread over ranks, as a schedule: tokens over a sequence group, matrices over a tensor
//! group.
//!
//! Callers give whole inputs and get whole answers on every rank; only the network in between sees a
//! shard.

use burn::tensor::Tensor;
use comm::{Axis, Group, Mesh, share};
use nn::{
    Attention, Backward, Inputs, Loss, Modality, Network, Parameters, Prediction, Provider,
    Recompute, Schedule, Weights,
};

use crate::error::Result;
use crate::shard::shard;
use crate::spread::Spread;
use crate::tensor::{Splits, TensorSplit};

/// The same network, its tokens and matrices spread over ranks.
///
/// Losses see the whole prediction on every rank and must compute the same there. Gradients of
/// parameters are added up in rank order, so all ranks hold the same bits; those of tokens are whole. Where
/// [`Gradients::Parts`] are wanted, both are left as the ranks found them.
///
/// An exchange that fails inside a backward step, which has no way to return an error, panics; that ends
/// the other ranks too.
#[derive(Clone, Debug)]
pub struct Sharded<A = Spread> {
    /// Who shares the tokens.
    pub sequence: Group,
    /// How tokens mix over that group; every pass has a clone of it.
    pub attention: A,
    /// Who shares the matrices, if they are shared.
    pub tensor: Option<TensorSplit>,
    /// What is kept for the backward pass.
    pub recompute: Recompute,
    /// What a backward pass ends with.
    pub gradients: Gradients,
}

/// What a backward pass over a sequence group and a tensor group ends with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gradients {
    /// Gradients of parameters are added up and those of tokens put together: every rank holds the whole.
    #[default]
    Whole,
    /// Each rank holds what its own tokens and its own parts of matrices owe, and what all ranks of a tensor group find
    /// whole is held by the first of them: whoever learns adds up once a step, over all ranks.
    Parts,
}

impl Sharded {
    /// Tokens spread over `group` by Ulysses.
    pub fn ulysses(group: &Group) -> Sharded {
        Sharded::by(Spread::ulysses(group))
    }

    /// Tokens spread over `group` by a ring.
    pub fn ring(group: &Group) -> Sharded {
        Sharded::by(Spread::ring(group))
    }

    /// Matrices spread over `group`.
    pub fn tensor(group: &Group, splits: Splits) -> Sharded {
        let tensor = Some(TensorSplit { group: group.clone(), splits });
        Sharded { tensor, ..Sharded::ulysses(&Group::solo()) }
    }

    /// Tokens and matrices spread over the axes of a mesh.
    pub fn over(mesh: &Mesh, splits: Splits) -> Sharded {
        let group = mesh.axis(Axis::Tensor);
        let tensor = (group.size() > 1).then(|| TensorSplit { group: group.clone(), splits });
        Sharded { tensor, ..Sharded::by(Spread::over(mesh)) }
    }

    /// The same for a network that learns: it leaves parts of gradients, and keeps so much for them.
    pub fn learning(mesh: &Mesh, splits: Splits, recompute: Recompute) -> Sharded {
        Sharded { recompute, gradients: Gradients::Parts, ..Sharded::over(mesh, splits) }
    }

    fn by(attention: Spread) -> Sharded {
        let (sequence, recompute) = (attention.sequence().clone(), Recompute::default());
        let gradients = Gradients::default();
        Sharded { sequence, attention, tensor: None, recompute, gradients }
    }
}

impl<A: Attention + Clone + Send + Sync> Schedule for Sharded<A> {
    fn predict(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &Inputs,
    ) -> nn::Result<Prediction> {
        let own = shard(inputs, &self.sequence)?;
        let mut attention = self.attention.clone();
        let prediction = match &self.tensor {
            Some(tensor) => {
                let provider = tensor.of(provider);
                nn::forward(network, &Weights::new(&provider), &own, &mut attention)?
            }
            None => nn::forward(network, &Weights::new(provider), &own, &mut attention)?,
        };
        Ok(whole(&prediction, inputs, &self.sequence)?)
    }

    fn backward(
        &self,
        network: &dyn Network,
        parameters: Parameters<'_>,
        inputs: &Inputs,
        loss: Loss<'_>,
    ) -> nn::Result<Backward> {
        let own = shard(inputs, &self.sequence)?;
        let mut of_whole =
            |prediction: &Prediction| loss(&whole(prediction, inputs, &self.sequence)?);
        let mut attention = self.attention.clone();
        let recompute = self.recompute;
        let found = match &self.tensor {
            Some(tensor) => {
                let provider = &tensor.learning(parameters.provider, self.gradients);
                let parameters = Parameters { provider, ..parameters };
                nn::backward(network, parameters, &own, &mut attention, &mut of_whole, recompute)?
            }
            None => {
                nn::backward(network, parameters, &own, &mut attention, &mut of_whole, recompute)?
            }
        };
        Ok(self.add_up(found)?)
    }
}

impl<A> Sharded<A> {
    /// What the ranks found, added up for parameters and put together for tokens.
    fn add_up(&self, mut own: Backward) -> Result<Backward> {
        if self.gradients == Gradients::Parts {
            self.tensor.iter().for_each(|tensor| tensor.own_share(&mut own.parameters));
            return Ok(own);
        }
        for (name, gradient) in &mut own.parameters {
            let label = format!("the gradient of `{name}`");
            *gradient = self.sequence.named(label.as_str()).all_reduce(gradient.clone())?;
            if let Some(tensor) = self.tensor.as_ref().filter(|own| own.is_in_parts(name)) {
                *gradient = tensor.group.named(label).all_reduce(gradient.clone())?;
            }
        }
        own.tokens = own.tokens.named().try_map(|(name, tokens)| {
            gather(&self.sequence.named(format!("the gradient of the {name} tokens")), tokens)
        })?;
        Ok(own)
    }
}

/// What all ranks predict together. `inputs` are whole too.
fn whole(own: &Prediction, inputs: &Inputs, group: &Group) -> Result<Prediction> {
    let join = |(name, (own, all)): (&str, (&Tensor<3>, &Modality))| -> comm::Result<Tensor<3>> {
        let label = format!("the {name} prediction");
        let joined = gather(&group.named(label), own.clone().inner())?;
        // Every rank computes the whole loss, so the part of its gradient that is this rank's
        // business is here already: nothing is exchanged and nothing is added up.
        let range = share(all.tokens.dims()[1], group.rank(), group.size());
        let adjoint = move |gradient: Tensor<3>| [gradient.narrow(1, range.start, range.len())];
        Ok(kernels::with_gradient([own.clone()], joined, adjoint))
    };
    Ok(own.as_ref().zip(inputs.as_ref()).named().try_map(join)?)
}

/// `[B, own tokens, C]` to `[B, all tokens, C]`.
fn gather(group: &Group, own: Tensor<3>) -> comm::Result<Tensor<3>> {
    Ok(Tensor::cat(group.all_gather(own, &[1])?, 1))
}
