//! The few-step solver of distilled networks (DMD2): at each of some explicit timesteps the clean
//! sample is predicted and, but for the last, noised afresh to the next one.
//!
//! Rollouts of training, validation and `generate` take the same steps, so a network is sampled
//! as it was trained.

use crate::process::{Process, VpPrediction};
use crate::solver::{Solver, Step};
use crate::update::{Predicts, Scales, Update};
use crate::{Error, Result};

/// The name of the solver in messages.
const NAME: &str = "renoise";

impl Solver {
    /// A solver that goes to the clean sample and back at each of the `timesteps`, which fall.
    ///
    /// Those of a flow lie above 0 and up to 1000; those of a variance-preserving process are
    /// whole and trained ones. Every step but the last wants noise.
    ///
    /// # Errors
    ///
    /// If there are no timesteps, if they do not fall or lie outside of the process, or if the
    /// process has no signal at one of them from which the prediction could be used.
    pub fn renoise(process: &Process, timesteps: &[f64]) -> Result<Solver> {
        check(process, timesteps)?;
        let levels: Vec<Scales> = timesteps.iter().map(|at| scales(process, *at)).collect();
        let clean = Scales { alpha: 1.0, sigma: 0.0 };
        let ends = levels.iter().skip(1).chain([&clean]);
        let updates = levels.iter().zip(ends).map(|(from, to)| update(process, *from, *to));
        let steps = timesteps.iter().zip(&levels).map(|(at, scales)| Step::new(*at, *scales));
        Solver::without_memory(NAME, steps.collect(), updates.collect())
    }
}

fn update(process: &Process, from: Scales, to: Scales) -> Update {
    let predicts = match process {
        Process::Flow => Predicts::Flow,
        // Whatever the process, a clean sample is a clean sample.
        Process::FlowClean => Predicts::Vp(VpPrediction::Sample),
        Process::Vp { prediction, .. } => Predicts::Vp(*prediction),
    };
    let stay = Update::stay(predicts, from);
    Update { clean: (stay.clean.0, to.alpha), sample: 0.0, noise: to.sigma, ..stay }
}

/// How much signal and noise there is at a timestep that has been checked.
fn scales(process: &Process, timestep: f64) -> Scales {
    match process {
        Process::Flow | Process::FlowClean => Scales::from_flow(process.level(timestep) as f32),
        Process::Vp { alphas_cumprod, .. } => {
            Scales::from_alpha_cumprod(alphas_cumprod[timestep as usize])
        }
    }
}

fn check(process: &Process, timesteps: &[f64]) -> Result<()> {
    let allowed = match process {
        Process::Flow | Process::FlowClean => "numbers above 0, up to 1000".to_owned(),
        Process::Vp { alphas_cumprod, .. } => {
            format!("whole numbers from 0 to {}", alphas_cumprod.len().saturating_sub(1))
        }
    };
    let is_one = |timestep: f64| match process {
        Process::Flow | Process::FlowClean => timestep > 0.0 && process.level(timestep) <= 1.0,
        Process::Vp { alphas_cumprod, .. } => {
            timestep.fract() == 0.0 && (0.0..alphas_cumprod.len() as f64).contains(&timestep)
        }
    };
    let falls = |index: usize| index == 0 || timesteps[index] < timesteps[index - 1];
    if timesteps.is_empty() {
        return Err(Error::NoTimesteps { allowed });
    }
    match (0..timesteps.len()).find(|index| !is_one(timesteps[*index]) || !falls(*index)) {
        None => Ok(()),
        Some(index) => {
            Err(Error::Timesteps { number: index + 1, timestep: timesteps[index], allowed })
        }
    }
}
