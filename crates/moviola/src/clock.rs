//! How long a run took to get where.

use std::sync::OnceLock;
use std::time::Instant;

/// Runs since the process started.
pub(crate) struct Clock {
    started: Instant,
    first_step: OnceLock<f64>,
}

impl Clock {
    /// A clock that has run since `started`.
    pub(crate) fn new(started: Instant) -> Clock {
        Clock { started, first_step: OnceLock::new() }
    }

    /// Seconds so far.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Notes that denoising begins; only the first call counts.
    pub(crate) fn first_step(&self) {
        self.first_step.get_or_init(|| self.seconds());
    }

    /// Seconds to the beginning of the first denoising step.
    pub(crate) fn seconds_to_first_step(&self) -> Option<f64> {
        self.first_step.get().copied()
    }
}
