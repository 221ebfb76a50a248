//! A model on the ranks of a layout.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use data::media::Frame;
use engine::{Frames, Pipeline, Progress};
use parallel::Plan;

use crate::failure::Outcome;
use crate::job::Job;
use crate::layout::LayoutArguments;

/// Does `body` on every rank of a plan, each with its own hold of a model and so many threads, and returns
/// what the first one gives, or this process's where ranks are processes.
///
/// # Errors
/// Whatever a rank reports first.
pub(crate) fn on_ranks<T: Send>(
    job: &Job,
    (layout, plan): (&LayoutArguments, &Plan),
    model: &Pipeline,
    threads: Option<usize>,
    body: impl Fn(usize, &mut Pipeline) -> Outcome<T> + Sync,
) -> Outcome<T> {
    let shared = Mutex::new(model.clone());
    layout.run(job, plan, threads, |group| {
        let rank = group.rank();
        let mesh = plan.mesh(group).map_err(engine::Error::from)?;
        let mut own = shared.lock().unwrap_or_else(PoisonError::into_inner).on(mesh, plan);
        body(rank, &mut own)
    })
}

/// Watches unseen, and is interrupted when the first rank is: all stop together.
pub(crate) struct Unseen(pub(crate) Arc<AtomicBool>);

impl Progress for Unseen {
    fn begin(&mut self, _: &str, _: usize) {}

    fn reach(&mut self, _: usize) {}

    fn interrupted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Watches as another does, and tells all who watch [`Unseen`] when that one is interrupted: replicas work by themselves,
/// and only the first one is asked.
pub(crate) struct Telling<'a> {
    pub(crate) own: &'a mut dyn Progress,
    pub(crate) stop: Arc<AtomicBool>,
}

impl Progress for Telling<'_> {
    fn begin(&mut self, stage: &str, total: usize) {
        self.own.begin(stage, total);
    }

    fn reach(&mut self, done: usize) {
        self.own.reach(done);
        // A replica that is done only shows how far the others are.
        self.interrupted();
    }

    fn interrupted(&self) -> bool {
        let is_so = self.own.interrupted();
        if is_so {
            self.stop.store(true, Ordering::Relaxed);
        }
        is_so
    }

    fn wants_look(&self, step: usize, steps: usize) -> bool {
        self.own.wants_look(step, steps)
    }

    fn look(&mut self, frame: Frame) {
        self.own.look(frame);
    }
}

/// Takes what is made and keeps nothing: on ranks that own nothing.
pub(crate) struct Nobody;

impl Frames for Nobody {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> engine::Result<()> {
        Ok(())
    }
}
