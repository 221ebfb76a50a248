//! DDPM (Ho et al. 2020): the ancestral sampler, with fresh noise at every step but the last.

use crate::Result;
use crate::betas::{BASIC_SCHEDULES, BetaSchedule, Betas};
use crate::ddim::{SPACINGS, read_clip};
use crate::grid::Grid;
use crate::process::VpPrediction;
use crate::solver::{Solver, Step};
use crate::update::{Predicts, Scales, Update, VP_PREDICTIONS};
use nn::ConfigReader;

/// The class name in diffusers.
pub(crate) const CLASS: &str = "DDPMScheduler";

/// A checked `DDPMScheduler` config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DdpmConfig {
    pub(crate) betas: Betas,
    pub(crate) prediction: VpPrediction,
    grid: Grid,
    clip: Option<f32>,
    variance: Variance,
}

/// How much noise a step adds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Variance {
    /// The variance of the posterior, exact for data that is a single point.
    Small,
    /// The same, by way of its logarithm.
    SmallLog,
    /// The step's beta, exact for data that is noise.
    Large,
}

/// The learned ones need channels that the engine has dropped; `fixed_large_log` takes the root
/// of a negative logarithm in diffusers.
const VARIANCES: [(&str, Variance); 3] = [
    ("fixed_small", Variance::Small),
    ("fixed_small_log", Variance::SmallLog),
    ("fixed_large", Variance::Large),
];

impl DdpmConfig {
    pub(crate) fn read(options: &mut ConfigReader) -> Result<DdpmConfig> {
        let mut schedules = BASIC_SCHEDULES.to_vec();
        schedules.extend([("sigmoid", BetaSchedule::Sigmoid), ("laplace", BetaSchedule::Laplace)]);
        let betas = Betas::read(options, &schedules)?;
        Ok(DdpmConfig {
            prediction: options.choice("prediction_type", &VP_PREDICTIONS)?,
            grid: Grid::read(options, betas.trained(), &SPACINGS)?,
            clip: read_clip(options)?,
            variance: options.choice("variance_type", &VARIANCES)?,
            betas,
        })
    }

    pub(crate) fn solver(&self, steps: usize) -> Result<Solver> {
        let timesteps = self.grid.timesteps(steps, CLASS)?;
        let alpha_at = |timestep: i64| self.betas.alphas_cumprod[timestep as usize];
        let mut table = Vec::with_capacity(steps);
        let mut updates = Vec::with_capacity(steps);
        for (index, &timestep) in timesteps.iter().enumerate() {
            let alpha = alpha_at(timestep);
            let next = timesteps.get(index + 1).map_or(1.0, |next| alpha_at(*next));
            let mut update = self.update(alpha, next);
            if timestep == 0 {
                update.noise = 0.0;
            }
            table.push(Step::new(timestep as f64, Scales::from_alpha_cumprod(alpha)));
            updates.push(update);
        }
        Solver::without_memory(CLASS, table, updates)
    }

    /// The step between two shares of signal: formula (7) of the paper.
    fn update(&self, alpha: f32, next: f32) -> Update {
        let step_alpha = alpha / next;
        let step_beta = 1.0 - step_alpha;
        let stay = Update::stay(Predicts::Vp(self.prediction), Scales::from_alpha_cumprod(alpha));
        Update {
            clean: (stay.clean.0, next.sqrt() * step_beta / (1.0 - alpha)),
            clip: self.clip,
            sample: step_alpha.sqrt() * (1.0 - next) / (1.0 - alpha),
            noise: self.variance.deviation((1.0 - next) / (1.0 - alpha) * step_beta, step_beta),
            ..stay
        }
    }
}

impl Variance {
    fn deviation(self, posterior: f32, step_beta: f32) -> f32 {
        let posterior = posterior.max(1e-20);
        match self {
            Variance::Small => posterior.sqrt(),
            Variance::SmallLog => libm::expf(0.5 * libm::logf(posterior)),
            Variance::Large => step_beta.sqrt(),
        }
    }
}
