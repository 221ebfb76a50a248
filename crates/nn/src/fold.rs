//! The third seam: a diffusion transformer as a fold over blocks.
//!
//! `shared(inputs) -> embed -> block(0..depth) -> head`. Pipeline stages, recompute, offload and
//! step caches act between blocks, so none of them is visible inside a model. A family writes a [`Dit`];
//! whoever runs one sees a [`Network`](crate::Network).

use crate::attention::Attention;
use crate::error::Result;
use crate::inputs::{Inputs, Prediction};
use crate::packed::Bag;
use crate::weights::Weights;

/// A diffusion transformer, written once, for one device. It holds no parameters: every step asks
/// `weights` for the layers it runs.
pub trait Dit {
    /// What every block sees: modulation, projected text, rope.
    type Shared: Bag;
    /// What flows from block to block.
    type Stream: Bag;

    /// How many blocks and heads it has.
    fn sizes(&self) -> Sizes;

    /// Asks for every layer of the model once; nothing runs.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    fn declare(&self, weights: &Weights<'_>) -> Result<()>;

    /// What every block sees.
    ///
    /// # Errors
    /// Inputs or parameters do not fit.
    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Self::Shared>;

    /// Tokens into the stream.
    ///
    /// # Errors
    /// Inputs or parameters do not fit.
    fn embed(
        &self,
        weights: &Weights<'_>,
        inputs: &Inputs,
        shared: &Self::Shared,
    ) -> Result<Self::Stream>;

    /// One block.
    ///
    /// # Errors
    /// Parameters do not fit, or attention cannot be served.
    fn block(
        &self,
        index: usize,
        stream: Self::Stream,
        pass: Forward<'_, Self::Shared>,
    ) -> Result<Self::Stream>;

    /// The stream into a prediction.
    ///
    /// # Errors
    /// Parameters do not fit.
    fn head(
        &self,
        weights: &Weights<'_>,
        stream: Self::Stream,
        shared: &Self::Shared,
    ) -> Result<Prediction>;
}

/// What a layout divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// The number of blocks.
    pub depth: usize,
    /// The number of heads of an attention.
    pub heads: usize,
}

/// What a block is given beside its stream.
pub struct Forward<'a, S> {
    /// Where its layers come from.
    pub weights: &'a Weights<'a>,
    /// What every block sees.
    pub shared: &'a S,
    /// How tokens mix.
    pub attention: &'a mut dyn Attention,
}
