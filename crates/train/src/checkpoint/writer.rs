//! The thread that writes checkpoints while the run goes on.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use data::aside::{AsideFolder, Existing};

use super::file::{self, Manifest};
use crate::error::{Error, Result};
use crate::state::StateDict;

/// A checkpoint to be written.
struct Job {
    place: PathBuf,
    manifest: Manifest,
    state: StateDict,
}

/// Hands snapshots to a thread, one at a time.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    done: Receiver<(u64, Result<AsideFolder>)>,
    thread: Option<JoinHandle<()>>,
    busy: bool,
    /// Written, not yet committed.
    finished: Vec<(u64, AsideFolder)>,
}

impl Writer {
    pub(super) fn start() -> Writer {
        let (jobs, queue) = channel::<Job>();
        let (answers, done) = channel();
        let thread = std::thread::spawn(move || {
            for Job { place, manifest, state } in queue {
                let step = manifest.step;
                // Half a checkpoint is of no use, and the disk may be full: a failure removes it.
                // Whatever cannot be removed now is swept at the next start.
                let outcome = write(&place, manifest, &state);
                // The handles go before the answer, so that the run may change its tensors in place.
                drop(state);
                if answers.send((step, outcome)).is_err() {
                    return;
                }
            }
        });
        let thread = Some(thread);
        Writer { jobs: Some(jobs), done, thread, busy: false, finished: Vec::new() }
    }

    /// Begins to write what is to appear at `place`; waits first if it is still writing.
    pub(super) fn begin(
        &mut self,
        place: PathBuf,
        manifest: Manifest,
        state: StateDict,
    ) -> Result<()> {
        self.settle()?;
        let jobs = self.jobs.as_ref().ok_or(Error::Writer)?;
        jobs.send(Job { place, manifest, state }).map_err(|_| Error::Writer)?;
        self.busy = true;
        Ok(())
    }

    /// The steps that were written since the last call, each to be given its name.
    pub(super) fn poll(&mut self) -> Result<Vec<(u64, AsideFolder)>> {
        if self.busy {
            match self.done.try_recv() {
                Ok(answer) => self.note(answer)?,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(Error::Writer),
            }
        }
        Ok(std::mem::take(&mut self.finished))
    }

    /// The same, after all is written.
    pub(super) fn wait(&mut self) -> Result<Vec<(u64, AsideFolder)>> {
        self.settle()?;
        Ok(std::mem::take(&mut self.finished))
    }

    fn settle(&mut self) -> Result<()> {
        if !self.busy {
            return Ok(());
        }
        let answer = self.done.recv().map_err(|_| Error::Writer)?;
        self.note(answer)
    }

    fn note(&mut self, (step, outcome): (u64, Result<AsideFolder>)) -> Result<()> {
        self.busy = false;
        self.finished.push((step, outcome?));
        Ok(())
    }
}

/// A whole checkpoint on the disk, which only lacks its name.
fn write(place: &Path, manifest: Manifest, state: &StateDict) -> Result<AsideFolder> {
    let fault = |err| Error::file("write", place, err);
    let aside = AsideFolder::create(place, Existing::Refuse).map_err(fault)?;
    file::write(aside.path(), manifest, state)?;
    aside.sync().map_err(fault)?;
    Ok(aside)
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Closing the queue ends the thread; a checkpoint without its name is removed.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
