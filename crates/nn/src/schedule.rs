//! How a network is run, as a value that roles and pipelines hold.

use crate::attention::Plain;
use crate::backward::{Backward, Loss, Parameters, backward};
use crate::error::Result;
use crate::inputs::{Inputs, Prediction};
use crate::network::{Network, forward};
use crate::provider::Provider;
use crate::weights::Weights;

/// Runs networks: on one device, over ranks, with caches. Callers see whole inputs and whole answers;
/// which ranks take part, and what is kept or run again, is known here alone.
///
/// A schedule that remembers something keeps it behind a lock of its own.
pub trait Schedule: Send + Sync {
    /// A prediction outside any graph.
    ///
    /// # Errors
    /// Inputs or parameters do not fit the network, or the schedule cannot run it.
    fn predict(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &Inputs,
    ) -> Result<Prediction>;

    /// Predictions of one network for several inputs that do not depend on each other: the branches of a
    /// guidance.
    ///
    /// # Errors
    /// As [`Schedule::predict`].
    fn predict_all(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &[Inputs],
    ) -> Result<Vec<Prediction>> {
        inputs.iter().map(|inputs| self.predict(network, provider, inputs)).collect()
    }

    /// Loss and gradients. The loss sees the whole prediction and is asked once.
    ///
    /// # Errors
    /// As [`Schedule::predict`], or the loss failed.
    fn backward(
        &self,
        network: &dyn Network,
        parameters: Parameters<'_>,
        inputs: &Inputs,
        loss: Loss<'_>,
    ) -> Result<Backward>;
}

/// Which activations of a forward pass are kept for the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recompute {
    /// Everything: one graph of the whole model. The quickest, and the most memory.
    Never,
    /// The stream before each block; every block runs twice. The least memory.
    #[default]
    PerBlock,
    /// As per block, but the last so many blocks keep their graphs.
    Keep(usize),
}

impl Recompute {
    /// The policy for a model of `depth` blocks whose graphs take `block` bytes each, that keeps as
    /// many as `budget` bytes hold.
    pub fn within(budget: u64, block: u64, depth: usize) -> Recompute {
        match budget / block.max(1) {
            0 => Recompute::PerBlock,
            kept if kept >= depth as u64 => Recompute::Never,
            kept => Recompute::Keep(kept as usize),
        }
    }
}

/// One device that holds every token and every block.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneDevice {
    /// What is kept for the backward pass.
    pub recompute: Recompute,
}

impl Schedule for OneDevice {
    fn predict(
        &self,
        network: &dyn Network,
        provider: &dyn Provider,
        inputs: &Inputs,
    ) -> Result<Prediction> {
        forward(network, &Weights::new(provider), inputs, &mut Plain)
    }

    fn backward(
        &self,
        network: &dyn Network,
        parameters: Parameters<'_>,
        inputs: &Inputs,
        loss: Loss<'_>,
    ) -> Result<Backward> {
        backward(network, parameters, inputs, &mut Plain, loss, self.recompute)
    }
}
