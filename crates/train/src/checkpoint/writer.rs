//! The thread that writes checkpoints, or this rank's parts of them, while the run goes on.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;

use data::aside::{AsideFolder, Existing};

use super::file::{self, FileSum};
use crate::error::{Error, Result};
use crate::state::StateDict;

/// Where a state is written to.
pub(super) enum Target {
    /// Into a folder aside, which is to appear at this place.
    Folder(PathBuf),
    /// Into this file, which another rank moves.
    File(PathBuf),
}

/// A state that is on the disk, and only lacks its name.
pub(super) struct Written {
    pub(super) step: u64,
    pub(super) sum: FileSum,
    pub(super) aside: Aside,
}

/// Where it is until it has its name; dropping it removes what is there.
pub(super) enum Aside {
    Folder(AsideFolder),
    #[expect(dead_code, reason = "it is held for what dropping it does")]
    File(LooseFile),
}

/// A file that is removed when it is dropped, unless it was moved.
pub(super) struct LooseFile(PathBuf);

impl Drop for LooseFile {
    fn drop(&mut self) {
        // Where it was moved there is nothing to remove, and what stays is swept at the next start.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A state to be written.
struct Job {
    step: u64,
    target: Target,
    state: StateDict,
}

/// Hands snapshots to a thread, one at a time.
pub(super) struct Writer {
    jobs: Option<Sender<Job>>,
    done: Receiver<Result<Written>>,
    thread: Option<JoinHandle<()>>,
    busy: bool,
    /// Written, not yet committed.
    finished: Vec<Written>,
}

impl Writer {
    pub(super) fn start() -> Writer {
        let (jobs, queue) = channel::<Job>();
        let (answers, done) = channel();
        let thread = std::thread::spawn(move || {
            for Job { step, target, state } in queue {
                // Half a checkpoint is of no use, and the disk may be full: a failure removes it.
                // Whatever cannot be removed now is swept at the next start.
                let outcome = write(step, target, &state);
                // The handles go before the answer, so that the run may change its tensors in place.
                drop(state);
                if answers.send(outcome).is_err() {
                    return;
                }
            }
        });
        let thread = Some(thread);
        Writer { jobs: Some(jobs), done, thread, busy: false, finished: Vec::new() }
    }

    /// Begins to write the state after `step`; waits first if it is still writing.
    pub(super) fn begin(&mut self, step: u64, target: Target, state: StateDict) -> Result<()> {
        self.settle()?;
        let jobs = self.jobs.as_ref().ok_or(Error::Writer)?;
        jobs.send(Job { step, target, state }).map_err(|_| Error::Writer)?;
        self.busy = true;
        Ok(())
    }

    /// What was written since the last call, each to be given its name; waits for the one at hand if that is asked.
    pub(super) fn finished(&mut self, waits: bool) -> Result<Vec<Written>> {
        match waits {
            true => self.settle()?,
            false => self.poll()?,
        }
        Ok(self.take())
    }

    /// What is known of the one at hand, if all of it is written, which stays here; waits for it if that is asked.
    pub(super) fn progress(&mut self, waits: bool) -> Result<Option<FileSum>> {
        match waits {
            true => self.settle()?,
            false => self.poll()?,
        }
        Ok(self.finished.last().filter(|_| !self.busy).map(|written| written.sum.clone()))
    }

    /// What was written and is not committed.
    pub(super) fn take(&mut self) -> Vec<Written> {
        std::mem::take(&mut self.finished)
    }

    fn poll(&mut self) -> Result<()> {
        if self.busy {
            match self.done.try_recv() {
                Ok(answer) => self.note(answer)?,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return Err(Error::Writer),
            }
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        if !self.busy {
            return Ok(());
        }
        let answer = self.done.recv().map_err(|_| Error::Writer)?;
        self.note(answer)
    }

    fn note(&mut self, outcome: Result<Written>) -> Result<()> {
        self.busy = false;
        self.finished.push(outcome?);
        Ok(())
    }
}

/// A whole state on the disk, which only lacks its name.
fn write(step: u64, target: Target, state: &StateDict) -> Result<Written> {
    match target {
        Target::Folder(place) => {
            let fault = |err| Error::file("write", &place, err);
            let aside = AsideFolder::create(&place, Existing::Refuse).map_err(fault)?;
            let path = aside.path().join(file::name_of(0, 1));
            let sum =
                file::write_state(&path, state).map_err(|err| Error::file("write", &path, err))?;
            aside.sync().map_err(fault)?;
            Ok(Written { step, sum, aside: Aside::Folder(aside) })
        }
        Target::File(path) => {
            let fault = |err| Error::file("write", &path, err);
            remove_stale(&path).map_err(fault)?;
            let aside = LooseFile(path.clone());
            let sum = file::write_state(&path, state).map_err(fault)?;
            std::fs::File::open(&path).and_then(|file| file.sync_all()).map_err(fault)?;
            Ok(Written { step, sum, aside: Aside::File(aside) })
        }
    }
}

/// Removes a file that a try of this step left, of which nobody knows any more.
fn remove_stale(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
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
