//! The network of `tools/goldens/dmd2.py`, and a schedule that counts how often it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::Tensor;
use kernels::silu;
use nn::{
    Backward, Bag, Dit, Entry, Forward, Inputs, Loss, Network, OneDevice, Packed, Parameters,
    Prediction, Provider, Result, Schedule, Sizes, Weights,
};

/// A few matrices; every token sees the mean of all.
#[derive(Clone, Copy)]
pub(crate) struct Tiny {
    pub(crate) channels: usize,
    pub(crate) text: usize,
    pub(crate) width: usize,
}

/// `[B, 1, W]`.
pub(crate) struct Shared(Tensor<3>);

/// `[B, T, W]`.
pub(crate) struct Stream(Tensor<3>);

impl Dit for Tiny {
    type Shared = Shared;
    type Stream = Stream;

    fn sizes(&self) -> Sizes {
        Sizes { depth: 1, heads: 1 }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        weights.linear("text", self.text, self.width)?;
        weights.table("time", [self.width])?;
        weights.linear("embed", self.channels, self.width)?;
        weights.linear("blocks.0.mix", self.width, self.width)?;
        weights.linear("head", self.width, self.channels).map(drop)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        let text = inputs.video.as_ref().unwrap().context.tokens.clone().mean_dim(1);
        weights.linear("text", self.text, self.width)?.apply(text).map(Shared)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, _: &Shared) -> Result<Stream> {
        let [samples, tokens, _] = inputs.video.as_ref().unwrap().tokens.dims();
        let levels = &inputs.video.as_ref().unwrap().levels;
        let each = match &levels.index {
            Some(index) => levels.distinct.clone().gather(1, index.clone()),
            None => levels.distinct.clone().expand([samples, tokens]),
        };
        let time = weights.table("time", [self.width])?.reshape([1, 1, self.width]);
        let level = train::beside(&time, each.reshape([samples, tokens, 1]) / 1000.0);
        let embed = weights.linear("embed", self.channels, self.width)?;
        Ok(Stream(embed.apply(inputs.video.as_ref().unwrap().tokens.clone())? + time * level))
    }

    fn block(&self, index: usize, stream: Stream, pass: Forward<'_, Shared>) -> Result<Stream> {
        let Forward { weights, shared, .. } = pass;
        let mix = weights.linear(&format!("blocks.{index}.mix"), self.width, self.width)?;
        let mixed = mix.apply(stream.0.clone())? + shared.0.clone();
        let mean = stream.0.clone().mean_dim(1);
        Ok(Stream(stream.0 + silu(mixed) + mean))
    }

    fn head(&self, weights: &Weights<'_>, stream: Stream, _: &Shared) -> Result<Prediction> {
        let video = weights.linear("head", self.width, self.channels)?.apply(stream.0)?;
        Ok(Prediction::video(video))
    }
}

impl Bag for Shared {
    fn pack(self) -> Packed {
        Packed::of([("text", Entry::tensor(self.0))])
    }

    fn unpack(mut packed: Packed) -> Result<Shared> {
        packed.tensor("text").map(Shared)
    }
}

impl Bag for Stream {
    fn pack(self) -> Packed {
        Packed::of([("tokens", Entry::tensor(self.0))])
    }

    fn unpack(mut packed: Packed) -> Result<Stream> {
        packed.tensor("tokens").map(Stream)
    }
}

/// How often a network ran outside and inside a graph.
#[derive(Clone, Default)]
pub(crate) struct Counts(Arc<[AtomicUsize; 2]>);

impl Counts {
    /// Since the last call.
    pub(crate) fn take(&self) -> [usize; 2] {
        [0, 1].map(|kind| self.0[kind].swap(0, Ordering::Relaxed))
    }
}

/// A schedule that counts.
pub(crate) struct Counted(pub(crate) Counts);

impl Schedule for Counted {
    fn predict(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &Inputs,
    ) -> Result<Prediction> {
        self.0.0[0].fetch_add(1, Ordering::Relaxed);
        OneDevice::default().predict(network, provider, inputs)
    }

    fn backward(
        &self,
        network: &dyn Network,
        parameters: Parameters<'_>,
        inputs: &Inputs,
        loss: Loss<'_>,
    ) -> Result<Backward> {
        self.0.0[1].fetch_add(1, Ordering::Relaxed);
        OneDevice::default().backward(network, parameters, inputs, loss)
    }
}
