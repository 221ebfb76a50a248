//! How the engine's progress becomes what clients see, and how it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use data::media::Frame;
use engine::{Estimate, Progress};

use crate::jobs::{Jobs, Seen, Taken};

/// Watches one job.
pub(crate) struct Watch<'a> {
    jobs: &'a Jobs,
    abort: Arc<AtomicBool>,
    /// How much of all operations each stage takes.
    shares: Vec<(&'static str, f64)>,
    limit: Duration,
    stage: Option<(String, usize, Instant)>,
    /// Stages that are over, with their seconds.
    durations: Vec<(String, f64)>,
    /// How often what will be is shown.
    looks: usize,
    /// Denoising steps that are counted.
    denoised: usize,
}

impl<'a> Watch<'a> {
    /// Watches a job that was taken, whose stages may take so long each.
    pub(crate) fn new(jobs: &'a Jobs, taken: &Taken, limit: Duration) -> Watch<'a> {
        let Taken { job, abort } = taken;
        jobs.live.show(|seen| *seen = Some(Seen::begin(&job.id)));
        Watch {
            looks: job.ask.previews,
            jobs,
            abort: abort.clone(),
            shares: Vec::new(),
            limit,
            stage: None,
            durations: Vec::new(),
            denoised: 0,
        }
    }

    /// Says how much of the whole each stage is.
    pub(crate) fn expect(&mut self, estimate: &Estimate) {
        let all = estimate.operations().max(1.0);
        let share = |work: &engine::StageWork| (work.stage, work.operations / all);
        self.shares = estimate.stages.iter().map(share).collect();
    }

    /// Whether a stage took longer than it may.
    pub(crate) fn is_late(&self) -> bool {
        self.stage.as_ref().is_some_and(|(_, _, began)| began.elapsed() > self.limit)
    }

    /// Ends the last stage, and tells how long each took.
    pub(crate) fn finish(&mut self) -> Vec<(String, f64)> {
        if let Some((stage, _, began)) = self.stage.take() {
            let seconds = began.elapsed().as_secs_f64();
            self.jobs
                .live
                .count(|totals| *totals.stages.entry(stage.clone()).or_default() += seconds);
            match self.durations.iter_mut().find(|(known, _)| *known == stage) {
                Some((_, sum)) => *sum += seconds,
                None => self.durations.push((stage, seconds)),
            }
        }
        self.durations.clone()
    }

    /// The share of all work that is over when `done` of this stage's steps are.
    fn share(&self, done: usize) -> f64 {
        let Some((stage, total, _)) = &self.stage else { return 0.0 };
        let at = self.shares.iter().position(|(known, _)| known == stage);
        let before: f64 = self.shares[..at.unwrap_or(0)].iter().map(|(_, share)| share).sum();
        let own = at.map_or(0.0, |at| self.shares[at].1);
        before + own * done as f64 / (*total).max(1) as f64
    }

    fn show(&self, done: usize) {
        let Some((stage, total, _)) = &self.stage else { return };
        let share = self.share(done);
        self.jobs.live.show(|seen| {
            if let Some(seen) = seen {
                (seen.stage, seen.steps) = (stage.clone(), [done, *total]);
                seen.share = seen.share.max(share);
            }
        });
    }
}

impl Progress for Watch<'_> {
    fn begin(&mut self, stage: &str, total: usize) {
        self.finish();
        self.stage = Some((stage.to_owned(), total, Instant::now()));
        self.show(0);
    }

    fn reach(&mut self, done: usize) {
        if self.stage.as_ref().is_some_and(|(stage, ..)| stage == "denoise") {
            let more = done.saturating_sub(self.denoised) as u64;
            self.denoised = done;
            self.jobs.live.count(|totals| totals.steps += more);
        }
        self.show(done);
    }

    fn wants_look(&self, step: usize, steps: usize) -> bool {
        // Spread evenly between the first step and the last.
        let at = |look: usize| steps * look / (self.looks + 1);
        (1..=self.looks).any(|look| at(look) == step)
    }

    fn look(&mut self, frame: Frame) {
        let Ok(picture) = frame.png() else { return };
        self.jobs.live.show(|seen| {
            if let Some(seen) = seen {
                seen.previews.push(picture);
            }
        });
    }

    fn interrupted(&self) -> bool {
        self.abort.load(Ordering::Relaxed) || self.jobs.is_stopping() || self.is_late()
    }
}
