//! Reading a diffusers `scheduler_config.json`.
//!
//! Every option of the supported classes is either honoured or, at a value we do not support,
//! refused by name. Missing options have diffusers' defaults.

use crate::ddim::DdimConfig;
use crate::ddpm::DdpmConfig;
use crate::dpm_config::DpmConfig;
use crate::flow_euler::FlowEulerConfig;
use crate::unipc_config::UniPcConfig;
use crate::update::Predicts;
use crate::{Error, Process, Result, Solver};
use crate::{ddim, ddpm, dpm_config, flow_euler, unipc_config};
use nn::ConfigReader;
use serde_json::{Map, Value};

/// The classes that can be read.
const CLASSES: [&str; 5] =
    [ddim::CLASS, ddpm::CLASS, dpm_config::CLASS, flow_euler::CLASS, unipc_config::CLASS];

/// ConfigReader of the classes that diffusers converts into one another.
///
/// It carries them along when it converts a config and does not look at them again, so they may
/// stand in the config of a class that does not have them.
const FOREIGN: [&str; 31] = [
    "algorithm_type",
    "clip_sample",
    "clip_sample_range",
    "disable_corrector",
    "euler_at_final",
    "final_sigmas_type",
    "flow_shift",
    "interpolation_type",
    "lambda_min_clipped",
    "lower_order_final",
    "predict_x0",
    "rho",
    "set_alpha_to_one",
    "shift_terminal",
    "sigma_data",
    "sigma_max",
    "sigma_min",
    "sigma_schedule",
    "skip_prk_steps",
    "solver_order",
    "solver_p",
    "solver_type",
    "time_shift_type",
    "timestep_type",
    "use_beta_sigmas",
    "use_dynamic_shifting",
    "use_exponential_sigmas",
    "use_flow_sigmas",
    "use_karras_sigmas",
    "use_lu_lambdas",
    "variance_type",
];

/// A checked scheduler config, from which solvers of any number of steps are built.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    kind: Kind,
    /// As they are written, without the class.
    options: Map<String, Value>,
}

/// Two are the same if they step alike, whatever else is written in them.
impl PartialEq for SchedulerConfig {
    fn eq(&self, other: &SchedulerConfig) -> bool {
        self.kind == other.kind
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Ddim(DdimConfig),
    Ddpm(DdpmConfig),
    DpmSolver(DpmConfig),
    FlowEuler(FlowEulerConfig),
    UniPc(UniPcConfig),
}

/// Shifts that can be asked for: beyond them all levels are one.
const SHIFTS: std::ops::RangeInclusive<f64> = 1e-3..=1e3;

impl SchedulerConfig {
    /// Reads the text of a `scheduler_config.json`.
    pub fn from_json(text: &str) -> Result<SchedulerConfig> {
        let mut options = ConfigReader::parse("the scheduler config", text)?;
        let Some(class) = options.class(&CLASSES)? else {
            let supported = CLASSES.join(", ");
            return Err(options.missing_of("_class_name", &supported).into());
        };
        let mut options = options.renamed(class);
        let written = options.rest().clone();
        let kind = match class {
            ddim::CLASS => Kind::Ddim(DdimConfig::read(&mut options)?),
            ddpm::CLASS => Kind::Ddpm(DdpmConfig::read(&mut options)?),
            dpm_config::CLASS => Kind::DpmSolver(DpmConfig::read(&mut options)?),
            unipc_config::CLASS => Kind::UniPc(UniPcConfig::read(&mut options)?),
            _ => Kind::FlowEuler(FlowEulerConfig::read(&mut options)?),
        };
        let foreign: &[_] = if matches!(kind, Kind::FlowEuler(_)) { &[] } else { &FOREIGN };
        options.ignore(foreign);
        options.finish()?;
        Ok(SchedulerConfig { kind, options: written })
    }

    /// The class names that [`SchedulerConfig::from_json`] reads.
    pub fn classes() -> &'static [&'static str] {
        &CLASSES
    }

    /// The diffusers class.
    pub fn class(&self) -> &'static str {
        match self.kind {
            Kind::Ddim(_) => ddim::CLASS,
            Kind::Ddpm(_) => ddpm::CLASS,
            Kind::DpmSolver(_) => dpm_config::CLASS,
            Kind::FlowEuler(_) => flow_euler::CLASS,
            Kind::UniPc(_) => unipc_config::CLASS,
        }
    }

    /// The options that it was read from or given since; what is missing has diffusers' default.
    pub fn options(&self) -> &Map<String, Value> {
        &self.options
    }

    /// The process that the network was trained on.
    pub fn process(&self) -> Process {
        let (betas, prediction) = match &self.kind {
            Kind::Ddim(config) => (&config.betas, config.prediction),
            Kind::Ddpm(config) => (&config.betas, config.prediction),
            Kind::DpmSolver(DpmConfig { betas, predicts, .. })
            | Kind::UniPc(UniPcConfig { betas, predicts, .. }) => match predicts {
                Predicts::Vp(prediction) => (betas, *prediction),
                Predicts::Flow => return Process::Flow,
            },
            Kind::FlowEuler(_) => return Process::Flow,
        };
        Process::Vp { alphas_cumprod: betas.alphas_cumprod.clone(), prediction }
    }

    /// The same config with DDIM's noise weight `eta`, from 0 (deterministic) to 1.
    pub fn with_eta(mut self, eta: f64) -> Result<SchedulerConfig> {
        let class = self.class();
        match &mut self.kind {
            Kind::Ddim(config) if (0.0..=1.0).contains(&eta) => {
                config.eta = eta;
                self.options.insert("eta".to_owned(), eta.into());
            }
            _ if eta == 0.0 => {}
            _ => return Err(Error::Eta { class, eta }),
        }
        Ok(self)
    }

    /// The same config of a flow with its noise levels moved towards noise by another `shift`; 1 leaves
    /// them where they are.
    pub fn with_flow_shift(&self, shift: f64) -> Result<SchedulerConfig> {
        let class = self.class();
        let key = match &self.kind {
            Kind::FlowEuler(config) => config.shift_key(),
            Kind::DpmSolver(config) => config.shift_key(),
            Kind::UniPc(config) => config.shift_key(),
            Kind::Ddim(_) | Kind::Ddpm(_) => None,
        };
        let Some(key) = key else { return Err(Error::NoFlowShift { class }) };
        if !SHIFTS.contains(&shift) {
            return Err(Error::FlowShift { shift });
        }
        let mut options = self.options.clone();
        options.insert(key.to_owned(), shift.into());
        options.insert("_class_name".to_owned(), class.into());
        SchedulerConfig::from_json(&Value::Object(options).to_string())
    }

    /// A solver of `steps` steps for latents of `sequence_length` tokens.
    ///
    /// The length only matters to a flow that is shifted by resolution. Where the config clips
    /// the noisiest timesteps, the solver may have fewer steps: ask [`Solver::steps`].
    pub fn solver(&self, steps: usize, sequence_length: usize) -> Result<Solver> {
        match &self.kind {
            Kind::Ddim(config) => config.solver(steps),
            Kind::Ddpm(config) => config.solver(steps),
            Kind::DpmSolver(config) => config.solver(steps),
            Kind::FlowEuler(config) => config.solver(steps, sequence_length),
            Kind::UniPc(config) => config.solver(steps),
        }
    }

    /// A solver on noise levels that a pipeline chooses: falling, from at most 1 to above 0.
    ///
    /// The config's shift is applied to them, as diffusers does with `set_timesteps(sigmas=…)`.
    pub fn solver_at(&self, sigmas: &[f64], sequence_length: usize) -> Result<Solver> {
        match &self.kind {
            Kind::FlowEuler(config) => config.solver_at(sigmas, sequence_length),
            Kind::UniPc(config) => config.solver_at(sigmas),
            _ => Err(Error::NoCustomSigmas { class: self.class() }),
        }
    }

    /// A solver on noise levels that are meant as they are: falling, from at most 1 to above 0, and moved by nothing
    /// that the config says.
    pub fn solver_exactly_at(&self, sigmas: &[f64]) -> Result<Solver> {
        match &self.kind {
            Kind::FlowEuler(config) => config.unmoved().solver_at(sigmas, 0),
            Kind::UniPc(config) => config.unmoved().solver_at(sigmas),
            _ => Err(Error::NoCustomSigmas { class: self.class() }),
        }
    }
}
