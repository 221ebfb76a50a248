//! Euler's method on a straight flow, with a static or a resolution-dependent shift.

use crate::Result;
use crate::grid::{check_steps, linspace};
use crate::sigmas::{check_custom, exponential, karras, shifted, to_terminal};
use crate::solver::{Solver, Step};
use crate::update::{Predicts, Scales, Update};
use nn::ConfigReader;

/// The class name in diffusers.
pub(crate) const CLASS: &str = "FlowMatchEulerDiscreteScheduler";

/// The timesteps of a flow network, as [`crate::Process::Flow`] counts them.
const TRAINED: usize = 1000;

/// A checked `FlowMatchEulerDiscreteScheduler` config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlowEulerConfig {
    shift: Shift,
    /// The noise level that the last step starts from, if it is fixed.
    terminal: Option<f64>,
    ladder: Ladder,
    sampling: Sampling,
}

/// How noise levels are moved towards noise.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Shift {
    Static(f64),
    /// By the length of the sequence: `low.1` at `low.0` tokens, `high.1` at `high.0`.
    Dynamic {
        low: (f64, f64),
        high: (f64, f64),
        curve: Curve,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Curve {
    Exponential,
    Linear,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Ladder {
    Shifted,
    Karras,
    Exponential,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Sampling {
    /// Follows the velocity.
    Straight,
    /// Goes to the clean sample and adds fresh noise.
    Stochastic,
}

impl FlowEulerConfig {
    pub(crate) fn read(options: &mut ConfigReader) -> Result<FlowEulerConfig> {
        options.count("num_train_timesteps", TRAINED, TRAINED..=TRAINED)?;
        options.must_be_off("invert_sigmas", "false")?;
        options.must_be_off("use_beta_sigmas", "false (or `use_karras_sigmas`)")?;
        let karras = options.flag("use_karras_sigmas", false)?;
        let exponential = options.flag("use_exponential_sigmas", false)?;
        let stochastic = options.flag("stochastic_sampling", false)?;
        Ok(FlowEulerConfig {
            shift: Shift::read(options)?,
            // Zero is off, as in Python.
            terminal: options.optional_number("shift_terminal", None)?.filter(|end| *end != 0.0),
            ladder: match (karras, exponential) {
                (false, false) => Ladder::Shifted,
                (true, false) => Ladder::Karras,
                (false, true) => Ladder::Exponential,
                (true, true) => {
                    let only = "true for one of `use_karras_sigmas`, `use_exponential_sigmas`";
                    return Err(options
                        .unsupported("use_karras_sigmas", &true.into(), only)
                        .into());
                }
            },
            sampling: if stochastic { Sampling::Stochastic } else { Sampling::Straight },
        })
    }

    /// The option that holds the shift, if there is one for all lengths.
    pub(crate) fn shift_key(&self) -> Option<&'static str> {
        matches!(self.shift, Shift::Static(_)).then_some("shift")
    }

    /// A solver on diffusers' own noise levels.
    pub(crate) fn solver(&self, steps: usize, sequence_length: usize) -> Result<Solver> {
        // Each step has a level of its own in f32; more than this is a typing error.
        check_steps(steps, 100 * TRAINED, CLASS)?;
        // A static shift moves the ends of the grid before it moves the grid: diffusers shifts
        // the lowest level twice.
        let lowest = 1.0 / TRAINED as f32;
        let lowest = match self.shift {
            Shift::Static(shift) => {
                let shift = shift as f32;
                shift * lowest / (1.0 + (shift - 1.0) * lowest)
            }
            Shift::Dynamic { .. } => lowest,
        };
        let trained = TRAINED as f64;
        let timesteps = linspace(trained, f64::from(lowest) * trained, steps);
        self.solver_from(timesteps.iter().map(|t| t / trained).collect(), sequence_length)
    }

    /// A solver on the given noise levels, which are shifted like any others.
    pub(crate) fn solver_at(&self, sigmas: &[f64], sequence_length: usize) -> Result<Solver> {
        check_steps(sigmas.len(), 100 * TRAINED, CLASS)?;
        check_custom(sigmas, CLASS)?;
        let sigmas = sigmas.iter().map(|sigma| f64::from(*sigma as f32)).collect();
        self.solver_from(sigmas, sequence_length)
    }

    /// The same config, whose given levels stay where they are.
    pub(crate) fn unmoved(&self) -> FlowEulerConfig {
        let (shift, terminal, ladder) = (Shift::Static(1.0), None, Ladder::Shifted);
        FlowEulerConfig { shift, terminal, ladder, ..self.clone() }
    }

    fn solver_from(&self, sigmas: Vec<f64>, sequence_length: usize) -> Result<Solver> {
        let shifted = self.shift.apply(sigmas, sequence_length);
        let sigmas = to_terminal(shifted, self.terminal, CLASS)?;
        let (first, last) = (sigmas[0], sigmas[sigmas.len() - 1]);
        let sigmas = match self.ladder {
            Ladder::Shifted => sigmas,
            Ladder::Karras => karras(first, last, sigmas.len()),
            Ladder::Exponential => exponential(first, last, sigmas.len()),
        };
        let levels: Vec<f32> = sigmas.iter().map(|sigma| *sigma as f32).chain([0.0]).collect();
        let (table, updates) =
            levels.windows(2).map(|pair| (step(pair[0]), self.update(pair[0], pair[1]))).unzip();
        Solver::without_memory(CLASS, table, updates)
    }

    fn update(&self, sigma: f32, next: f32) -> Update {
        let stay = Update::stay(Predicts::Flow, Scales::from_flow(sigma));
        match self.sampling {
            Sampling::Straight => Update { prediction: next - sigma, ..stay },
            Sampling::Stochastic => {
                Update { clean: (stay.clean.0, 1.0 - next), sample: 0.0, noise: next, ..stay }
            }
        }
    }
}

fn step(sigma: f32) -> Step {
    Step::new(f64::from(sigma * TRAINED as f32), Scales::from_flow(sigma))
}

impl Shift {
    fn read(options: &mut ConfigReader) -> Result<Shift> {
        const LONGEST: usize = u32::MAX as usize;
        let shift = options.number("shift", 1.0)?;
        let dynamic = options.flag("use_dynamic_shifting", false)?;
        let base = options.number("base_shift", 0.5)?;
        let max = options.number("max_shift", 1.15)?;
        let base_length = options.count("base_image_seq_len", 256, 0..=LONGEST)?;
        let max_length = options.count("max_image_seq_len", 4096, 0..=LONGEST)?;
        let curves = [("exponential", Curve::Exponential), ("linear", Curve::Linear)];
        let curve = options.choice("time_shift_type", &curves)?;
        if dynamic && base_length == max_length {
            let other = format!("lengths other than `base_image_seq_len` = {base_length}");
            return Err(options
                .unsupported("max_image_seq_len", &max_length.into(), &other)
                .into());
        }
        Ok(match dynamic {
            false => Shift::Static(shift),
            true => Shift::Dynamic {
                low: (base_length as f64, base),
                high: (max_length as f64, max),
                curve,
            },
        })
    }

    fn apply(self, sigmas: Vec<f64>, sequence_length: usize) -> Vec<f64> {
        let strength = match self {
            Shift::Static(shift) => {
                return sigmas.into_iter().map(|sigma| shifted(sigma, shift)).collect();
            }
            Shift::Dynamic { low, high, curve } => {
                let slope = (high.1 - low.1) / (high.0 - low.0);
                let mu = sequence_length as f64 * slope + (low.1 - slope * low.0);
                match curve {
                    Curve::Exponential => libm::exp(mu),
                    Curve::Linear => mu,
                }
            }
        };
        sigmas.into_iter().map(|sigma| strength / (strength + (1.0 / sigma - 1.0))).collect()
    }
}
