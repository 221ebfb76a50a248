//! The settings of DMD2, as a recipe has them.

use diffusion::{Process, shifted_level};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use train::{Error, Result, STUDENT};

/// The name of the role that follows the student's samples.
pub(super) const CRITIC: &str = "critic";

/// Settings of DMD2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dmd2Config {
    /// What the student starts its samples from.
    pub rollout: Rollout,
    /// The timesteps of the student, falling: those it will be sampled at.
    pub timesteps: Vec<f64>,
    /// The student is updated at every so many iterations, the critic at each.
    #[serde(default = "one")]
    pub student_every: u64,
    /// How far the teacher is pushed away from its unconditional prediction; 1 needs none.
    #[serde(default = "unit")]
    pub guidance: f64,
    /// What the teacher's unconditional prediction sees.
    #[serde(default)]
    pub unconditional: Unconditional,
    /// The lowest and the highest level at which samples are scored, from 0 to 1.
    #[serde(default = "whole")]
    pub score_range: [f64; 2],
    /// Moves the levels of scores, and warped timesteps, towards noise: the one shift there is.
    #[serde(default = "unit")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub shift: f64,
    /// Whether the shift moves the student's timesteps too.
    #[serde(default)]
    pub warp: bool,
}

/// What the student starts its samples from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rollout {
    /// From pure noise, step by step, as it will be sampled; data are not needed but for their shape.
    Simulate,
    /// From data, noised to one of the timesteps.
    Data,
}

/// What the unconditional prediction sees in place of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unconditional {
    /// The negative prompt.
    #[default]
    NegativePrompt,
    /// Zeros.
    Zero,
}

fn one() -> u64 {
    1
}

fn unit() -> f64 {
    1.0
}

fn whole() -> [f64; 2] {
    [0.0, 1.0]
}

impl Dmd2Config {
    /// Whether the negative prompt must be encoded: only if something looks at it.
    pub fn needs_negative_prompt(&self) -> bool {
        self.guidance != 1.0 && self.unconditional == Unconditional::NegativePrompt
    }

    /// The roles that are updated at an iteration, which counts from 1.
    pub fn updates(&self, iteration: u64) -> Vec<&'static str> {
        match iteration.is_multiple_of(self.student_every.max(1)) {
            true => vec![STUDENT, CRITIC],
            false => vec![CRITIC],
        }
    }

    /// How often a role is updated in the first `steps` iterations.
    pub fn horizon(&self, role: &str, steps: u64) -> u64 {
        if role == STUDENT { steps / self.student_every.max(1) } else { steps }
    }

    /// The student's timesteps as it is run at them: training, validation and export use these.
    pub fn student_timesteps(&self, process: &Process) -> Vec<f64> {
        let warp = |timestep: &f64| match (self.warp, process) {
            (true, Process::Flow | Process::FlowClean) => {
                1000.0 * shifted_level(process.level(*timestep), self.shift)
            }
            _ => *timestep,
        };
        self.timesteps.iter().map(warp).collect()
    }

    /// # Errors
    /// A number that cannot be.
    pub fn check(&self) -> Result<()> {
        if self.student_every == 0 {
            return Err(Error::setting("method.student_every", 0, "it is at least 1"));
        }
        if !self.guidance.is_finite() {
            return Err(Error::setting("method.guidance", self.guidance, "it is a number"));
        }
        if !(self.shift.is_finite() && self.shift > 0.0) {
            return Err(Error::setting("method.shift", self.shift, "it is above 0"));
        }
        let [low, high] = self.score_range;
        match 0.0 <= low && low < high && high <= 1.0 {
            true => Ok(()),
            false => {
                let found = format!("{:?}", self.score_range);
                Err(Error::setting("method.score_range", found, "it rises, between 0 and 1"))
            }
        }
    }
}
