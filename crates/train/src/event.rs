//! What a run tells, and who listens.

use std::path::PathBuf;

use crate::error::Result;
use crate::method::Method;
use crate::report::StepReport;
use crate::state::StateDict;

/// Everything that can be observed. The list is closed: whoever listens decides about each.
#[derive(Debug)]
pub enum Event<'a> {
    /// The run begins after this step, 0 unless it was resumed.
    Started {
        /// The last step that is over.
        step: u64,
    },
    /// A role was updated; not sent for an update that was skipped.
    Updated {
        /// The step.
        step: u64,
        /// The role.
        role: &'static str,
    },
    /// A step is over.
    Stepped {
        /// What it brought.
        report: &'a StepReport,
    },
    /// A checkpoint is committed.
    Saved {
        /// The step it holds.
        step: u64,
        /// Where it is.
        path: PathBuf,
    },
    /// A good moment to look at the model: after the step and its checkpoint, and before the first.
    Resting {
        /// The last step that is over.
        step: u64,
    },
    /// The run is over.
    Finished {
        /// The last step.
        step: u64,
    },
}

/// Whoever listens to a run. What it remembers is part of checkpoints.
pub trait Callback {
    /// Its name in checkpoints: unique within a run.
    fn name(&self) -> &str;

    /// Something happened.
    ///
    /// # Errors
    /// The run should stop, and why.
    fn on(&mut self, event: &Event<'_>, method: &dyn Method) -> Result<()>;

    /// What it remembers.
    fn state(&self) -> StateDict {
        StateDict::new()
    }

    /// Continues from what [`Callback::state`] said.
    ///
    /// # Errors
    /// Something is missing, misshapen or left over.
    fn restore(&mut self, state: StateDict) -> Result<()> {
        state.finish()
    }
}
