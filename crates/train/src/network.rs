//! A model as training sees it: any family behind one object.

use nn::{Attention, Backward, Dit, Inputs, Loss, Prediction, Provider, Trainable, Weights};
use serde::{Deserialize, Serialize};

/// Which activations of a forward pass are kept for the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

/// A diffusion transformer behind an object; every [`Dit`] is one.
pub trait Network: Send + Sync {
    /// Asks for every parameter once; nothing runs.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    fn declare_parameters(&self, weights: &Weights<'_>) -> nn::Result<()>;

    /// The number of blocks.
    fn blocks(&self) -> usize;

    /// A forward pass outside any graph.
    ///
    /// # Errors
    /// Inputs or parameters do not fit.
    fn predict(
        &self,
        provider: &dyn Provider,
        inputs: &Inputs,
        attention: &mut dyn Attention,
    ) -> nn::Result<Prediction>;

    /// The loss and the gradients of the parameters that `trainable` accepts.
    ///
    /// # Errors
    /// Inputs or parameters do not fit.
    fn learn(
        &self,
        parameters: (&dyn Provider, Trainable<'_>),
        inputs: &Inputs,
        goal: (&mut dyn Attention, Loss<'_>),
        recompute: Recompute,
    ) -> nn::Result<Backward>;
}

impl<M: Dit + Send + Sync> Network for M {
    fn declare_parameters(&self, weights: &Weights<'_>) -> nn::Result<()> {
        self.declare(weights)
    }

    fn blocks(&self) -> usize {
        self.depth()
    }

    fn predict(
        &self,
        provider: &dyn Provider,
        inputs: &Inputs,
        attention: &mut dyn Attention,
    ) -> nn::Result<Prediction> {
        nn::forward(self, &Weights::new(provider), inputs, attention)
    }

    fn learn(
        &self,
        parameters: (&dyn Provider, Trainable<'_>),
        inputs: &Inputs,
        goal: (&mut dyn Attention, Loss<'_>),
        recompute: Recompute,
    ) -> nn::Result<Backward> {
        let (provider, trainable) = parameters;
        match recompute {
            Recompute::Never => nn::backward_whole(self, provider, trainable, inputs, goal),
            Recompute::PerBlock => nn::backward(self, provider, trainable, inputs, goal),
            Recompute::Keep(kept) => nn::backward_keeping(self, parameters, inputs, goal, kept),
        }
    }
}
