//! Jobs that are not lost: a table and a folder each, a queue that is fair, and what is seen of the one that runs.
//!
//! A folder appears whole before its row does, and a row goes before its folder. So whatever moment the process ends
//! at, a row has its folder; a folder without a row was never answered for, and is removed at the next start.

mod job;
mod live;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use data::aside::{AsideFolder, Existing};
use ring::rand::{SecureRandom, SystemRandom};

pub(crate) use self::job::{Failure, Job, Made, Status};
pub(crate) use self::live::{Live, Seen};
pub(crate) use self::table::Page;
use self::table::{Table, Waiting};
use crate::ask::Makes;
use crate::error::{Answer, Error, Refusal, Result};
use crate::limits::Retention;

/// Clients of whom it is known when they were served last.
const REMEMBERED: usize = 4096;

/// A job that was begun so often, and neither finished nor failed, may be why: what takes all memory ends the process
/// whenever it runs. It keeps no other waiting, and shares no run.
const SUSPECT: i64 = 2;

fn is_suspect(begun: i64) -> bool {
    begun >= SUSPECT
}

/// Seconds since 1970.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// All jobs of a server.
pub(crate) struct Jobs {
    folder: PathBuf,
    table: Table,
    /// One process serves a folder: locked for as long as it does.
    _lock: File,
    turns: Mutex<Turns>,
    /// Rings when there may be something to do.
    bell: Condvar,
    stopping: AtomicBool,
    most_waiting: usize,
    retention: Retention,
    pub(crate) live: Live,
}

/// Whose turn it is.
#[derive(Default)]
struct Turns {
    /// When each client was served last.
    served: HashMap<String, u64>,
    turn: u64,
    /// Whose jobs are being sent or accepted, each of which has a place in the queue.
    reserved: Vec<String>,
    /// The jobs that are worked on.
    running: Vec<(String, Arc<AtomicBool>)>,
}

impl Turns {
    /// Which of those that wait, the oldest first, is next: that of the client who was served longest ago, its oldest. Those
    /// that are suspect come after all others.
    fn next<'a>(&self, waiting: &'a [Waiting]) -> Option<&'a Waiting> {
        let last = |client: &str| self.served.get(client).copied().unwrap_or(0);
        // The first of equals is the oldest.
        waiting.iter().min_by_key(|own| (is_suspect(own.begun), last(&own.client)))
    }

    /// Serves a client.
    fn take(&mut self, id: &str, client: &str) -> Arc<AtomicBool> {
        self.turn += 1;
        self.served.insert(client.to_owned(), self.turn);
        if self.served.len() > REMEMBERED {
            let oldest = self.turn - (REMEMBERED / 2) as u64;
            self.served.retain(|_, last| *last > oldest);
        }
        let abort = Arc::new(AtomicBool::new(false));
        self.running.push((id.to_owned(), abort.clone()));
        abort
    }
}

/// A place in the queue that is kept for a job. It is free when this goes.
pub(crate) struct Reserved {
    jobs: Arc<Jobs>,
    client: String,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut turns = self.jobs.turns();
        let at = turns.reserved.iter().position(|own| *own == self.client);
        at.map(|at| turns.reserved.swap_remove(at));
    }
}

/// A job that the worker has taken.
pub(crate) struct Taken {
    pub(crate) job: Job,
    /// Set when it is to be given up.
    pub(crate) abort: Arc<AtomicBool>,
}

impl Jobs {
    /// Opens the folder of a server. What an earlier process was working on begins again.
    pub(crate) fn open(folder: &Path, most_waiting: usize, retention: Retention) -> Result<Jobs> {
        let below = folder.join("jobs");
        fs::create_dir_all(&below).map_err(Error::file("make", &below))?;
        let path = folder.join("lock");
        let mut options = File::options();
        let lock = options.create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(Error::file("open", &path))?;
        if lock.try_lock().is_err() {
            let folder = folder.display();
            return Err(Error::Settings(format!(
                "{folder} is served by another process; choose another folder"
            )));
        }
        let table = Table::open(&folder.join("jobs.sqlite3"))?;
        let own = Jobs {
            folder: below,
            table,
            _lock: lock,
            turns: Mutex::default(),
            bell: Condvar::new(),
            stopping: AtomicBool::new(false),
            most_waiting,
            retention,
            live: Live::new(),
        };
        own.table.remove_unfinished_images()?;
        own.table.requeue_all()?;
        own.remove_strangers()?;
        Ok(own)
    }

    /// Removes folders that no row knows.
    fn remove_strangers(&self) -> Result<()> {
        let known: HashSet<String> = self.table.ids()?.into_iter().collect();
        let entries = fs::read_dir(&self.folder).map_err(Error::file("read", &self.folder))?;
        for entry in entries.flatten() {
            if !known.contains(&*entry.file_name().to_string_lossy()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(())
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new id, which nobody can guess.
    pub(crate) fn new_id(&self, makes: Makes) -> Answer<String> {
        let mut bytes = [0; 16];
        let drawn = SystemRandom::new().fill(&mut bytes);
        drawn.map_err(|_| Refusal::ours(&"the system gives no random numbers"))?;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{}_{hex}", makes.name()))
    }

    /// The folder of a job that is not accepted yet. Dropping it removes it.
    pub(crate) fn incoming(&self, id: &str) -> Answer<AsideFolder> {
        let folder = AsideFolder::create(&self.place(id), Existing::Refuse);
        folder.map_err(|error| Refusal::ours(&error))
    }

    /// The folder of a job.
    pub(crate) fn place(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    /// Refuses when too many wait already.
    pub(crate) fn check_room(&self) -> Answer<()> {
        self.room(&self.turns(), None)
    }

    /// Keeps a place for a job that a client begins to send: what is being sent takes as much of the disk as what waits.
    ///
    /// # Errors
    /// Too many wait or are being sent already.
    pub(crate) fn reserve(self: &Arc<Jobs>, client: &str) -> Answer<Reserved> {
        let mut turns = self.turns();
        self.room(&turns, Some(client))?;
        turns.reserved.push(client.to_owned());
        Ok(Reserved { jobs: Arc::clone(self), client: client.to_owned() })
    }

    /// A client may have as many that wait as there are places left: alone half of them all, and whoever comes next
    /// still finds one.
    fn room(&self, turns: &Turns, client: Option<&str>) -> Answer<()> {
        if self.is_stopping() {
            return Err(Refusal::stopping());
        }
        let [waiting, own] = self.table.count_waiting(client)?;
        let is_own = |reserved: &&String| client.is_some_and(|client| *reserved == client);
        let waiting = waiting + turns.reserved.len();
        let own = own + turns.reserved.iter().filter(is_own).count();
        let free = self.most_waiting.saturating_sub(waiting);
        if free > 0 && (client.is_none() || own < free) {
            return Ok(());
        }
        let seconds = self.live.seconds_left();
        let left = seconds.map_or(1, |seconds| seconds.ceil().clamp(1.0, 3600.0) as u64);
        let message = match free {
            0 => format!(
                "{waiting} jobs wait or are being sent already, as many as this server takes; try again later"
            ),
            _ => format!(
                "{own} of your jobs wait already, and the {free} places that are left are for others; try again later"
            ),
        };
        Err(Refusal::busy(message, left))
    }

    /// Takes a job in, in the place that was kept for it: once this returns, it is there whatever happens.
    pub(crate) fn accept(&self, job: &Job, folder: AsideFolder, place: Reserved) -> Answer<()> {
        if self.is_stopping() {
            return Err(Refusal::stopping());
        }
        let done = folder.commit().map_err(Error::file("write", &self.place(&job.id)));
        let done = done.and_then(|()| self.table.insert(job));
        drop(place);
        self.bell.notify_all();
        done.map_err(|error| {
            let _ = fs::remove_dir_all(self.place(&job.id));
            error.into()
        })
    }

    /// A job of a client; of anybody where clients have no names.
    pub(crate) fn find(&self, id: &str, client: Option<&str>) -> Answer<Job> {
        let found =
            self.table.find(id)?.filter(|job| client.is_none_or(|client| job.client == client));
        found.ok_or_else(|| Refusal::not_found(format!("there is no `{id}`")))
    }

    /// The place of a client's job in the order of jobs, of one that was removed too: whoever removes what a page lists
    /// asks for the next by what is no more.
    pub(crate) fn number(&self, id: &str, client: Option<&str>) -> Answer<Option<i64>> {
        Ok(self.table.number(id, client)?)
    }

    /// A page of jobs.
    pub(crate) fn list(&self, page: &Page<'_>) -> Answer<Vec<Job>> {
        Ok(self.table.list(page)?)
    }

    /// How many jobs there are of each status.
    pub(crate) fn counts(&self) -> Answer<Vec<(String, i64)>> {
        Ok(self.table.counts()?)
    }

    /// Removes a job; one that is worked on is given up at its next step.
    pub(crate) fn remove(&self, id: &str) -> Answer<()> {
        let is_running = {
            let turns = self.turns();
            let running = turns.running.iter().find(|(own, _)| own == id);
            // The row goes while nobody can begin it.
            self.table.remove(id)?;
            running.map(|(_, abort)| abort.store(true, Ordering::Relaxed)).is_some()
        };
        if !is_running {
            let _ = fs::remove_dir_all(self.place(id));
        }
        self.live.moved();
        Ok(())
    }

    /// The next job, when there is one: of the client that was served longest ago, its oldest. None when the server stops.
    pub(crate) fn next(&self) -> Result<Option<Taken>> {
        let mut turns = self.turns();
        loop {
            if self.is_stopping() {
                return Ok(None);
            }
            let waiting = self.table.waiting()?;
            let Some(Waiting { id, client, .. }) = turns.next(&waiting).cloned() else {
                turns = self.bell.wait(turns).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(job) = self.begin(&id)? else { continue };
            let abort = turns.take(&id, &client);
            self.live.moved();
            return Ok(Some(Taken { job, abort }));
        }
    }

    /// Begins a job that waits, if it is still there. One that cannot be read any more fails, and holds nobody up.
    fn begin(&self, id: &str) -> Result<Option<Job>> {
        if !self.table.begin(id, now())? {
            return Ok(None);
        }
        let job = self.table.find(id)?;
        if let Some(failure) = job.as_ref().and_then(|job| job.failure.as_ref()) {
            self.fail(id, failure)?;
            self.live.moved();
            return Ok(None);
        }
        Ok(job)
    }

    /// A job has failed: what was given to it is of no more use.
    fn fail(&self, id: &str, failure: &Failure) -> Result<()> {
        self.table.fail(id, now(), failure)?;
        let entries = fs::read_dir(self.place(id)).into_iter().flatten().flatten();
        entries.for_each(|entry| _ = fs::remove_file(entry.path()));
        Ok(())
    }

    /// More jobs to be made in the same run as one that was taken, as many as `room` says at the most if there are any:
    /// those that wait and are `alike`, each client's in turn.
    pub(crate) fn join(
        &self,
        alike: impl Fn(&Job) -> bool,
        room: impl FnOnce() -> usize,
    ) -> Result<Vec<Taken>> {
        let mut found = Vec::new();
        for own in self.table.waiting()? {
            if is_suspect(own.begun) {
                continue;
            }
            let job = self.table.find(&own.id)?;
            found.extend(job.filter(&alike).map(|_| own));
        }
        if found.is_empty() {
            return Ok(Vec::new());
        }
        // What is counted may be read from a disk, so nobody waits for a turn meanwhile.
        let room = room();
        let mut turns = self.turns();
        let mut taken = Vec::new();
        while taken.len() < room {
            let Some(Waiting { id, client, .. }) = turns.next(&found).cloned() else { break };
            found.retain(|own| own.id != id);
            let Some(job) = self.begin(&id)? else { continue };
            let abort = turns.take(&id, &client);
            taken.push(Taken { job, abort });
        }
        self.live.moved();
        Ok(taken)
    }

    /// Says what came of a job that was taken.
    pub(crate) fn finish(&self, id: &str, outcome: Outcome) -> Result<()> {
        self.live.count(|totals| *totals.ended.entry(outcome.name()).or_default() += 1);
        let result = match outcome {
            Outcome::Made(made) => {
                let is_there = self.table.complete(id, now(), &made)?;
                if !is_there {
                    let _ = fs::remove_dir_all(self.place(id));
                }
                Ok(())
            }
            Outcome::Failed(failure) => self.fail(id, &failure),
            Outcome::Stopped => self.table.requeue(id),
            Outcome::GivenUp => {
                let _ = fs::remove_dir_all(self.place(id));
                Ok(())
            }
        };
        self.turns().running.retain(|(own, _)| own != id);
        self.live.end(id);
        result
    }

    /// Removes what is too old or too much.
    pub(crate) fn retain(&self) -> Result<()> {
        let over = self.table.over()?;
        let oldest = now() - self.retention.age.as_secs() as i64;
        let mut bytes: u64 = over.iter().map(|(_, _, bytes)| bytes).sum();
        for (id, ended, own) in over {
            if ended >= oldest && bytes <= self.retention.bytes {
                break;
            }
            self.table.remove(&id)?;
            let _ = fs::remove_dir_all(self.place(&id));
            bytes -= own;
        }
        Ok(())
    }

    /// When a job that ended then is removed.
    pub(crate) fn expires(&self, ended: i64) -> i64 {
        ended.saturating_add(self.retention.age.as_secs() as i64)
    }

    /// Whether the server is going down.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Lets the worker end: what it works on will begin again at the next start.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Under the lock, so that nobody looks at the flag before and waits after.
        let _turns = self.turns();
        self.bell.notify_all();
        self.live.moved();
    }
}

/// What came of a job.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Made(Made),
    Failed(Failure),
    /// The server stops.
    Stopped,
    /// It was removed.
    GivenUp,
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Outcome::Made(_) => "completed",
            Outcome::Failed(_) => "failed",
            Outcome::Stopped => "stopped",
            Outcome::GivenUp => "deleted",
        }
    }
}
