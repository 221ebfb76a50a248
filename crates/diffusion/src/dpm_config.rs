//! The config of `DPMSolverMultistepScheduler` and the noise levels that follow from it.

use crate::Result;
use crate::betas::{BASIC_SCHEDULES, BetaSchedule, Betas};
use crate::ddim::refuse_thresholding;
use crate::dpm_solver::{Algorithm, DpmSolver, Method, Slope};
use crate::grid::{Grid, MULTISTEP_SPACINGS, check_steps, linspace};
use crate::process::VpPrediction;
use crate::sigmas::{LogSigmas, exponential, karras, shifted};
use crate::solver::{Solver, Step};
use crate::update::{Predicts, Scales};
use nn::ConfigReader;

/// The class name in diffusers.
pub(crate) const CLASS: &str = "DPMSolverMultistepScheduler";

/// Schedules this short end with steps of lower order.
const SHORT: usize = 15;

/// The most steps on a ladder that is not bound to timesteps; more is a typing error.
const MOST_STEPS: usize = 100_000;

/// A checked `DPMSolverMultistepScheduler` config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DpmConfig {
    pub(crate) betas: Betas,
    pub(crate) predicts: Predicts,
    method: Method,
    grid: Grid,
    ladder: Ladder,
    ending: Ending,
    /// Timesteps whose log-SNR is below are left out.
    lowest_lambda: f64,
}

/// Where the noise levels come from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ladder {
    /// From the trained timesteps, by their spacing.
    Trained,
    Karras,
    Exponential,
    /// Evenly in log-SNR, as Lu et al. propose.
    Lambdas,
    Flow {
        shift: f64,
    },
}

/// How the last steps are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ending {
    lower_order: bool,
    euler: bool,
    level: FinalLevel,
}

/// The noise level after the last step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FinalLevel {
    Zero,
    /// That of the first trained timestep.
    Lowest,
}

impl DpmConfig {
    pub(crate) fn read(options: &mut ConfigReader) -> Result<DpmConfig> {
        let betas = Betas::read_with_some_signal(options, &BASIC_SCHEDULES)?;
        refuse_thresholding(options)?;
        read_ignored(options)?;
        let ladder = Ladder::read(options, betas.trained())?;
        let grid = Grid::read(options, betas.trained(), &MULTISTEP_SPACINGS)?;
        let ending = Ending::read(options)?;
        Ok(DpmConfig {
            predicts: read_prediction(options, ladder)?,
            method: read_method(options, ending)?,
            lowest_lambda: options.lower_bound("lambda_min_clipped")?,
            betas,
            grid,
            ladder,
            ending,
        })
    }

    /// The option that holds the shift of a flow, if it is one.
    pub(crate) fn shift_key(&self) -> Option<&'static str> {
        matches!(self.ladder, Ladder::Flow { .. }).then_some("flow_shift")
    }

    pub(crate) fn solver(&self, steps: usize) -> Result<Solver> {
        let (timesteps, sigmas) = self.levels(steps)?;
        let last = match self.ending.level {
            FinalLevel::Zero => 0.0,
            FinalLevel::Lowest => self.betas.noise_to_signal()[0],
        };
        let levels: Vec<Scales> = sigmas
            .iter()
            .map(|sigma| *sigma as f32)
            .chain([last])
            .map(|sigma| self.scales(sigma))
            .collect();
        // diffusers keeps whole timesteps only, even of a ladder between them.
        let table = timesteps.iter().zip(&levels).map(|(t, scales)| Step::new(t.trunc(), *scales));
        let highest = |step| self.ending.highest_order(step, timesteps.len(), self.method.order);
        let solver = DpmSolver::new(self.method, self.predicts, &levels, highest);
        Solver::dpm_solver(CLASS, table.collect(), solver)
    }

    /// Timesteps and noise levels before every step.
    fn levels(&self, steps: usize) -> Result<(Vec<f64>, Vec<f64>)> {
        let trained = self.betas.noise_to_signal();
        let (lowest, highest) = (f64::from(trained[0]), f64::from(trained[trained.len() - 1]));
        let logs = LogSigmas::new(&trained);
        check_steps(steps, MOST_STEPS, CLASS)?;
        let sigmas = match self.ladder {
            Ladder::Trained => return self.trained_levels(&trained, steps),
            Ladder::Flow { shift } => return Ok(self.flow_levels(shift, steps)),
            Ladder::Karras => karras(highest, lowest, steps),
            Ladder::Exponential => exponential(highest, lowest, steps),
            Ladder::Lambdas => {
                let (high, low) = logs.ends();
                linspace(0.0, 1.0, steps)
                    .into_iter()
                    .map(|ramp| libm::exp(high + ramp * (low - high)))
                    .collect()
            }
        };
        let whole = self.ladder != Ladder::Exponential
            && self.betas.schedule != BetaSchedule::SquaredCosine;
        let timestep = |sigma: &f64| match whole {
            true => logs.timestep(*sigma).round_ties_even(),
            false => logs.timestep(*sigma),
        };
        Ok((sigmas.iter().map(timestep).collect(), sigmas))
    }

    /// The levels of trained timesteps, above the lowest log-SNR.
    fn trained_levels(&self, trained: &[f32], steps: usize) -> Result<(Vec<f64>, Vec<f64>)> {
        let below = |alpha: &&f32| {
            let lambda = libm::logf(alpha.sqrt()) - libm::logf((1.0 - **alpha).sqrt());
            lambda < self.lowest_lambda as f32
        };
        let clipped = self.betas.alphas_cumprod.iter().filter(below).count();
        let timesteps = self.grid.timesteps_below(trained.len() - clipped, steps, CLASS)?;
        let last = trained.len() - 1;
        // An offset can lead past the last timestep; its level is the last one's.
        let sigma = |timestep: &i64| f64::from(trained[(*timestep as usize).min(last)]);
        let sigmas = timesteps.iter().map(sigma).collect();
        Ok((timesteps.iter().map(|timestep| *timestep as f64).collect(), sigmas))
    }

    fn flow_levels(&self, shift: f64, steps: usize) -> (Vec<f64>, Vec<f64>) {
        let trained = self.betas.trained() as f64;
        let signal = linspace(1.0, 1.0 / trained, steps + 1);
        let sigmas: Vec<f64> =
            signal.iter().skip(1).rev().map(|signal| shifted(1.0 - signal, shift)).collect();
        (sigmas.iter().map(|sigma| sigma * trained).collect(), sigmas)
    }

    fn scales(&self, sigma: f32) -> Scales {
        match self.ladder {
            Ladder::Flow { .. } => Scales::from_flow(sigma),
            _ => Scales::from_noise_to_signal(sigma),
        }
    }
}

/// ConfigReader that change nothing for us: the engine drops variance channels, and dynamic shifting
/// only acts through a number that no pipeline passes.
fn read_ignored(options: &mut ConfigReader) -> Result<()> {
    let variances = ["null", "learned", "learned_range", "fixed_small", "fixed_large"];
    options.choice("variance_type", &variances.map(|name| (name, ())))?;
    options.must_be_off("use_dynamic_shifting", "false (and `flow_shift`)")?;
    Ok(options.choice("time_shift_type", &[("exponential", ())])?)
}

fn read_prediction(options: &mut ConfigReader, ladder: Ladder) -> Result<Predicts> {
    match ladder {
        Ladder::Flow { .. } => {
            let names = ["flow_prediction"].map(|name| (name, Predicts::Flow));
            Ok(options.choice("prediction_type", &names)?)
        }
        _ => {
            let names = [
                ("epsilon", VpPrediction::Epsilon),
                ("sample", VpPrediction::Sample),
                ("v_prediction", VpPrediction::Velocity),
            ];
            Ok(Predicts::Vp(options.choice("prediction_type", &names)?))
        }
    }
}

fn read_method(options: &mut ConfigReader, ending: Ending) -> Result<Method> {
    let algorithms = [
        ("dpmsolver++", Algorithm::Clean),
        ("sde-dpmsolver++", Algorithm::NoisyClean),
        ("dpmsolver", Algorithm::Epsilon),
        ("sde-dpmsolver", Algorithm::NoisyEpsilon),
        // What diffusers takes these for when it converts another scheduler's config.
        ("deis", Algorithm::Clean),
    ];
    let slopes = [
        ("midpoint", Slope::Midpoint),
        ("heun", Slope::Heun),
        ("logrho", Slope::Midpoint),
        ("bh1", Slope::Midpoint),
        ("bh2", Slope::Midpoint),
    ];
    let algorithm = options.choice("algorithm_type", &algorithms)?;
    let slope = options.choice("solver_type", &slopes)?;
    let order = options.count("solver_order", 2, 1..=3)?;
    let expands_epsilon = matches!(algorithm, Algorithm::Epsilon | Algorithm::NoisyEpsilon);
    if expands_epsilon && ending.level == FinalLevel::Zero {
        let only = "sigma_min with `algorithm_type` dpmsolver and sde-dpmsolver";
        return Err(options.unsupported("final_sigmas_type", &"zero".into(), only).into());
    }
    if algorithm == Algorithm::NoisyEpsilon && order == 3 {
        let only = "1, 2 with `algorithm_type` sde-dpmsolver";
        return Err(options.unsupported("solver_order", &order.into(), only).into());
    }
    Ok(Method { algorithm, slope, order })
}

impl Ladder {
    fn read(options: &mut ConfigReader, trained: usize) -> Result<Ladder> {
        options.must_be_off("use_beta_sigmas", "false (or `use_karras_sigmas`)")?;
        // diffusers reads these two from configs that began as another class.
        options.must_be_null("sigma_min")?;
        options.must_be_null("sigma_max")?;
        let shift = options.number("flow_shift", 1.0)?;
        let mut chosen = Vec::new();
        for (option, ladder) in [
            ("use_karras_sigmas", Ladder::Karras),
            ("use_lu_lambdas", Ladder::Lambdas),
            ("use_exponential_sigmas", Ladder::Exponential),
            ("use_flow_sigmas", Ladder::Flow { shift }),
        ] {
            if options.flag(option, false)? {
                chosen.push((option, ladder));
            }
        }
        match chosen[..] {
            [] => Ok(Ladder::Trained),
            [(option, Ladder::Flow { .. })] if trained != 1000 => {
                let only = "true with `num_train_timesteps` = 1000";
                Err(options.unsupported(option, &true.into(), only).into())
            }
            [(_, ladder)] => Ok(ladder),
            [(first, _), (second, _), ..] => {
                let only = format!("false where `{first}` is true");
                Err(options.unsupported(second, &true.into(), &only).into())
            }
        }
    }
}

impl Ending {
    fn read(options: &mut ConfigReader) -> Result<Ending> {
        let levels = [("zero", FinalLevel::Zero), ("sigma_min", FinalLevel::Lowest)];
        Ok(Ending {
            lower_order: options.flag("lower_order_final", true)?,
            euler: options.flag("euler_at_final", false)?,
            level: options.choice("final_sigmas_type", &levels)?,
        })
    }

    /// The highest order that `step` of `steps` may have.
    fn highest_order(&self, step: usize, steps: usize, order: usize) -> usize {
        let lower = self.lower_order && steps < SHORT;
        let first_only = self.euler || lower || self.level == FinalLevel::Zero;
        match steps - step {
            1 if first_only => 1,
            2 if lower => order.min(2),
            _ => order,
        }
    }
}
