//! The worker: takes jobs one after another and runs them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use data::media::FrameRate;
use engine::{Frames, Pipeline, Plan, Progress, Request, most_memory};
use serde_json::Value;

use crate::ask::Ask;
use crate::error::{Answer, Error, Refusal, Result};
use crate::given;
use crate::jobs::{Failure, Job, Jobs, Made, Outcome, Taken};
use crate::limits::Limits;
use crate::model::{Loras, Model, Models};
use crate::order::Run;
use crate::output::{Output, Outputs};
use crate::pipelines::Pipelines;
use crate::watch::Watch;

/// How a machine runs what was checked: on one rank, or on several that share a request.
pub trait Executor: Send + Sync {
    /// Whether a request can be run with this layout and this memory.
    ///
    /// # Errors
    /// It cannot; the error says what would do.
    fn check(&self, pipeline: &Pipeline, request: &Request, plan: &Plan) -> engine::Result<()>;

    /// Makes a run with the pipeline that it was planned for.
    ///
    /// # Errors
    /// As [`Pipeline::carry_out`].
    fn carry_out(
        &self,
        pipeline: &mut Pipeline,
        run: &Run<'_>,
        progress: &mut (dyn Progress + Send),
        frames: &mut (dyn Frames + Send),
    ) -> engine::Result<()>;

    /// Why nothing can be run any more, if so: what was being made waits for the next start of the server.
    fn lost(&self) -> Option<String> {
        None
    }

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
    /// What is said, without where the files of a job, of LoRAs and of models are.
    pub(crate) fn hide(&self, refusal: Refusal, folder: &Path) -> Refusal {
        let refusal = self.loras.hide(refusal.without(folder));
        let places = self.models.0.iter().flat_map(Model::places);
        places.fold(refusal, |refusal, place| refusal.without(place))
    }

    /// The pixels that are decoded of what a job is given, whose files are in `folder`; nothing is decoded.
    ///
    /// # Errors
    /// The model takes no such thing, or it is too much.
    pub(crate) fn given_pixels(&self, ask: &Ask, folder: &Path) -> Answer<u64> {
        let description = self.models.find(Some(&ask.model))?.description();
        for own in &ask.given {
            engine::check_taken(own.role, description).map_err(Refusal::of_engine)?;
        }
        let frames = ask.numbers.frames.unwrap_or(description.defaults.size[0]);
        given::pixels(&ask.given, folder, frames, self.limits.given)
    }

    /// Checks what a job asks for, whose files are in `folder`; no network runs.
    ///
    /// # Errors
    /// It does not fit the model, the limits or the machine.
    pub(crate) fn check(&self, ask: &Ask, folder: &Path) -> Answer<Checked> {
        let model = self.models.find(Some(&ask.model))?;
        let pipeline = self.loras.adapted(&model.pipeline(), &ask.loras)?;
        let request = ask.request(folder);
        let hidden = |error| self.hide(Refusal::of_engine(error), folder);
        let plan = pipeline.plan(&request).map_err(hidden)?;
        let used = plan.used();
        self.limits.check_work(used)?;
        if let Some(rate) = used.frame_rate {
            let fault = |error: data::media::Error| Refusal::field("fps", format!("fps: {error}"));
            FrameRate::from_number(rate).map_err(fault)?;
        }
        self.executor.check(&pipeline, &request, &plan).map_err(hidden)?;
        let size = [used.size[0], used.delivered[0], used.delivered[1]];
        Ok(Checked { size, fps: used.frame_rate, notes: plan.notes().to_vec() })
    }
}

/// Runs jobs.
pub(crate) struct Worker<'a> {
    engine: &'a Engine,
    jobs: &'a Jobs,
    pipelines: Pipelines,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(engine: &'a Engine, jobs: &'a Jobs) -> Worker<'a> {
        Worker { engine, jobs, pipelines: Pipelines::of(&engine.models) }
    }

    /// Works until the server stops.
    ///
    /// # Errors
    /// The table of jobs cannot be written.
    pub(crate) fn work(&mut self) -> Result<()> {
        let jobs = self.jobs;
        while let Some(first) = jobs.next()? {
            let is_alone = first.job.is_suspect();
            let alike = |job: &Job| !is_alone && first.job.ask.shares_a_run(&job.ask);
            let more = jobs.join(alike, || self.room(&first.job).saturating_sub(1))?;
            let mut all = vec![first];
            all.extend(more);
            self.run(all)?;
            self.jobs.retain()?;
        }
        Ok(())
    }

    /// How many jobs like this one can share a run: small clips can, and none is another for it.
    fn room(&mut self, job: &Job) -> usize {
        let folder = self.jobs.place(&job.id);
        let workload = self
            .pipelines
            .of_ask(&job.ask, &self.engine.loras)
            .and_then(|own| own.workload(&job.ask.request(&folder)));
        let tokens = workload.ok().and_then(|own| own.tokens.video);
        tokens.map_or(1, engine::samples_together)
    }

    /// Runs jobs together, and says what came of each. If that fails, each has another try alone: what is wrong with one
    /// is not the others' fault.
    fn run(&mut self, all: Vec<Taken>) -> Result<()> {
        let mut watch = Watch::new(self.jobs, &all, self.engine.limits.stage);
        let jobs: Vec<&Job> = all.iter().map(|own| &own.job).collect();
        let made = catch_unwind(AssertUnwindSafe(|| self.make(&jobs, &mut watch)));
        if made.is_err() {
            // What it has left half-changed is not used again.
            self.pipelines = Pipelines::of(&self.engine.models);
        }
        if let Some(reason) = self.engine.executor.lost() {
            // It is nobody's fault who waits: all begin again.
            jobs.iter().try_for_each(|job| self.jobs.finish(&job.id, Outcome::Stopped))?;
            return Err(Error::Lost(reason));
        }
        let outcome = match made {
            Ok(Ok(made)) => {
                for (job, made) in jobs.iter().zip(made) {
                    self.jobs.finish(&job.id, Outcome::Made(made))?;
                }
                return Ok(());
            }
            // What took too long together is no job's fault either.
            Ok(Err(engine::Error::Interrupted))
                if all.len() == 1 || self.jobs.is_stopping() || !watch.is_late() =>
            {
                self.interrupted(&watch)
            }
            _ if all.len() > 1 => {
                return all.into_iter().try_for_each(|own| {
                    match own.abort.load(Ordering::Relaxed) {
                        true => self.jobs.finish(&own.job.id, Outcome::GivenUp),
                        false => self.run(vec![own]),
                    }
                });
            }
            Ok(Err(error)) => {
                // Where files are is nobody's business, and what is wrong with the server's is for its log.
                let hidden = |refusal| self.engine.hide(refusal, &self.jobs.place(&jobs[0].id));
                let refusal = hidden(Refusal::of_engine(error));
                let code = if refusal.is_ours() { "server_error" } else { "generation_failed" };
                Outcome::Failed(failure(code, refusal.message().to_owned()))
            }
            Err(_) => {
                let message =
                    "the model failed in a way that is our fault; the server's log says where";
                Outcome::Failed(failure("server_error", message.to_owned()))
            }
        };
        jobs.iter().try_for_each(|job| self.jobs.finish(&job.id, outcome.clone()))
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

    /// Makes jobs that share a run, one after another if it is one.
    fn make(&mut self, jobs: &[&Job], watch: &mut Watch<'_>) -> engine::Result<Vec<Made>> {
        let Engine { executor, loras, .. } = self.engine;
        let first = jobs.first().expect("a run is of some job");
        let folders: Vec<PathBuf> = jobs.iter().map(|job| self.jobs.place(&job.id)).collect();
        let asks = jobs.iter().map(|job| &job.ask).zip(folders.iter().map(PathBuf::as_path));
        let asks: Vec<_> = asks.collect();
        let pipeline = self.pipelines.of_ask(&first.ask, loras)?;
        let request = Ask::shared_request(&asks);
        let plan = pipeline.plan(&request)?;
        if jobs.len() > 1 {
            // Each was found to fit alone.
            executor.check(pipeline, &request, &plan)?;
        }
        watch.expect(plan.estimate());
        let rate = FrameRate::from_number(plan.used().frame_rate.unwrap_or(1.0))?;
        let output =
            |(folder, job): (_, &&Job)| Output::new(folder, job.ask.makes, job.ask.format, rate);
        let mut outputs =
            Outputs(folders.iter().map(PathBuf::as_path).zip(jobs).map(output).collect());
        let run = Run { request: &request, plan: &plan, asks, loras };
        executor.carry_out(pipeline, &run, watch, &mut outputs)?;
        let mut all =
            outputs.0.into_iter().map(Output::finish).collect::<engine::Result<Vec<Made>>>()?;
        let (durations, memory) = (watch.finish(), most_memory().map(|bytes| bytes >> 20));
        for made in &mut all {
            made.stage_durations = durations.clone();
            made.peak_memory_mb = memory;
        }
        Ok(all)
    }
}

fn failure(code: &str, message: String) -> Failure {
    Failure { code: code.to_owned(), message }
}
