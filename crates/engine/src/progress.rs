//! How long work is seen and stopped.

use comm::Mesh;
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

/// Asked between two encodings. A rank of several that make a sample together does not stop there: the others might be
/// past it, and would wait. They stop together, at the next step.
pub(crate) struct Heard<'a> {
    own: &'a mut dyn Progress,
    is_alone: bool,
}

impl<'a> Heard<'a> {
    pub(crate) fn by(mesh: &Mesh, own: &'a mut dyn Progress) -> Heard<'a> {
        Heard { own, is_alone: mesh.replica().size() == 1 }
    }
}

impl Progress for Heard<'_> {
    fn begin(&mut self, stage: &str, total: usize) {
        self.own.begin(stage, total);
    }

    fn reach(&mut self, done: usize) {
        self.own.reach(done);
    }

    fn interrupted(&self) -> bool {
        self.is_alone && self.own.interrupted()
    }
}

pub(crate) fn check(progress: &dyn Progress) -> Result<()> {
    if progress.interrupted() { Err(Error::Interrupted) } else { Ok(()) }
}
