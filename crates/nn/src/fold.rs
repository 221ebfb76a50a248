//! The third seam: a diffusion transformer as a fold over blocks.
//!
//! `shared(inputs) -> embed -> block(0..depth) -> head`. Pipeline stages, recompute, offload and
//! step caches act between blocks, so none of them is visible inside a model.

use std::ops::Range;

use crate::attention::Attention;
use crate::error::Result;
use crate::inputs::{Inputs, Prediction};
use crate::store::Parameter;
use crate::weights::Weights;

/// Values that a schedule can send, save, detach and sum: a bag of tensors in a fixed order.
pub trait Bag: Sized {
    /// The tensors.
    fn tensors(&self) -> Vec<Parameter>;

    /// The same bag around other tensors of the same shapes; what is not a float stays.
    ///
    /// # Panics
    /// Panics if the number or the ranks of the tensors differ.
    fn with_tensors(&self, tensors: Vec<Parameter>) -> Self;
}

/// A diffusion transformer, written once, for one device. It holds no parameters: every step asks
/// `weights` for the layers it runs.
pub trait Dit {
    /// What every block sees: modulation, projected text, rope.
    type Shared: Bag;
    /// What flows from block to block.
    type Stream: Bag;

    /// The number of blocks.
    fn depth(&self) -> usize;

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
        weights: &Weights<'_>,
        stream: Self::Stream,
        shared: &Self::Shared,
        attention: &mut dyn Attention,
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

/// The whole model on this device.
///
/// # Errors
/// Whatever a part of it reports.
pub fn forward<M: Dit>(
    model: &M,
    weights: &Weights<'_>,
    inputs: &Inputs,
    attention: &mut dyn Attention,
) -> Result<Prediction> {
    let shared = model.shared(weights, inputs)?;
    let stream = model.embed(weights, inputs, &link(&shared))?;
    let shared = link(&shared);
    let (stream, shared) =
        run_blocks(model, weights, 0..model.depth(), (stream, shared), attention)?;
    model.head(weights, stream, &link(&shared))
}

/// One contiguous run of blocks: the unit a pipeline stage owns.
///
/// # Errors
/// Whatever a block reports.
pub fn run_blocks<M: Dit>(
    model: &M,
    weights: &Weights<'_>,
    blocks: Range<usize>,
    (mut stream, mut shared): (M::Stream, M::Shared),
    attention: &mut dyn Attention,
) -> Result<(M::Stream, M::Shared)> {
    for index in blocks {
        stream = model.block(index, weights, stream, &link(&shared), attention)?;
        shared = link(&shared);
    }
    Ok((stream, shared))
}

/// The same values as a new node of their graph, if they are in one.
///
/// Each block sees a node of its own, and hands the next block another. What a block owes to `Shared`
/// is thus added up before it meets what all later blocks owe, which is how block-wise backward adds:
/// the two agree to the bit.
pub(crate) fn link<B: Bag>(shared: &B) -> B {
    let tensors = shared.tensors();
    if !tensors.iter().any(|tensor| tensor.values.device().is_autodiff()) {
        return shared.with_tensors(tensors);
    }
    let linked = tensors.into_iter().map(|tensor| Parameter {
        values: if tensor.values.device().is_autodiff() {
            tensor.values * 1.0
        } else {
            tensor.values
        },
        shape: tensor.shape,
    });
    shared.with_tensors(linked.collect())
}
