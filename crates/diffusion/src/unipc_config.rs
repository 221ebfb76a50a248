//! The config of `UniPCMultistepScheduler` and the noise levels that follow from it.

use crate::betas::{BASIC_SCHEDULES, Betas};
use crate::ddim::refuse_thresholding;
use crate::grid::{Grid, MULTISTEP_SPACINGS, check_steps, linspace};
use crate::process::VpPrediction;
use crate::sigmas::{LogSigmas, check_custom, exponential, karras, shifted, to_terminal};
use crate::solver::{Solver, Step};
use crate::unipc::{Expands, Method, UniPc, Weighting};
use crate::update::{Predicts, Scales, VP_PREDICTIONS};
use crate::{Error, Result};
use nn::ConfigReader;

/// The class name in diffusers.
pub(crate) const CLASS: &str = "UniPCMultistepScheduler";

/// The most steps on a ladder that is not bound to timesteps; more is a typing error.
const MOST_STEPS: usize = 100_000;

/// A flow that starts at pure noise starts this far from it: its log-SNR must be finite.
const FROM_PURE_NOISE: f64 = 1e-6;

/// A checked `UniPCMultistepScheduler` config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UniPcConfig {
    pub(crate) betas: Betas,
    pub(crate) predicts: Predicts,
    method: Method,
    grid: Grid,
    ladder: Ladder,
    ending: Ending,
    /// The steps whose prediction is not corrected.
    uncorrected: Vec<usize>,
}

/// Where the noise levels come from.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ladder {
    /// From the trained timesteps, by their spacing.
    Trained,
    Karras(Bounds),
    Exponential(Bounds),
    Flow {
        shift: f64,
        /// The noise level that the last step starts from, if it is fixed.
        terminal: Option<f64>,
    },
    /// Karras' levels, as shares of noise in a flow.
    KarrasFlow(Bounds),
}

/// The lowest and the highest level of a ladder, where they are not the trained ones.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bounds {
    lowest: Option<f64>,
    highest: Option<f64>,
}

/// How the last steps are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ending {
    lower_order: bool,
    level: FinalLevel,
}

/// The noise level after the last step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum FinalLevel {
    Zero,
    /// That of the first trained timestep, or the last of a ladder of its own.
    Lowest,
}

impl UniPcConfig {
    pub(crate) fn read(options: &mut ConfigReader) -> Result<UniPcConfig> {
        let betas = Betas::read_with_some_signal(options, &BASIC_SCHEDULES)?;
        refuse_thresholding(options)?;
        options.must_be_off("use_dynamic_shifting", "false (and `flow_shift`)")?;
        options.choice("time_shift_type", &[("exponential", ())])?;
        options.must_be_null("solver_p")?;
        let ladder = Ladder::read(options, betas.trained())?;
        let ending = Ending::read(options)?;
        let method = read_method(options)?;
        if method.expands == Expands::Epsilon && ending.level == FinalLevel::Zero {
            let only = "sigma_min with `predict_x0` false";
            return Err(options.unsupported("final_sigmas_type", &"zero".into(), only).into());
        }
        Ok(UniPcConfig {
            predicts: read_prediction(options, ladder, method)?,
            grid: Grid::read(options, betas.trained(), &MULTISTEP_SPACINGS)?,
            uncorrected: read_uncorrected(options)?,
            betas,
            method,
            ladder,
            ending,
        })
    }

    /// The option that holds the shift of a flow, if it is one.
    pub(crate) fn shift_key(&self) -> Option<&'static str> {
        matches!(self.ladder, Ladder::Flow { .. }).then_some("flow_shift")
    }

    pub(crate) fn solver(&self, steps: usize) -> Result<Solver> {
        check_steps(steps, MOST_STEPS, CLASS)?;
        let trained = self.betas.noise_to_signal();
        let (timesteps, sigmas) = match self.ladder {
            Ladder::Trained => self.trained_levels(&trained, steps)?,
            Ladder::Flow { shift, terminal } => {
                let count = self.betas.trained() as f64;
                let mut sigmas = linspace(1.0, 1.0 / count, steps + 1);
                sigmas.pop();
                self.flow_levels(sigmas, shift, terminal)?
            }
            Ladder::Karras(bounds) => {
                let sigmas = bounds.ladder(karras, &trained, steps);
                let logs = LogSigmas::new(&trained);
                let timestep = |sigma: &f64| logs.timestep(*sigma).round_ties_even();
                (sigmas.iter().map(timestep).collect(), sigmas)
            }
            Ladder::Exponential(bounds) => {
                let sigmas = bounds.ladder(exponential, &trained, steps);
                let logs = LogSigmas::new(&trained);
                (sigmas.iter().map(|sigma| logs.timestep(*sigma)).collect(), sigmas)
            }
            Ladder::KarrasFlow(bounds) => {
                let ladder = bounds.ladder(karras, &trained, steps);
                let sigmas: Vec<f64> = ladder.iter().map(|sigma| sigma / (sigma + 1.0)).collect();
                let count = self.betas.trained() as f64;
                (sigmas.iter().map(|sigma| sigma * count).collect(), sigmas)
            }
        };
        self.solver_from(timesteps, sigmas)
    }

    /// A solver on the given noise levels of a flow, which are shifted like any others.
    pub(crate) fn solver_at(&self, sigmas: &[f64]) -> Result<Solver> {
        let Ladder::Flow { shift, terminal } = self.ladder else {
            return Err(Error::NoCustomSigmas { class: CLASS });
        };
        check_steps(sigmas.len(), MOST_STEPS, CLASS)?;
        check_custom(sigmas, CLASS)?;
        let (timesteps, sigmas) = self.flow_levels(sigmas.to_vec(), shift, terminal)?;
        self.solver_from(timesteps, sigmas)
    }

    /// The same config, whose given levels stay where they are, if it is one of a flow.
    pub(crate) fn unmoved(&self) -> UniPcConfig {
        let ladder = match self.ladder {
            Ladder::Flow { .. } => Ladder::Flow { shift: 1.0, terminal: None },
            other => other,
        };
        UniPcConfig { ladder, ..self.clone() }
    }

    /// `timesteps` and `sigmas` are those before every step.
    fn solver_from(&self, timesteps: Vec<f64>, sigmas: Vec<f64>) -> Result<Solver> {
        let last = match (self.ending.level, self.ladder) {
            (FinalLevel::Zero, _) => 0.0,
            (FinalLevel::Lowest, Ladder::Trained) => self.betas.noise_to_signal()[0],
            (FinalLevel::Lowest, _) => sigmas[sigmas.len() - 1] as f32,
        };
        let scales = match self.ladder {
            Ladder::Flow { .. } | Ladder::KarrasFlow(_) => Scales::from_flow,
            _ => Scales::from_noise_to_signal,
        };
        let levels: Vec<Scales> =
            sigmas.iter().map(|sigma| *sigma as f32).chain([last]).map(scales).collect();
        // diffusers keeps whole timesteps only, even of a ladder between them.
        let table = timesteps.iter().zip(&levels).map(|(t, scales)| Step::new(t.trunc(), *scales));
        let (steps, order) = (timesteps.len(), self.method.order);
        let highest = |step| if self.ending.lower_order { order.min(steps - step) } else { order };
        let corrects = |step| !self.uncorrected.contains(&step);
        let solver = UniPc::new(self.method, self.predicts, &levels, highest, corrects);
        Solver::unipc(CLASS, table.collect(), solver)
    }

    fn trained_levels(&self, trained: &[f32], steps: usize) -> Result<(Vec<f64>, Vec<f64>)> {
        let timesteps = self.grid.timesteps_below(trained.len(), steps, CLASS)?;
        let last = trained.len() - 1;
        // An offset can lead past the last timestep; its level is the last one's.
        let sigma = |timestep: &i64| f64::from(trained[(*timestep as usize).min(last)]);
        let sigmas = timesteps.iter().map(sigma).collect();
        Ok((timesteps.iter().map(|timestep| *timestep as f64).collect(), sigmas))
    }

    fn flow_levels(
        &self,
        sigmas: Vec<f64>,
        shift: f64,
        terminal: Option<f64>,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let shifted = sigmas.into_iter().map(|sigma| shifted(sigma, shift)).collect();
        let mut sigmas = to_terminal(shifted, terminal, CLASS)?;
        if (sigmas[0] - 1.0).abs() < FROM_PURE_NOISE {
            sigmas[0] -= FROM_PURE_NOISE;
        }
        let trained = self.betas.trained() as f64;
        Ok((sigmas.iter().map(|sigma| sigma * trained).collect(), sigmas))
    }
}

fn read_method(options: &mut ConfigReader) -> Result<Method> {
    let weightings = [
        ("bh2", Weighting::Bh2),
        ("bh1", Weighting::Bh1),
        // What diffusers takes these for when it converts another scheduler's config.
        ("midpoint", Weighting::Bh2),
        ("heun", Weighting::Bh2),
        ("logrho", Weighting::Bh2),
    ];
    let clean = options.flag("predict_x0", true)?;
    Ok(Method {
        expands: if clean { Expands::Clean } else { Expands::Epsilon },
        weighting: options.choice("solver_type", &weightings)?,
        order: options.count("solver_order", 2, 1..=3)?,
    })
}

fn read_prediction(options: &mut ConfigReader, ladder: Ladder, method: Method) -> Result<Predicts> {
    match ladder {
        Ladder::Flow { .. } | Ladder::KarrasFlow(_) if method.expands == Expands::Epsilon => {
            let only = "true with `use_flow_sigmas`";
            Err(options.unsupported("predict_x0", &false.into(), only).into())
        }
        Ladder::Flow { .. } | Ladder::KarrasFlow(_) => {
            let names = ["flow_prediction"].map(|name| (name, Predicts::Flow));
            Ok(options.choice("prediction_type", &names)?)
        }
        _ => Ok(Predicts::Vp(options.choice::<VpPrediction>("prediction_type", &VP_PREDICTIONS)?)),
    }
}

/// The steps after which the corrector is off. Those that no schedule has change nothing.
fn read_uncorrected(options: &mut ConfigReader) -> Result<Vec<usize>> {
    let numbers = options.numbers("disable_corrector")?.unwrap_or_default();
    if let Some(number) = numbers.iter().find(|number| number.fract() != 0.0) {
        let only = "lists of whole numbers";
        return Err(options.unsupported("disable_corrector", &(*number).into(), only).into());
    }
    Ok(numbers.iter().filter(|number| **number >= 0.0).map(|number| *number as usize).collect())
}

impl Ladder {
    fn read(options: &mut ConfigReader, trained: usize) -> Result<Ladder> {
        options.must_be_off("use_beta_sigmas", "false (or `use_karras_sigmas`)")?;
        let bounds = Bounds {
            lowest: options.optional_number("sigma_min", None)?,
            highest: options.optional_number("sigma_max", None)?,
        };
        let shift = options.number("flow_shift", 1.0)?;
        let terminal = options.optional_number("shift_terminal", None)?;
        let karras = options.flag("use_karras_sigmas", false)?;
        let exponential = options.flag("use_exponential_sigmas", false)?;
        let flow = options.flag("use_flow_sigmas", false)?;
        if flow && trained != 1000 {
            let only = "true with `num_train_timesteps` = 1000";
            return Err(options.unsupported("use_flow_sigmas", &true.into(), only).into());
        }
        if let Some(end) = terminal.filter(|_| !flow) {
            let only = "null without `use_flow_sigmas`";
            return Err(options.unsupported("shift_terminal", &end.into(), only).into());
        }
        if exponential && (karras || flow) {
            let only = "false where `use_karras_sigmas` or `use_flow_sigmas` is true";
            return Err(options.unsupported("use_exponential_sigmas", &true.into(), only).into());
        }
        bounds.check(options)?;
        Ok(match (karras, exponential, flow) {
            (true, _, true) => Ladder::KarrasFlow(bounds),
            (true, _, false) => Ladder::Karras(bounds),
            (false, true, _) => Ladder::Exponential(bounds),
            // A terminal of zero is none, as in Python.
            (false, false, true) => {
                Ladder::Flow { shift, terminal: terminal.filter(|end| *end != 0.0) }
            }
            (false, false, false) => Ladder::Trained,
        })
    }
}

impl Bounds {
    fn check(&self, options: &ConfigReader) -> Result<()> {
        for (option, bound) in [("sigma_min", self.lowest), ("sigma_max", self.highest)] {
            if let Some(bound) = bound.filter(|bound| *bound <= 0.0) {
                return Err(options
                    .unsupported(option, &bound.into(), "numbers above 0, null")
                    .into());
            }
        }
        Ok(())
    }

    fn ladder(
        &self,
        ladder: fn(f64, f64, usize) -> Vec<f64>,
        trained: &[f32],
        steps: usize,
    ) -> Vec<f64> {
        let highest = self.highest.unwrap_or(f64::from(trained[trained.len() - 1]));
        let lowest = self.lowest.unwrap_or(f64::from(trained[0]));
        ladder(highest, lowest, steps)
    }
}

impl Ending {
    fn read(options: &mut ConfigReader) -> Result<Ending> {
        let levels = [("zero", FinalLevel::Zero), ("sigma_min", FinalLevel::Lowest)];
        Ok(Ending {
            lower_order: options.flag("lower_order_final", true)?,
            level: options.choice("final_sigmas_type", &levels)?,
        })
    }
}
