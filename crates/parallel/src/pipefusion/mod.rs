//! PipeFusion: stages of blocks, and patches that flow through them step after step.
//!
//! A rank runs one stage. The first embeds, the last runs head, guidance and solver, and sends what it made
//! of a patch back to the first, which goes on with it at the next step: the pipeline never drains. While a
//! patch is at a step, attention sees fresh keys and values of the patches before it and those of the last
//! step of the patches after it ([`crate::stale`]). The first steps, and every step at which other weights
//! take over, are taken by the whole sequence at once, which is exact and fills what is kept.

mod remembered;
mod run;
mod segments;
mod stage;

use std::ops::Range;

use comm::{Axis, Mesh};
use nn::{Network, Prediction, Provider};

use crate::shard::Pieces;
use crate::tensor::Splits;

pub(crate) use segments::stages;

/// How a sampler runs over stages.
#[derive(Clone, Debug)]
pub struct PipeFusion {
    /// Where this rank stands.
    pub mesh: Mesh,
    /// How layers split over the tensor axis.
    pub splits: Splits,
    /// The blocks of each stage.
    pub stages: Vec<Range<usize>>,
    /// How many patches a sequence is cut into.
    pub patches: usize,
    /// Steps that are taken by the whole sequence at the beginning; one at the least.
    pub warmup: usize,
}

impl PipeFusion {
    /// The blocks of this rank's stage.
    pub fn blocks(&self) -> Range<usize> {
        self.stages[self.mesh.axis(Axis::Pipeline).rank()].clone()
    }
}

/// What a run asks of whoever has the weights.
pub trait Experts {
    /// Why it could not go on.
    type Error: From<diffusion::Error> + From<nn::Error> + From<comm::Error>;

    /// Which of its networks takes a step.
    fn expert(&self, step: usize) -> usize;

    /// Does `work` with the network of a step and its parameters.
    ///
    /// # Errors
    /// They cannot be had, or the work failed.
    fn with<T>(
        &mut self,
        step: usize,
        work: impl FnOnce(&dyn Network, &dyn Provider) -> Result<T, Self::Error>,
    ) -> Result<T, Self::Error>;

    /// Asked on the first stage before every step: whether to go on.
    ///
    /// # Errors
    /// The user asked to stop.
    fn check(&mut self, step: usize) -> Result<(), Self::Error>;

    /// Looks at what the network of a step predicted, on the last stage.
    ///
    /// # Errors
    /// It is not what a network should predict.
    fn inspect(&mut self, step: usize, prediction: &Prediction) -> Result<(), Self::Error>;

    /// The error of a stage that was told to stop.
    fn stopped(&self) -> Self::Error;
}

/// The patches of a track of so many tokens, of which `lead` are references: these belong to the first patch.
pub(crate) fn patches_of(lead: usize, own: usize, patches: usize) -> Pieces {
    let lengths = (0..patches).map(|patch| {
        let length = comm::share(own, patch, patches).len();
        if patch == 0 { lead + length } else { length }
    });
    Pieces::new(lengths.collect())
}
