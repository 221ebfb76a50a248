//! A look of validation, seen and stopped: on the machine at hand it may take longer than the steps between two of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use engine::Progress;

use crate::voice::{Meter, Voice};

/// Shows the stages of a look that lasts, and ends it when the run is to end.
pub(crate) struct Looking {
    voice: Voice,
    stop: Arc<AtomicBool>,
    meter: Option<Meter>,
}

impl Looking {
    /// Looks of a run that `stop` ends.
    pub(crate) fn new(voice: Voice, stop: Arc<AtomicBool>) -> Looking {
        Looking { voice, stop, meter: None }
    }

    fn finish(&mut self) {
        if let Some(meter) = self.meter.take() {
            meter.clear();
        }
    }
}

impl Progress for Looking {
    fn begin(&mut self, stage: &str, total: usize) {
        self.finish();
        self.meter = Some(self.voice.patient_meter(&format!("look: {stage}"), total as u64));
    }

    fn reach(&mut self, done: usize) {
        if let Some(meter) = &mut self.meter {
            meter.reach(done as u64, "");
            if done as u64 >= meter.total() {
                self.finish();
            }
        }
    }

    fn interrupted(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
