//! How long work is seen and stopped.

use crate::error::{Error, Result};

/// Watches a pipeline. The binary draws bars; tests watch nothing.
pub trait Progress {
    /// A stage of `total` steps begins.
    fn begin(&mut self, stage: &str, total: usize);

    /// The stage has come to step `done`.
    fn reach(&mut self, done: usize);

    /// Whether the user asked to stop.
    fn interrupted(&self) -> bool;
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
