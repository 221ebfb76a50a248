//! Ranks as processes that MPI joins: one rank each.
//!
//! The thread that calls [`run`] owns MPI: it initialises it, sends, receives and ends it. The rank itself runs
//! on a pool of workers beside it, so that messages move while it computes. What arrives goes into a hall
//! like that of thread ranks, where the rank waits, compares headers and names who is missing: one watchdog
//! for both.

mod postman;
mod wire;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rayon::ThreadPool;

use self::postman::Postman;
use self::wire::Message;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::hall::Hall;
use crate::link::{Link, Meanwhile, Post, Slot};
use crate::parcel::Parcel;
use crate::ranks::{Ranks, message};

/// How long a process whose job failed tries to tell the others before it leaves.
const FAREWELL: Duration = Duration::from_secs(2);

/// Runs `body` as this process's rank and returns what it gave. `ranks.size` must be the number of
/// processes.
///
/// A body that fails or panics breaks the world: the other ranks wake up and fail too.
///
/// # Errors
/// MPI cannot be used, there are other than `ranks.size` processes, or the body panicked.
pub fn run<T: Send, E: Send + fmt::Display>(
    ranks: &Ranks,
    body: impl FnOnce(Group) -> Result<T, E> + Send,
) -> Result<Ended<Result<T, E>>> {
    let mut postman = Postman::start()?;
    let (rank, size) = (postman.rank, postman.size);
    if size != ranks.size {
        let reason = format!("{size} processes were started for {} ranks", ranks.size);
        return Err(Error::Launch { reason });
    }
    let pool = ranks.pool(rank)?;
    let hall = Arc::new(Hall::new(size, ranks.deadline, ranks.checked));
    hall.hear_all();
    let (outgoing, letters) = channel();
    let root = Arc::clone(&hall);
    let link = MpiLink { hall: Arc::clone(&hall), root, number: 0, rank, size, outgoing };
    let link = Arc::new(link);
    let result = thread::scope(|scope| {
        let body = scope.spawn(move || run_rank(&link, &pool, body));
        deliver(&mut postman, &hall, &letters, || body.is_finished());
        body.join().expect("a rank's panic is caught on its own thread")
    })?;
    // A rank that missed another after its own part was done has not failed so far.
    if let Some((_, error @ Error::Lost { .. })) = hall.failure().filter(|(by, _)| *by == rank) {
        postman.finish(true);
        return Err(error);
    }
    Ok(Ended { result, postman: Some(postman), broken: hall.broken_by().is_some() })
}

fn run_rank<T: Send, E: Send + fmt::Display>(
    link: &Arc<MpiLink>,
    pool: &ThreadPool,
    body: impl FnOnce(Group) -> Result<T, E> + Send,
) -> Result<Result<T, E>> {
    let (rank, size) = (link.rank, link.size);
    let group = Group::world(Arc::clone(link) as Arc<dyn Link>, "world", size, rank);
    // What the body shares with others is the hall, which stays consistent when it unwinds.
    let result = catch_unwind(AssertUnwindSafe(|| pool.install(|| body(group))));
    let result = result.map_err(|panic| {
        let error = Error::Panicked { rank, message: message(panic.as_ref()) };
        link.fail(rank, error.clone());
        error
    });
    if let Ok(Err(error)) = &result {
        link.fail(rank, Error::Elsewhere { rank, reason: error.to_string() });
    }
    link.end(rank);
    result
}

/// What a rank gave; MPI is ended when this is.
pub struct Ended<T> {
    /// What the body returned.
    pub result: T,
    postman: Option<Postman>,
    broken: bool,
}

impl<T> Ended<T> {
    /// Ends MPI, on all ranks together, and hands out the result. After a failure nothing is waited for, and
    /// MPI is left as it is: the process is to exit with a code that is not zero.
    pub fn finish(mut self) -> T {
        if let Some(postman) = self.postman.take() {
            postman.finish(self.broken);
        }
        self.result
    }
}

/// Carries messages until the rank has ended, all it sent is gone, and all know that all others have ended too. Meanwhile
/// it tells the others that this process runs, and breaks the world if one gives no such sign to a rank that is done.
fn deliver(
    postman: &mut Postman,
    hall: &Hall,
    letters: &Receiver<Letter>,
    has_ended: impl Fn() -> bool,
) {
    let mut idle = Idle::default();
    let (mut rest, mut next) = (false, None);
    // Since when the job is known to have failed.
    let mut failed: Option<Instant> = None;
    let mut pulse = Pulse::new(hall.deadline());
    let others: Vec<usize> = (0..postman.size).filter(|to| *to != postman.rank).collect();
    loop {
        let mut busy = next.is_some();
        if pulse.was_stopped() {
            // Whoever stopped this process may have stopped them all.
            hall.hear_all();
        }
        if pulse.is_due() && !hall.has_left(postman.rank) {
            others.iter().for_each(|to| postman.send(*to, (0, Message::Alive)));
        }
        while let Some(letter) = next.take().or_else(|| letters.try_recv().ok()) {
            let Letter { to, world, message } = letter;
            postman.send(to, (world, message));
            busy = true;
        }
        for (from, bytes) in postman.receive() {
            hall.hear(from);
            let message = Message::decode(&bytes);
            // A sign of life is nothing that moves.
            busy |= !matches!(message, Some((_, Message::Alive)));
            match message {
                Some((0, message)) => hand_over(hall, from, message),
                Some((world, message)) => {
                    hand_over(&hall.inner(world), from, message);
                    hall.forget_ended();
                }
                None => _ = hall.fail(from, Error::Damaged { rank: from }),
            }
        }
        let sending = postman.is_sending();
        if hall.broken_by().is_some() {
            let since = *failed.get_or_insert_with(Instant::now);
            if rest && (!sending || since.elapsed() > FAREWELL) {
                return;
            }
        }
        if rest && failed.is_none() {
            if hall.have_ended() && !hall.has_left(postman.rank) {
                hall.leave(postman.rank);
                others.iter().for_each(|to| postman.send(*to, (0, Message::Left)));
            }
            if !sending && hall.have_left() {
                return;
            }
            hall.miss_silent(postman.rank);
            if let Some((_, error)) = hall.failure() {
                others
                    .iter()
                    .for_each(|to| postman.send(*to, (0, Message::Failed(error.to_string()))));
            }
        }
        // What was put into the box before the end is seen in the round after it.
        rest = has_ended() && !busy;
        next = idle.pause((busy, sending || postman.is_receiving()), letters);
    }
}

fn hand_over(hall: &Hall, from: usize, message: Message) {
    match message {
        Message::Alive => {}
        Message::Left => hall.leave(from),
        Message::Post(slot, post) => _ = hall.post(slot, post),
        Message::StartWork(what, limit) => hall.start_work(from, &what, limit),
        Message::FinishWork => hall.finish_work(from),
        Message::Done(done) => hall.tell(from, done),
        Message::Failed(reason) => _ = hall.fail(from, Error::Elsewhere { rank: from, reason }),
        Message::Ended => hall.end(from),
        Message::CalledOff => hall.call_off(),
    }
}

/// When to tell the others that this process runs: several times within the time that a rank is waited for.
struct Pulse {
    interval: Duration,
    next: Instant,
    last_round: Instant,
}

impl Pulse {
    fn new(deadline: Duration) -> Pulse {
        let interval = (deadline / 4).clamp(Duration::from_millis(50), Duration::from_secs(15));
        let now = Instant::now();
        Pulse { interval, next: now, last_round: now }
    }

    /// Whether so much time has passed since the last round that this process cannot have run.
    fn was_stopped(&mut self) -> bool {
        let passed = self.last_round.elapsed();
        self.last_round = Instant::now();
        passed > 2 * self.interval
    }

    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.interval;
        }
        is_due
    }
}

/// How long to sleep when nothing moves: little at first, so that short exchanges are quick, and the longer nothing
/// comes the more, so that ranks which wait for work leave the machine to others.
#[derive(Default)]
struct Idle {
    rounds: u32,
    /// Since when nothing moves.
    since: Option<Instant>,
}

impl Idle {
    /// The longest sleep while ranks speak to each other; a message waits no longer than this to be seen.
    const SHORT: Duration = Duration::from_micros(100);

    /// The longest sleep of all.
    const LONG: Duration = Duration::from_millis(5);

    /// A message that comes after a silence waits at most so much of it more.
    const PART: u32 = 200;

    /// Sleeps until there is a letter to be sent, which it returns, or it is time to look for others. What is `moving`
    /// wants to be looked after, even if nothing came or went just now.
    fn pause(
        &mut self,
        (busy, moving): (bool, bool),
        letters: &Receiver<Letter>,
    ) -> Option<Letter> {
        self.rounds = if busy { 0 } else { (self.rounds + 1).min(20) };
        if busy || moving {
            self.since = None;
        }
        if self.rounds < 5 {
            thread::yield_now();
            return None;
        }
        let silence = self.since.get_or_insert_with(Instant::now).elapsed();
        let short = Self::SHORT.min(Duration::from_micros(5 * u64::from(self.rounds)));
        let sleep = (silence / Self::PART).clamp(short, Self::LONG);
        match letters.recv_timeout(sleep) {
            Ok(letter) => Some(letter),
            Err(RecvTimeoutError::Timeout) => None,
            // Nothing is sent any more.
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(sleep);
                None
            }
        }
    }
}

/// A message about a world, and who it is for.
struct Letter {
    to: usize,
    world: u64,
    message: Message,
}

/// A hall of this process and the way to the others.
struct MpiLink {
    hall: Arc<Hall>,
    /// The hall of the world around all others.
    root: Arc<Hall>,
    /// That of this world, 0 of the one around all others.
    number: u64,
    rank: usize,
    size: usize,
    outgoing: Sender<Letter>,
}

impl MpiLink {
    fn send(&self, to: usize, message: Message) {
        // The postman is gone only when this process is ending.
        _ = self.outgoing.send(Letter { to, world: self.number, message });
    }

    fn tell_all(&self, message: impl Fn() -> Message) {
        (0..self.size).filter(|to| *to != self.rank).for_each(|to| self.send(to, message()));
    }

    /// Tells the others of a failure that began here.
    fn spread<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result
            && self.hall.broken_by() == Some(self.rank)
        {
            let reason = match error {
                // Whoever hears it knows from whom.
                Error::Elsewhere { rank, reason } if *rank == self.rank => reason.clone(),
                other => other.to_string(),
            };
            self.tell_all(|| Message::Failed(reason.clone()));
        }
        result
    }
}

impl Link for MpiLink {
    fn size(&self) -> usize {
        self.size
    }

    fn post(&self, slot: Slot, post: Post) -> Result<()> {
        if slot.to == self.rank {
            return self.hall.post(slot, post);
        }
        self.hall.note(self.rank, &post.call)?;
        self.send(slot.to, Message::Post(slot, post));
        Ok(())
    }

    fn collect(
        &self,
        at: (usize, &[Slot]),
        call: &Call,
        meanwhile: Meanwhile<'_>,
    ) -> Result<Vec<Vec<Parcel>>> {
        self.spread(self.hall.collect(at, call, meanwhile))
    }

    fn tell(&self, rank: usize, done: f64) {
        self.hall.tell(rank, done);
        self.tell_all(|| Message::Done(done));
    }

    fn told(&self, rank: usize) -> Option<f64> {
        self.hall.told(rank)
    }

    fn fail(&self, rank: usize, error: Error) -> Error {
        let error = self.hall.fail(rank, error);
        _ = self.spread(Err::<(), _>(error.clone()));
        error
    }

    fn start_work(&self, rank: usize, what: &str, limit: Duration) {
        self.hall.start_work(rank, what, limit);
        self.tell_all(|| Message::StartWork(what.into(), limit));
    }

    fn finish_work(&self, rank: usize) {
        self.hall.finish_work(rank);
        self.tell_all(|| Message::FinishWork);
    }

    fn within(&self, number: u64) -> Arc<dyn Link> {
        let (hall, root) = (self.root.inner(number), Arc::clone(&self.root));
        let (rank, size, outgoing) = (self.rank, self.size, self.outgoing.clone());
        Arc::new(MpiLink { hall, root, number, rank, size, outgoing })
    }

    fn end(&self, rank: usize) {
        self.hall.end(rank);
        self.tell_all(|| Message::Ended);
    }

    fn wait_for_ends(&self, rank: usize, call: &Call) -> Result<()> {
        self.hall.wait_for_ends(rank, call)
    }

    fn forget_ended(&self) {
        self.root.forget_ended();
    }

    fn call_off(&self) {
        self.hall.call_off();
        self.tell_all(|| Message::CalledOff);
    }

    fn is_called_off(&self) -> bool {
        self.hall.is_called_off()
    }
}
