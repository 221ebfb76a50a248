//! What is seen of the job that runs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

/// A moment of the job that runs.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) id: String,
    pub(crate) stage: String,
    /// Steps of the stage that are over, and how many it has.
    pub(crate) steps: [usize; 2],
    /// How much of the whole is done, from 0 to 1, by the operations that stages take.
    pub(crate) share: f64,
    began: Instant,
    /// Pictures of what it will be, from early to late: PNG files.
    pub(crate) previews: Vec<Vec<u8>>,
}

impl Seen {
    /// A job that begins.
    pub(crate) fn begin(id: &str) -> Seen {
        Seen {
            id: id.to_owned(),
            stage: "open".to_owned(),
            steps: [0, 1],
            share: 0.0,
            began: Instant::now(),
            previews: Vec::new(),
        }
    }

    /// Seconds that it still takes, if it goes on as it did.
    pub(crate) fn seconds_left(&self) -> Option<f64> {
        let spent = self.began.elapsed().as_secs_f64();
        (self.share > 0.0).then(|| spent * (1.0 - self.share) / self.share)
    }

    /// In whole percent; 100 is what is finished.
    pub(crate) fn percent(&self) -> u32 {
        ((self.share * 100.0) as u32).min(99)
    }
}

/// What was done since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    /// Jobs by what came of them.
    pub(crate) ended: BTreeMap<&'static str, u64>,
    /// Seconds of stages.
    pub(crate) stages: BTreeMap<String, f64>,
    /// Denoising steps.
    pub(crate) steps: u64,
    /// Runs, which jobs that are alike share.
    pub(crate) runs: u64,
}

/// The jobs that run, for those who look on: several if they share a run.
pub(crate) struct Live {
    seen: Mutex<Vec<Seen>>,
    totals: Mutex<Totals>,
    changed: watch::Sender<u64>,
}

impl Live {
    pub(super) fn new() -> Live {
        Live { seen: Mutex::default(), totals: Mutex::default(), changed: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is seen of a job, if it runs.
    pub(crate) fn of(&self, id: &str) -> Option<Seen> {
        self.lock().iter().find(|seen| seen.id == id).cloned()
    }

    /// Seconds that the job which runs still takes.
    pub(crate) fn seconds_left(&self) -> Option<f64> {
        self.lock().first().and_then(Seen::seconds_left)
    }

    /// How much of the job that runs is done.
    pub(crate) fn share(&self) -> f64 {
        self.lock().first().map_or(0.0, |seen| seen.share)
    }

    /// What was done since the start.
    pub(crate) fn totals(&self) -> Totals {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts something.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut self.totals.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Shows something.
    pub(crate) fn show(&self, change: impl FnOnce(&mut Vec<Seen>)) {
        change(&mut self.lock());
        // No row is another for it.
        self.changed.send_modify(|_| ());
    }

    /// A job runs no more.
    pub(super) fn end(&self, id: &str) {
        self.lock().retain(|seen| seen.id != id);
        self.moved();
    }

    /// A row of the table has changed: wakes those who look on, and lets them read it.
    pub(crate) fn moved(&self) {
        self.changed.send_modify(|moves| *moves += 1);
    }

    /// How many look on.
    pub(crate) fn watchers(&self) -> usize {
        self.changed.receiver_count()
    }

    /// Wakes whenever something changes, and tells how often rows of the table have.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }
}
