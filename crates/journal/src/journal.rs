//! Whoever listens to a run and writes it down.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use train::{Callback, Event, Method, StepReport};

use crate::error::{Error, Result};
use crate::events::EventFile;
use crate::metrics::{Metrics, Scalars, Step};

/// What it is called in checkpoints, where it has nothing to say.
pub(crate) const NAME: &str = "journal";

/// The folder of TensorBoard's files within a run.
const TENSORBOARD: &str = "tensorboard";

/// Writes a run down, in `metrics.jsonl` and `tensorboard/` of its folder.
///
/// Clones write to the same files: one is a callback of the trainer, another serves whoever has
/// numbers to record. On many ranks only the first should have one.
#[derive(Clone, Debug)]
pub struct Journal(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    run: PathBuf,
    peak: Option<Peak>,
    files: Option<Files>,
    /// The step that this start goes on after.
    from: u64,
}

#[derive(Debug)]
struct Files {
    metrics: Metrics,
    events: EventFile,
}

/// What speed is measured against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Peak {
    /// Floating-point operations that a token takes, forward and back.
    pub flops_per_token: f64,
    /// What the machine can do at best, as it was measured.
    pub flops_per_second: f64,
}

impl Journal {
    /// A journal of the run in this folder. Nothing is written before it starts.
    pub fn new(run: impl Into<PathBuf>) -> Journal {
        let inner = Inner { run: run.into(), peak: None, files: None, from: 0 };
        Journal(Arc::new(Mutex::new(inner)))
    }

    /// Tells also which share of the machine's peak is used.
    ///
    /// # Errors
    /// One of the two is not a number above 0.
    pub fn with_peak(self, peak: Peak) -> Result<Journal> {
        let parts = [
            ("the number of operations per token", peak.flops_per_token),
            ("the machine's peak", peak.flops_per_second),
        ];
        for (what, value) in parts {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::Peak { what, value });
            }
        }
        self.inner().peak = Some(peak);
        Ok(self)
    }

    /// Opens the files for a run that goes on after `step`. What an earlier run wrote about later
    /// steps is dropped, and all that it wrote if no step is over. The trainer's [`Event::Started`]
    /// does this; call it to record something about a run that is over.
    ///
    /// # Errors
    /// A file cannot be written, or the log is damaged other than at its end.
    pub fn start(&self, step: u64) -> Result<()> {
        let mut inner = self.inner();
        let folder = inner.run.join(TENSORBOARD);
        fs::create_dir_all(&folder).map_err(|source| Error::file("make", &folder, source))?;
        let metrics = Metrics::open(&inner.run, step)?;
        let events = EventFile::create(&folder, step)?;
        inner.files = Some(Files { metrics, events });
        inner.from = step;
        Ok(())
    }

    /// Records numbers of somebody else, such as `validation/score`, as they are after `step`.
    ///
    /// A name that was recorded at this step already keeps its first value: whoever looks at a model
    /// before the first step of a resumed run looks at it a second time.
    ///
    /// # Errors
    /// The run has not started, `step` comes before the last one written, or a file cannot be written.
    pub fn record(&self, step: u64, scalars: &[(&str, f64)]) -> Result<()> {
        let mut inner = self.inner();
        let files = inner.files.as_mut().ok_or(Error::NotStarted)?;
        let named = scalars.iter().map(|(name, value)| ((*name).to_owned(), *value));
        let scalars: BTreeMap<_, _> = files.metrics.unrecorded(step, named)?;
        if scalars.is_empty() {
            return Ok(());
        }
        // In this order a killed run may tell TensorBoard twice, but never fails to.
        files.events.write(step, scalars.iter().map(|(name, value)| (name.clone(), *value)))?;
        files.metrics.record(&Scalars { step, scalars })
    }

    /// Shows TensorBoard GIFs and PNGs as they are after `step`, each with its name. Whoever looks at a
    /// model before the first step of a resumed run has shown them already.
    ///
    /// # Errors
    /// The run has not started, or a file cannot be written.
    pub fn show(&self, step: u64, pictures: &[(String, Vec<u8>)]) -> Result<()> {
        let mut inner = self.inner();
        let is_again = step > 0 && step == inner.from;
        let files = inner.files.as_mut().ok_or(Error::NotStarted)?;
        match is_again {
            true => Ok(()),
            false => files.events.write_pictures(step, pictures),
        }
    }

    fn step(&self, report: &StepReport) -> Result<()> {
        let mut inner = self.inner();
        let step = Step::new(report, inner.peak);
        let files = inner.files.as_mut().ok_or(Error::NotStarted)?;
        files.events.write(step.step, step.scalars())?;
        files.metrics.step(&step)
    }

    /// What was written survives a machine that stops.
    fn sync(&self) -> Result<()> {
        match &self.inner().files {
            Some(Files { metrics, events }) => metrics.sync().and_then(|()| events.sync()),
            None => Ok(()),
        }
    }

    /// The lock is held for one line at a time, and a line is written whole or the run ends.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Callback for Journal {
    fn name(&self) -> &str {
        NAME
    }

    fn on(&mut self, event: &Event<'_>, _method: &dyn Method) -> train::Result<()> {
        match event {
            Event::Started { step } => self.start(*step)?,
            Event::Stepped { report } => self.step(report)?,
            Event::Saved { .. } | Event::Finished { .. } => self.sync()?,
            Event::Updated { .. } | Event::Resting { .. } => {}
        }
        Ok(())
    }
}
