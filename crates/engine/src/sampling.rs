//! The steps of a request: where they stand, what takes them, and what guides them.

use diffusion::{Guidance, Sampler, SchedulerConfig};
use families::Description;
use nn::Tracks;

use crate::error::{Error, Field, Result};
use crate::guidance::{GuidanceUsed, MoreGuidance, guidance};
use crate::job::of;
use crate::plan::SolverUsed;
use crate::request::{Request, Solving};

/// The steps of a request, what takes them, and the guidance of each expert.
pub(crate) struct Sampling {
    pub(crate) sampler: Sampler,
    pub(crate) solver: SolverUsed,
    pub(crate) steps: usize,
    /// Noise levels that were asked for, or are the family's.
    pub(crate) levels: Option<Vec<f64>>,
    pub(crate) guidance: Vec<f64>,
    pub(crate) more: Option<MoreGuidance>,
}

/// How a request is sampled, whose sequence has so many `tokens`, references included.
///
/// # Errors
/// The model cannot be sampled so, or something would do nothing.
pub(crate) fn sampling(
    model: &Description,
    request: &Request,
    tokens: usize,
    tracks: &Tracks<()>,
) -> Result<Sampling> {
    let few = request.few_timesteps(model.timesteps.as_deref())?;
    let levels = levels(model, request)?;
    let distilled = few.is_some() || matches!(request.solving, Solving::Distilled(_));
    let GuidanceUsed { experts, stg_blocks, more } = guidance(model, request, tracks, distilled)?;
    let process = model.process.clone();
    let (sampler, solver, steps) = match (few, &levels) {
        (Some(timesteps), _) => {
            shifts_nothing(request, "a distilled model's, which no scheduler takes")?;
            let sampler = Sampler::renoising(process, &timesteps);
            let sampler = sampler.map_err(|err| match request.solving {
                Solving::Renoise(_) => of(Field::Timesteps, &err),
                _ => folder::Error::Unfit(format!("the timesteps that the model records: {err}"))
                    .into(),
            })?;
            (sampler, SolverUsed::renoise(), timesteps.len())
        }
        (None, Some(levels)) => {
            shifts_nothing(request, "given as they are")?;
            let scheduler = scheduler(model, request)?;
            let sampler = Sampler::exactly_at(process, &scheduler, levels);
            let sampler = sampler.map_err(|err| of(Field::Levels, &err))?;
            (sampler, SolverUsed::of(&scheduler), levels.len())
        }
        (None, None) => {
            let steps = request.steps.unwrap_or(model.defaults.steps);
            let scheduler = scheduler(model, request)?;
            let sampler = match model.ladder.levels(steps) {
                Some(levels) => Sampler::at_levels(process, &scheduler, &levels, tokens),
                None => Sampler::scheduled(process, &scheduler, steps, tokens),
            };
            let sampler = sampler.map_err(|err| of(Field::Steps, &err))?;
            (sampler, SolverUsed::of(&scheduler), steps)
        }
    };
    let scales = experts.iter().map(Guidance::scale).collect();
    let sampler = sampler.guided(|timestep| experts[model.expert(timestep)]).skipping(stg_blocks);
    Ok(Sampling { sampler, solver, steps, levels, guidance: scales, more })
}

/// The noise levels that a request asks for, or that the family's distilled checkpoints have.
fn levels(model: &Description, request: &Request) -> Result<Option<Vec<f64>>> {
    let levels = match &request.solving {
        Solving::Levels(levels) | Solving::Distilled(Some(levels)) => levels.clone(),
        Solving::Distilled(None) => match model.family.distilled {
            Some(own) => own.levels.to_vec(),
            None => {
                let reason = format!(
                    "{} has no few levels of its own; give them, as in 1,0.75,0.5,0.25",
                    model.family.title
                );
                return Err(Error::request(Field::Levels, reason));
            }
        },
        Solving::Recorded | Solving::Scheduler | Solving::Renoise(_) => return Ok(None),
    };
    match request.steps {
        Some(_) => {
            let reason = "there are as many steps as noise levels are given; leave it out";
            Err(Error::request(Field::Steps, reason))
        }
        None => Ok(Some(levels)),
    }
}

/// Refuses a shift of steps that stand where they are.
fn shifts_nothing(request: &Request, whose: &str) -> Result<()> {
    match request.flow_shift {
        Some(_) => {
            let reason = format!("the steps are {whose}; leave it out");
            Err(Error::request(Field::FlowShift, reason))
        }
        None => Ok(()),
    }
}

/// The scheduler of the folder as a request changes it.
fn scheduler(model: &Description, request: &Request) -> Result<SchedulerConfig> {
    let mut scheduler = model.scheduler.clone();
    if let Some(eta) = request.eta {
        scheduler = scheduler.with_eta(eta).map_err(|err| of(Field::Eta, &err))?;
    }
    if let Some(shift) = request.flow_shift {
        scheduler = scheduler.with_flow_shift(shift).map_err(|err| of(Field::FlowShift, &err))?;
    }
    Ok(scheduler)
}
