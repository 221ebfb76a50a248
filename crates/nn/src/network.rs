//! A network behind an object: what a schedule runs, whatever the family.

use std::ops::Range;

use crate::attention::Attention;
use crate::error::Result;
use crate::fold::{Dit, Forward};
use crate::inputs::{Inputs, Prediction};
use crate::packed::{Bag, Packed};
use crate::weights::Weights;

/// A diffusion transformer as a fold over packed bags. Every [`Dit`] is one; a family writes a `Dit`.
pub trait Network: Send + Sync {
    /// The number of blocks.
    fn depth(&self) -> usize;

    /// The number of heads of an attention.
    fn heads(&self) -> usize;

    /// Asks for every layer once; nothing runs.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    fn declare(&self, weights: &Weights<'_>) -> Result<()>;

    /// What every block sees.
    ///
    /// # Errors
    /// Inputs or parameters do not fit.
    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Packed>;

    /// Tokens into the stream.
    ///
    /// # Errors
    /// Inputs or parameters do not fit.
    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Packed) -> Result<Packed>;

    /// One block.
    ///
    /// # Errors
    /// Parameters or bags do not fit, or attention cannot be served.
    fn block(&self, index: usize, stream: Packed, pass: Forward<'_, Packed>) -> Result<Packed>;

    /// The stream into a prediction.
    ///
    /// # Errors
    /// Parameters or bags do not fit.
    fn head(&self, weights: &Weights<'_>, stream: Packed, shared: &Packed) -> Result<Prediction>;
}

impl<M: Dit + Send + Sync> Network for M {
    fn depth(&self) -> usize {
        self.sizes().depth
    }

    fn heads(&self) -> usize {
        self.sizes().heads
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        Dit::declare(self, weights)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Packed> {
        Ok(Dit::shared(self, weights, inputs)?.pack())
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Packed) -> Result<Packed> {
        let shared = M::Shared::unpack(shared.clone())?;
        Ok(Dit::embed(self, weights, inputs, &shared)?.pack())
    }

    fn block(&self, index: usize, stream: Packed, pass: Forward<'_, Packed>) -> Result<Packed> {
        let Forward { weights, shared, attention } = pass;
        let shared = &M::Shared::unpack(shared.clone())?;
        let pass = Forward { weights, shared, attention };
        Ok(Dit::block(self, index, M::Stream::unpack(stream)?, pass)?.pack())
    }

    fn head(&self, weights: &Weights<'_>, stream: Packed, shared: &Packed) -> Result<Prediction> {
        let shared = M::Shared::unpack(shared.clone())?;
        Dit::head(self, weights, M::Stream::unpack(stream)?, &shared)
    }
}

/// The whole network on this device.
///
/// # Errors
/// Whatever a part of it reports.
pub fn forward(
    network: &dyn Network,
    weights: &Weights<'_>,
    inputs: &Inputs,
    attention: &mut dyn Attention,
) -> Result<Prediction> {
    let shared = network.shared(weights, inputs)?;
    let stream = network.embed(weights, inputs, &link(&shared))?;
    let shared = link(&shared);
    let (stream, shared) =
        run_blocks(network, weights, 0..network.depth(), (stream, shared), attention)?;
    network.head(weights, stream, &link(&shared))
}

/// One contiguous run of blocks: the unit a pipeline stage owns.
///
/// # Errors
/// Whatever a block reports.
pub fn run_blocks(
    network: &dyn Network,
    weights: &Weights<'_>,
    blocks: Range<usize>,
    (mut stream, mut shared): (Packed, Packed),
    attention: &mut dyn Attention,
) -> Result<(Packed, Packed)> {
    for index in blocks {
        let linked = link(&shared);
        stream = network.block(index, stream, Forward { weights, shared: &linked, attention })?;
        shared = link(&shared);
    }
    Ok((stream, shared))
}

/// The same values as a new node of their graph, if they are in one.
///
/// Each block sees a node of its own, and hands the next block another. What a block owes to `Shared`
/// is thus added up before it meets what all later blocks owe, which is how block-wise backward adds:
/// the two agree to the bit.
pub(crate) fn link(shared: &Packed) -> Packed {
    shared.clone().map(|values| match values.device().is_autodiff() {
        true => values * 1.0,
        false => values,
    })
}
