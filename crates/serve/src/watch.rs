//! How the engine's progress becomes what clients see, and how it is stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use data::media::Frame;
use engine::{Estimate, Progress};

use crate::jobs::{Jobs, Seen, Taken};

/// Watches the jobs of one run.
pub(crate) struct Watch<'a> {
    jobs: &'a Jobs,
    /// The ids of the jobs, and what is set where one is to be given up.
    each: Vec<(String, Arc<AtomicBool>)>,
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
    /// Watches jobs that were taken, whose stages may take so long for each of them.
    pub(crate) fn new(jobs: &'a Jobs, taken: &[Taken], limit: Duration) -> Watch<'a> {
        let each = taken.iter().map(|own| (own.job.id.clone(), own.abort.clone()));
        jobs.live.count(|totals| totals.runs += 1);
        jobs.live.show(|all| *all = taken.iter().map(|own| Seen::begin(&own.job.id)).collect());
        Watch {
            looks: taken.first().map_or(0, |own| own.job.ask.previews),
            jobs,
            each: each.collect(),
            shares: Vec::new(),
            limit: limit.saturating_mul(u32::try_from(taken.len()).unwrap_or(u32::MAX)),
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
        // Those that share a run take each step together.
        let count = self.each.len().max(1);
        let steps = if total.is_multiple_of(count) {
            [done / count, total / count]
        } else {
            [done, *total]
        };
        self.jobs.live.show(|all| {
            for seen in all {
                (seen.stage, seen.steps) = (stage.clone(), steps);
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
        self.jobs.live.show(|all| {
            if let Some(seen) = all.first_mut() {
                seen.previews.push(picture);
            }
        });
    }

    fn interrupted(&self) -> bool {
        // What others of the run wait for goes on; whoever was given up gets nothing of it.
        let given_up = self.each.iter().all(|(_, abort)| abort.load(Ordering::Relaxed));
        given_up || self.jobs.is_stopping() || self.is_late()
    }
}
