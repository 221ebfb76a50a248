//! A whole forward or backward pass over tokens that are spread over a group.
//!
//! Callers give whole inputs and get whole answers on every rank; only the model in between sees a
//! shard.

use std::cell::RefCell;

use burn::tensor::Tensor;
use comm::Group;
use nn::{Attention, Backward, Dit, Inputs, Loss, Prediction, Provider, Weights};

use crate::error::Result;
use crate::shard::{shard, share};

/// The same model, its tokens spread over `group`. `attention` must reach over that group.
///
/// # Errors
/// The model cannot run, or the ranks cannot exchange.
pub fn forward_sharded<M: Dit>(
    model: &M,
    weights: &Weights<'_>,
    inputs: &Inputs,
    attention: &mut dyn Attention,
    group: &Group,
) -> Result<Prediction> {
    let prediction = nn::forward(model, weights, &shard(inputs, group)?, attention)?;
    whole(&prediction, inputs, group)
}

/// Loss and gradients of the same model, its tokens spread over `group`.
///
/// `loss` sees the whole prediction on every rank and must compute the same there. Gradients of
/// parameters are added up in rank order, so all ranks hold the same bits; those of tokens are whole.
///
/// # Errors
/// The model cannot run, or the ranks cannot exchange.
///
/// # Panics
/// Panics if an exchange fails inside a backward step; that ends the other ranks too.
pub fn backward_sharded<M: Dit>(
    model: &M,
    provider: &dyn Provider,
    trainable: &dyn Fn(&str) -> bool,
    inputs: &Inputs,
    (attention, loss): (&mut dyn Attention, Loss<'_>),
    group: &Group,
) -> Result<Backward> {
    let own = shard(inputs, group)?;
    let failure = RefCell::new(None);
    let whole_loss = |prediction: &Prediction| match whole(prediction, inputs, group) {
        Ok(prediction) => loss(&prediction),
        Err(error) => {
            // The group is broken now, so nothing after this is exchanged or believed.
            failure.replace(Some(error));
            kernels::sum(prediction.video.clone())
        }
    };
    let result = nn::backward(model, provider, trainable, &own, (attention, &whole_loss));
    if let Some(error) = failure.take() {
        return Err(error);
    }
    let mut result = result?;
    for (name, gradient) in &mut result.parameters {
        let group = group.named(format!("the gradient of `{name}`"));
        *gradient = group.all_reduce(gradient.clone())?;
    }
    if let Some(tokens) = &mut result.tokens {
        *tokens = gather(&group.named("the gradient of the tokens"), tokens.clone())?;
    }
    Ok(result)
}

/// What all ranks predict together. `inputs` are whole too.
fn whole(own: &Prediction, inputs: &Inputs, group: &Group) -> Result<Prediction> {
    let join = |label: &str, own: &Tensor<3>, tokens: &Tensor<3>| -> comm::Result<Tensor<3>> {
        let joined = gather(&group.named(label), own.clone().inner())?;
        // Every rank computes the whole loss, so the part of its gradient that is this rank's
        // business is here already: nothing is exchanged and nothing is added up.
        let range = share(tokens.dims()[1], group.rank(), group.size());
        let adjoint = move |gradient: Tensor<3>| gradient.narrow(1, range.start, range.len());
        Ok(kernels::linear_map(own.clone(), move |_| joined.clone(), adjoint))
    };
    let video = join("the prediction", &own.video, &inputs.video.tokens)?;
    let audio = own.audio.as_ref().zip(inputs.audio.as_ref());
    let audio =
        audio.map(|(own, all)| join("the predicted sound", own, &all.tokens)).transpose()?;
    Ok(Prediction { video, audio })
}

/// `[B, own tokens, C]` to `[B, all tokens, C]`.
fn gather(group: &Group, own: Tensor<3>) -> comm::Result<Tensor<3>> {
    Ok(Tensor::cat(group.all_gather(own, 1)?, 1))
}
