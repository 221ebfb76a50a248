//! The worker: takes jobs one after another and runs them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{MAIN_SEPARATOR, Path};

use data::media::FrameRate;
use engine::{Frames, Pipeline, Plan, Progress, Request, most_memory};
use serde_json::Value;

use crate::ask::{Ask, LoraAsk};
use crate::error::{Answer, Refusal, Result};
use crate::jobs::{Failure, Job, Jobs, Made, Outcome, Taken};
use crate::limits::Limits;
use crate::model::{Loras, Model, Models};
use crate::output::Output;
use crate::watch::Watch;

/// How a machine runs what was checked: on one rank, or on several that share a request.
pub trait Executor: Send + Sync {
    /// Whether a request can be run with this layout and this memory.
    ///
    /// # Errors
    /// It cannot; the error says what would do.
    fn check(&self, pipeline: &Pipeline, request: &Request, plan: &Plan) -> engine::Result<()>;

    /// Runs a plan of a pipeline.
    ///
    /// # Errors
    /// As [`Pipeline::carry_out`].
    fn carry_out(
        &self,
        pipeline: &mut Pipeline,
        made: (&Request, &Plan),
        progress: &mut (dyn Progress + Send),
        frames: &mut (dyn Frames + Send),
    ) -> engine::Result<()>;

    /// What all layouts of so many ranks would take for a request: memory, time and traffic.
    ///
    /// # Errors
    /// The request does not fit the model.
    fn layouts(
        &self,
        pipeline: &Pipeline,
        request: &Request,
        ranks: usize,
    ) -> engine::Result<Value>;
}

/// All that checks and runs requests.
pub(crate) struct Engine {
    pub(crate) models: Models,
    pub(crate) loras: Loras,
    pub(crate) executor: Box<dyn Executor>,
    pub(crate) limits: Limits,
}

/// A request that can be run.
pub(crate) struct Checked {
    /// Frames, height and width that are delivered.
    pub(crate) size: [usize; 3],
    pub(crate) fps: Option<f64>,
    /// What whoever asked should know.
    pub(crate) notes: Vec<String>,
}

impl Engine {
    /// A pipeline of a model with the LoRAs of a request.
    fn adapted(&self, base: &Pipeline, loras: &[LoraAsk]) -> Answer<Pipeline> {
        if loras.is_empty() {
            return Ok(base.clone());
        }
        let sources = self.loras.sources(loras)?;
        let adapted = base.with_loras(&sources, &[]).map_err(Refusal::of_engine);
        adapted.map_err(|refusal| self.loras.hide(refusal))
    }

    /// Checks what a job asks for, whose files are in `folder`; no network runs.
    ///
    /// # Errors
    /// It does not fit the model, the limits or the machine.
    pub(crate) fn check(&self, ask: &Ask, folder: &Path) -> Answer<Checked> {
        let model = self.models.find(Some(&ask.model))?;
        let pipeline = self.adapted(&model.pipeline(), &ask.loras)?;
        let request = ask.request(folder);
        let plan = pipeline.plan(&request).map_err(Refusal::of_engine)?;
        let used = plan.used();
        self.limits.check_work(used)?;
        if let Some(rate) = used.frame_rate {
            let fault = |error: data::media::Error| Refusal::field("fps", format!("fps: {error}"));
            FrameRate::from_number(rate).map_err(fault)?;
        }
        self.executor.check(&pipeline, &request, &plan).map_err(Refusal::of_engine)?;
        let size = [used.size[0], used.delivered[0], used.delivered[1]];
        Ok(Checked { size, fps: used.frame_rate, notes: plan.notes().to_vec() })
    }
}

/// A pipeline that the worker keeps: its parameters stay open between jobs.
struct Kept {
    model: String,
    base: Pipeline,
    /// The same with the LoRAs of the last job that had any.
    adapted: Option<(Vec<LoraAsk>, Pipeline)>,
}

/// Runs jobs.
pub(crate) struct Worker<'a> {
    engine: &'a Engine,
    jobs: &'a Jobs,
    kept: Vec<Kept>,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(engine: &'a Engine, jobs: &'a Jobs) -> Worker<'a> {
        let keep = |model: &Model| Kept {
            model: model.id().to_owned(),
            base: model.pipeline(),
            adapted: None,
        };
        Worker { engine, jobs, kept: engine.models.0.iter().map(keep).collect() }
    }

    /// Works until the server stops.
    ///
    /// # Errors
    /// The table of jobs cannot be written.
    pub(crate) fn work(&mut self) -> Result<()> {
        while let Some(taken) = self.jobs.next()? {
            let limit = self.engine.limits.stage;
            let mut watch = Watch::new(self.jobs, &taken, limit);
            let Taken { job, .. } = taken;
            let made = catch_unwind(AssertUnwindSafe(|| self.make(&job, &mut watch)));
            let outcome = match made {
                Ok(Ok(made)) => Outcome::Made(made),
                Ok(Err(engine::Error::Interrupted)) => self.interrupted(&watch),
                Ok(Err(error)) => {
                    // Where its files are is nobody's business.
                    let place = format!("{}{MAIN_SEPARATOR}", self.jobs.place(&job.id).display());
                    Outcome::Failed(failure(
                        "generation_failed",
                        error.to_string().replace(&place, ""),
                    ))
                }
                Err(_) => {
                    // What it has left half-changed is not used again.
                    self.kept = Worker::new(self.engine, self.jobs).kept;
                    let message =
                        "the model failed in a way that is our fault; the server's log says where";
                    Outcome::Failed(failure("server_error", message.to_owned()))
                }
            };
            self.jobs.finish(&job.id, outcome)?;
            self.jobs.retain()?;
        }
        Ok(())
    }

    /// Why a job was interrupted.
    fn interrupted(&self, watch: &Watch<'_>) -> Outcome {
        match (self.jobs.is_stopping(), watch.is_late()) {
            (true, _) => Outcome::Stopped,
            (false, true) => {
                let seconds = self.engine.limits.stage.as_secs();
                let message =
                    format!("a stage took more than {seconds} seconds; ask for less at once");
                Outcome::Failed(failure("timeout", message))
            }
            (false, false) => Outcome::GivenUp,
        }
    }

    fn make(&mut self, job: &Job, watch: &mut Watch<'_>) -> engine::Result<Made> {
        let folder = self.jobs.place(&job.id);
        let executor = &self.engine.executor;
        let pipeline = self.pipeline(&job.ask)?;
        let request = job.ask.request(&folder);
        let plan = pipeline.plan(&request)?;
        watch.expect(plan.estimate());
        let rate = plan.used().frame_rate.unwrap_or(1.0);
        let mut output =
            Output::new(&folder, job.ask.makes, job.ask.format, FrameRate::from_number(rate)?);
        executor.carry_out(pipeline, (&request, &plan), watch, &mut output)?;
        let mut made = output.finish()?;
        made.stage_durations = watch.finish();
        made.peak_memory_mb = most_memory().map(|bytes| bytes >> 20);
        Ok(made)
    }

    /// The pipeline of a job. LoRAs are changed without opening the base again.
    fn pipeline(&mut self, ask: &Ask) -> engine::Result<&mut Pipeline> {
        let gone =
            || engine::Error::Unknown(format!("the model `{}` is served no more", ask.model));
        let at = self.kept.iter().position(|kept| kept.model == ask.model).ok_or_else(gone)?;
        if ask.loras.is_empty() {
            return Ok(&mut self.kept[at].base);
        }
        if self.kept[at].adapted.as_ref().is_none_or(|(loras, _)| *loras != ask.loras) {
            self.kept[at].adapted = None;
            let unfit = |refusal: Refusal| engine::Error::Unknown(refusal.message().to_owned());
            let adapted = self.engine.adapted(&self.kept[at].base, &ask.loras).map_err(unfit)?;
            self.kept[at].adapted = Some((ask.loras.clone(), adapted));
        }
        let adapted = self.kept[at].adapted.as_mut();
        Ok(&mut adapted.expect("it was made just now").1)
    }
}

fn failure(code: &str, message: String) -> Failure {
    Failure { code: code.to_owned(), message }
}
