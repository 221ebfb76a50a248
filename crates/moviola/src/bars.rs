//! The stages of a pipeline, seen and stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Progress;

use crate::clock::Clock;
use crate::voice::{Meter, Voice};

/// Shows each stage, and remembers how long it took.
pub(crate) struct Bars<'a> {
    voice: Voice,
    meter: Option<(String, Meter)>,
    clock: &'a Clock,
    interrupted: Arc<AtomicBool>,
    /// Stages that are over, with their seconds.
    stages: Vec<(String, f64)>,
}

impl Progress for Bars<'_> {
    fn begin(&mut self, stage: &str, total: usize) {
        self.finish();
        if stage == "denoise" {
            self.clock.first_step();
        }
        self.meter = Some((stage.to_owned(), self.voice.meter(stage, total as u64)));
    }

    fn reach(&mut self, done: usize) {
        if let Some((_, meter)) = &mut self.meter {
            meter.reach(done as u64, "");
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl<'a> Bars<'a> {
    /// Stages of a run that `clock` times and a set flag interrupts.
    pub(crate) fn new(voice: Voice, clock: &'a Clock, interrupted: Arc<AtomicBool>) -> Bars<'a> {
        Bars { voice, meter: None, clock, interrupted, stages: Vec::new() }
    }

    /// What is set when the run is to end.
    pub(crate) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    /// Ends the last stage.
    pub(crate) fn finish(&mut self) {
        let Some((stage, meter)) = self.meter.take() else { return };
        let seconds = meter.finish();
        match self.stages.iter_mut().find(|(known, _)| *known == stage) {
            Some((_, sum)) => *sum += seconds,
            None => self.stages.push((stage, seconds)),
        }
    }

    /// How long each stage took, in seconds, in the order they began.
    pub(crate) fn stages(&self) -> &[(String, f64)] {
        &self.stages
    }
}
