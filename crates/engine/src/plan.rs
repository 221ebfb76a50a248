//! A request as a model will run it: every default filled in, so that it can be told, recorded and made
//! again.

use diffusion::{Grouping, SchedulerConfig};
use serde_json::{Map, Value};

use crate::error::Result;
use crate::estimate::Estimate;
use crate::guidance::MoreGuidance;
use crate::job::Job;
use crate::pipeline::{Frames, Pipeline, PipelineOutput};
use crate::progress::Progress;
use crate::request::{Fit, Request};

/// A request that was checked and can be run.
pub struct Plan {
    pub(crate) request: Request,
    pub(crate) job: Job,
    used: Used,
    estimate: Estimate,
}

/// What a request comes to with a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Used {
    /// How many samples are made.
    pub samples: usize,
    /// Frames, height and width that are generated.
    pub size: [usize; 3],
    /// Height and width that are delivered.
    pub delivered: [usize; 2],
    /// Frames per second; none of a picture.
    pub frame_rate: Option<f64>,
    /// Steps that were asked for; where a scheduler leaves some out, there are fewer timesteps.
    pub steps: usize,
    /// What takes the steps.
    pub solver: SolverUsed,
    /// The timestep of every step, from the noisiest to the last.
    pub timesteps: Vec<f64>,
    /// The noise levels that were asked for, or are those of the family's distilled checkpoints.
    pub levels: Option<Vec<f64>>,
    /// Guidance scales, one for each expert.
    pub guidance: Vec<f64>,
    /// The rest of guidance, for models that have it.
    pub more: Option<MoreGuidance>,
    /// Text tokens at the most, where an encoder reads the prompts.
    pub max_tokens: Option<usize>,
    /// How pictures come to have the size of the clip.
    pub fit: Fit,
    /// Whether sound is made or given.
    pub sounds: bool,
    /// The second of two stages; what is said of steps and guidance is of the first.
    pub enlarged: Option<EnlargedUsed>,
}

/// What the second of two stages comes to.
#[derive(Clone, Debug, PartialEq)]
pub struct EnlargedUsed {
    /// Frames, height and width of the first stage.
    pub from: [usize; 3],
    /// The noise levels of its steps.
    pub levels: Vec<f64>,
    /// The timesteps of its steps.
    pub timesteps: Vec<f64>,
    /// How far statistics are drawn back.
    pub adain: f64,
    /// How strongly large values are drawn in.
    pub tone_map: f64,
}

/// What takes the steps of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct SolverUsed {
    /// The class of the scheduler, or the name of the solver of distilled models.
    pub class: &'static str,
    /// The options of the scheduler that are not its class's own.
    pub options: Map<String, Value>,
}

impl SolverUsed {
    /// The name of the solver of distilled models.
    pub const RENOISE: &'static str = "renoise";

    pub(crate) fn renoise() -> SolverUsed {
        SolverUsed { class: SolverUsed::RENOISE, options: Map::new() }
    }

    pub(crate) fn of(scheduler: &SchedulerConfig) -> SolverUsed {
        SolverUsed { class: scheduler.class(), options: scheduler.options().clone() }
    }
}

impl Plan {
    /// What will be used.
    pub fn used(&self) -> &Used {
        &self.used
    }

    /// What it will take, about.
    pub fn estimate(&self) -> &Estimate {
        &self.estimate
    }

    /// What whoever asked should know before the work begins: text that is not read, pictures that change
    /// their proportions.
    pub fn notes(&self) -> &[String] {
        &self.job.notes
    }
}

impl Pipeline {
    /// Checks a request and reads what it gives; no network runs.
    ///
    /// # Errors
    /// It does not fit the model, or a file that it gives cannot be read.
    pub fn plan(&self, request: &Request) -> Result<Plan> {
        let job = self.job(request)?;
        let used = self.used(request, &job);
        let workload = self.workload_of(request, &job)?;
        let run = self.run_of(&job, &workload)?;
        let mut estimate = self.estimate(request, &job, (&run, &workload));
        if let Some(first) = &job.first {
            let workload = self.workload_of(request, first)?;
            let run = self.run_of(first, &workload)?;
            estimate = estimate.after(self.estimate(request, first, (&run, &workload)));
        }
        Ok(Plan { request: request.clone(), job, used, estimate })
    }

    /// What a request comes to.
    fn used(&self, request: &Request, job: &Job) -> Used {
        let moves = self.description.geometry.grouping != Grouping::Picture;
        let asked = job.asked();
        let timesteps = |job: &Job| job.sampler.steps().iter().map(|step| step.timestep).collect();
        let enlarged = job.first.as_ref().zip(request.enlarging.as_ref());
        let enlarged = enlarged.map(|(first, enlarging)| EnlargedUsed {
            from: first.size,
            levels: job.levels.clone().unwrap_or_default(),
            timesteps: timesteps(job),
            adain: enlarging.adain,
            tone_map: enlarging.tone_map,
        });
        Used {
            samples: job.samples,
            size: job.size,
            delivered: job.delivered,
            frame_rate: moves.then_some(job.frame_rate),
            steps: asked.steps,
            solver: asked.solver.clone(),
            timesteps: timesteps(asked),
            levels: asked.levels.clone(),
            guidance: asked.guidance.clone(),
            more: asked.more.clone(),
            max_tokens: job.rules.filter(|_| job.captions.is_none()).map(|rules| rules.max_tokens),
            fit: job.frame.fit,
            sounds: job.sound.is_some(),
            enlarged,
        }
    }

    /// Runs a plan of this pipeline.
    ///
    /// # Errors
    /// A network gave values that are not finite, a frame could not be kept, or the user interrupted.
    pub fn carry_out(
        &mut self,
        plan: &Plan,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<PipelineOutput> {
        self.run_job(&plan.request, &plan.job, progress, frames)
    }
}
