//! How long work is seen and stopped.

use data::media::Frame;

use crate::error::{Error, Result};

/// Watches a pipeline. The binary draws bars; tests watch nothing.
pub trait Progress {
    /// A stage of `total` steps begins.
    fn begin(&mut self, stage: &str, total: usize);

    /// The stage has come to step `done`.
    fn reach(&mut self, done: usize);

    /// Whether the user asked to stop.
    fn interrupted(&self) -> bool;

    /// Whether to show what the video will be, after the prediction of a step of so many.
    fn wants_look(&self, _step: usize, _steps: usize) -> bool {
        false
    }

    /// The first frame of the first sample as it is expected to be.
    fn look(&mut self, _frame: Frame) {}
}

/// Watches nothing.
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _: &str, _: usize) {}
    fn reach(&mut self, _: usize) {}
    fn interrupted(&self) -> bool {
        false
    }
}

pub(crate) fn check(progress: &dyn Progress) -> Result<()> {
    if progress.interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}
