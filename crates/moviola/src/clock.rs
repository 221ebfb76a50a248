//! How long a run took to get where.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Runs since the process started.
pub(crate) struct Clock {
    started: Instant,
    first_step: Mutex<Option<f64>>,
}

impl Clock {
    /// A clock that has run since `started`.
    pub(crate) fn new(started: Instant) -> Clock {
        Clock { started, first_step: Mutex::new(None) }
    }

    /// Seconds so far.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Notes that denoising begins; only the first call counts.
    pub(crate) fn first_step(&self) {
        let mut first = self.first_step.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| self.seconds());
    }

    /// Seconds to the beginning of the first denoising step.
    pub(crate) fn seconds_to_first_step(&self) -> Option<f64> {
        *self.first_step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
