//! Finetuning of two experts that share the noise levels, in one run.
//!
//! A step is about one of them: which is drawn from the seed and the step alone, so that ranks never run different
//! networks. Its levels are drawn from its side of the boundary. As an expert has as many steps as its side has
//! levels, all steps together follow the whole density.

use std::collections::BTreeMap;

use diffusion::Process;
use train::{Batch, Draws, Method, MethodReport, Pass, Result, Strategy, Trained};

use crate::finetune::{FinetuneConfig, learn};

/// What the roles are called: the expert of high levels, the expert of low ones.
pub const EXPERTS: [&str; 2] = ["student-high", "student-low"];

/// What their losses are called: each has a curve of its own.
const LOSSES: [&str; 2] = ["loss.high", "loss.low"];

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turns {
    seed: u64,
    high: f64,
}

impl Turns {
    /// Turns of a run with `seed`, of which a share `high` belongs to the expert of high levels.
    pub fn new(seed: u64, high: f64) -> Turns {
        Turns { seed, high }
    }

    /// The place in [`EXPERTS`] of the one that learns at an iteration.
    pub fn at(&self, iteration: u64) -> usize {
        let draw = Draws::new(self.seed, iteration, 0, 0).shared("expert");
        usize::from(f64::from(draw.uniform(0..1)[0]) >= self.high)
    }

    /// How many of so many steps belong to an expert.
    pub fn of(&self, expert: usize, steps: u64) -> u64 {
        (1..=steps).filter(|iteration| self.at(*iteration) == expert).count() as u64
    }
}

/// One of two experts.
pub struct Expert {
    /// The network that learns.
    pub role: Trained,
    /// What it learns, at its own levels.
    pub strategy: Box<dyn Strategy>,
}

/// Two roles that take turns.
pub struct FinetuneExperts {
    experts: [Expert; 2],
    turns: Turns,
    process: Process,
    config: FinetuneConfig,
}

impl FinetuneExperts {
    /// Experts of high and of low levels that learn under their family's `process`.
    ///
    /// # Errors
    /// A floor that is not above 0.
    pub fn new(
        experts: [Expert; 2],
        turns: Turns,
        process: Process,
        config: FinetuneConfig,
    ) -> Result<FinetuneExperts> {
        config.check()?;
        Ok(FinetuneExperts { experts, turns, process, config })
    }
}

impl Method for FinetuneExperts {
    fn name(&self) -> &'static str {
        "finetune"
    }

    fn accumulate(&mut self, batch: &Batch, pass: &Pass) -> Result<MethodReport> {
        let at = self.turns.at(pass.iteration);
        let Expert { role, strategy } = &mut self.experts[at];
        let inputs = self.config.prepare(&**strategy, &self.process, batch, pass)?;
        let mut report = learn(role, &**strategy, &inputs, pass)?;
        let totals = report.losses.iter_mut().filter(|loss| loss.name == "loss");
        totals.for_each(|loss| loss.name = LOSSES[at]);
        Ok(report)
    }

    fn updates(&self, iteration: u64) -> Vec<&'static str> {
        vec![self.experts[self.turns.at(iteration)].role.name()]
    }

    fn clipped(&self, iteration: u64) -> Vec<&'static str> {
        self.updates(iteration)
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.experts[0].strategy.metadata()
    }

    fn trained(&self) -> Vec<&Trained> {
        self.experts.iter().map(|expert| &expert.role).collect()
    }

    fn trained_mut(&mut self) -> Vec<&mut Trained> {
        self.experts.iter_mut().map(|expert| &mut expert.role).collect()
    }
}
