//! Where the ranks of one process meet: one lock over everybody's post, and a bell.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::error::{Absence, Error, RankState, Result};
use crate::link::{Link, Meanwhile, Post, Slot};
use crate::parcel::Parcel;

/// Longer than any work, and short enough to be added to the time of day.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// The meeting place of all ranks of a process, whatever groups they form.
pub(crate) struct Hall {
    deadline: Duration,
    /// Whether headers are compared; benchmarks want to know what that costs.
    checked: bool,
    state: Mutex<Everyone>,
    bell: Condvar,
}

/// What the lock protects.
struct Everyone {
    seats: Vec<Seat>,
    /// Posts on their way.
    posts: BTreeMap<Slot, VecDeque<Post>>,
    /// Who broke the world, and why.
    failure: Option<(usize, Error)>,
    /// Whether that was the world around this one.
    is_over: bool,
    /// Whether what is done here is not wanted any more.
    is_called_off: bool,
    /// Worlds within this one.
    within: BTreeMap<u64, Arc<Hall>>,
}

/// What is known about a rank.
#[derive(Default)]
struct Seat {
    last: Option<Call>,
    is_waiting: bool,
    busy: Vec<Work>,
    /// When it last finished announced work: from then on it has the ordinary deadline again.
    freed: Option<Instant>,
    has_ended: bool,
    /// When it last gave a sign of life, if it gives any: threads of one process stop together.
    heard: Option<Instant>,
    /// Whether it knows that all have ended.
    #[cfg(feature = "mpi")]
    has_left: bool,
    /// How far it said that it is.
    done: Option<f64>,
}

/// How often a rank that waits does what it was asked to do meanwhile.
const MEANWHILE: Duration = Duration::from_millis(200);

struct Work {
    what: Arc<str>,
    limit: Duration,
    until: Instant,
}

impl Hall {
    pub(crate) fn new(size: usize, deadline: Duration, checked: bool) -> Hall {
        let seats = (0..size).map(|_| Seat::default()).collect();
        let (posts, within, failure) = (BTreeMap::new(), BTreeMap::new(), None);
        let state =
            Everyone { seats, posts, failure, is_over: false, is_called_off: false, within };
        let (state, bell) = (Mutex::new(state), Condvar::new());
        Hall { deadline: deadline.min(FOREVER), checked, state, bell }
    }

    /// Who broke the world.
    pub(crate) fn broken_by(&self) -> Option<usize> {
        self.lock().failure.as_ref().map(|(rank, _)| *rank)
    }

    /// Whether no rank makes further calls.
    pub(crate) fn have_ended(&self) -> bool {
        self.lock().seats.iter().all(|seat| seat.has_ended)
    }

    /// A world within this one, which is as broken as this one is.
    pub(crate) fn inner(&self, number: u64) -> Arc<Hall> {
        let mut everyone = self.lock();
        let Everyone { seats, failure, within, .. } = &mut *everyone;
        let begin = || {
            let hall = Hall::new(seats.len(), self.deadline, self.checked);
            // Signs of life are of processes, and so of all worlds.
            for (seat, around) in hall.lock().seats.iter_mut().zip(&*seats) {
                seat.heard = around.heard;
            }
            if let Some((rank, error)) = failure {
                hall.break_off(*rank, error);
            }
            Arc::new(hall)
        };
        Arc::clone(within.entry(number).or_insert_with(begin))
    }

    /// The world around this one is broken: nobody comes to an end here any more.
    fn break_off(&self, rank: usize, error: &Error) {
        let mut everyone = self.lock();
        everyone.is_over = true;
        self.fail_locked(&mut everyone, rank, error.clone());
    }

    /// Whether all ranks know that no rank makes further calls.
    #[cfg(feature = "mpi")]
    pub(crate) fn have_left(&self) -> bool {
        self.lock().seats.iter().all(|seat| seat.has_left)
    }

    /// Whether a rank does.
    #[cfg(feature = "mpi")]
    pub(crate) fn has_left(&self, rank: usize) -> bool {
        self.lock().seats[rank].has_left
    }

    /// The rank knows that no rank makes further calls.
    #[cfg(feature = "mpi")]
    pub(crate) fn leave(&self, rank: usize) {
        self.lock().seats[rank].has_left = true;
    }

    /// Something came from a rank of another process, about this world or one within it.
    #[cfg(feature = "mpi")]
    pub(crate) fn hear(&self, rank: usize) {
        let mut everyone = self.lock();
        everyone.seats[rank].heard = Some(Instant::now());
        everyone.within.values().for_each(|hall| hall.hear(rank));
    }

    /// From now on every rank is expected to give signs of life.
    #[cfg(feature = "mpi")]
    pub(crate) fn hear_all(&self) {
        let now = Instant::now();
        let mut everyone = self.lock();
        everyone.seats.iter_mut().for_each(|seat| seat.heard = Some(now));
        everyone.within.values().for_each(|hall| hall.hear_all());
    }

    /// Breaks the world if a rank that has not left gave no sign of life for as long as `rank`, which is done, waits.
    #[cfg(feature = "mpi")]
    pub(crate) fn miss_silent(&self, rank: usize) {
        let mut everyone = self.lock();
        let seats = everyone.seats.iter().enumerate();
        let silent = seats.filter(|(other, seat)| {
            *other != rank
                && !seat.has_left
                && seat.silence().is_some_and(|own| own > self.deadline)
        });
        let absent: Vec<Absence> =
            silent.map(|(other, _)| everyone.absence(other, self.deadline)).collect();
        if !absent.is_empty() {
            let error = Error::Lost { rank, absent };
            self.fail_locked(&mut everyone, rank, error);
        }
    }

    /// The failure that broke the world.
    #[cfg(feature = "mpi")]
    pub(crate) fn failure(&self) -> Option<(usize, Error)> {
        self.lock().failure.clone()
    }

    /// How long a rank waits for another.
    #[cfg(feature = "mpi")]
    pub(crate) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Remembers the call that a rank makes to another process.
    ///
    /// # Errors
    /// The world is broken.
    #[cfg(feature = "mpi")]
    pub(crate) fn note(&self, rank: usize, call: &Call) -> Result<()> {
        let mut everyone = self.lock();
        everyone.intact()?;
        everyone.seats[rank].last = Some(call.clone());
        Ok(())
    }

    fn fail_locked(&self, everyone: &mut Everyone, rank: usize, error: Error) -> Error {
        let (rank, error) = everyone.failure.get_or_insert((rank, error)).clone();
        self.bell.notify_all();
        everyone.within.values().for_each(|hall| hall.break_off(rank, &error));
        error
    }

    /// How long those that are absent may still stay so for one that has waited since `start`.
    ///
    /// # Errors
    /// Some have been for too long.
    fn patience(
        &self,
        everyone: &Everyone,
        absent: &[usize],
        start: Instant,
    ) -> Result<Duration, Vec<Absence>> {
        let due: Vec<_> = absent.iter().map(|peer| everyone.due(*peer, start, self)).collect();
        let now = Instant::now();
        let overdue = absent.iter().zip(&due).filter(|(_, due)| **due <= now);
        let overdue: Vec<_> =
            overdue.map(|(peer, _)| everyone.absence(*peer, self.deadline)).collect();
        match overdue.is_empty() {
            true => Ok(due.into_iter().min().unwrap_or(now).saturating_duration_since(now)),
            false => Err(overdue),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Everyone> {
        // Every change under the lock is complete before anything in it can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Link for Hall {
    fn size(&self) -> usize {
        self.lock().seats.len()
    }

    fn post(&self, slot: Slot, post: Post) -> Result<()> {
        let mut everyone = self.lock();
        everyone.intact()?;
        everyone.seats[slot.from].last = Some(post.call.clone());
        everyone.posts.entry(slot).or_default().push_back(post);
        drop(everyone);
        self.bell.notify_all();
        Ok(())
    }

    fn collect(
        &self,
        (rank, slots): (usize, &[Slot]),
        call: &Call,
        mut meanwhile: Meanwhile<'_>,
    ) -> Result<Vec<Vec<Parcel>>> {
        let mut everyone = self.lock();
        everyone.intact()?;
        let start = Instant::now();
        everyone.seats[rank].last = Some(call.clone());
        everyone.seats[rank].is_waiting = true;
        loop {
            // A difference says more than an absence, so what has come is compared first.
            let difference = everyone.difference(rank, slots, call).filter(|_| self.checked);
            if let Some(error) = difference {
                return Err(self.fail_locked(&mut everyone, rank, error));
            }
            let absent = everyone.absent(slots, call);
            if absent.is_empty() {
                everyone.seats[rank].is_waiting = false;
                return Ok(slots.iter().map(|slot| everyone.take(slot, call)).collect());
            }
            everyone.intact()?;
            let mut patience = match self.patience(&everyone, &absent, start) {
                Ok(patience) => patience,
                Err(absent) => {
                    let (call, waited) = (Box::new(call.clone()), start.elapsed());
                    let error = Error::Missing { rank, call, waited, absent };
                    return Err(self.fail_locked(&mut everyone, rank, error));
                }
            };
            if let Some(meanwhile) = &mut meanwhile {
                drop(everyone);
                meanwhile();
                patience = patience.min(MEANWHILE);
                everyone = self.lock();
                // What came meanwhile has rung already.
                if everyone.absent(slots, call).len() < absent.len() {
                    continue;
                }
            }
            let wait = self.bell.wait_timeout(everyone, patience);
            everyone = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn fail(&self, rank: usize, error: Error) -> Error {
        self.fail_locked(&mut self.lock(), rank, error)
    }

    fn tell(&self, rank: usize, done: f64) {
        self.lock().seats[rank].done = Some(done);
    }

    fn told(&self, rank: usize) -> Option<f64> {
        self.lock().seats[rank].done
    }

    fn start_work(&self, rank: usize, what: &str, limit: Duration) {
        let work = Work { what: what.into(), limit, until: Instant::now() + limit.min(FOREVER) };
        self.lock().seats[rank].busy.push(work);
        self.bell.notify_all();
    }

    fn finish_work(&self, rank: usize) {
        let mut everyone = self.lock();
        everyone.seats[rank].busy.pop();
        everyone.seats[rank].freed = Some(Instant::now());
        drop(everyone);
        self.bell.notify_all();
    }

    fn within(&self, number: u64) -> Arc<dyn Link> {
        self.inner(number)
    }

    fn end(&self, rank: usize) {
        self.lock().seats[rank].has_ended = true;
        self.bell.notify_all();
    }

    fn wait_for_ends(&self, rank: usize, call: &Call) -> Result<()> {
        let mut everyone = self.lock();
        let start = Instant::now();
        loop {
            let others = everyone.seats.iter().enumerate();
            let absent = others.filter(|(peer, seat)| *peer != rank && !seat.has_ended);
            let absent: Vec<usize> = absent.map(|(peer, _)| peer).collect();
            // A failure of this world is how its ranks come to their ends; one around it is not, and is told to all.
            if everyone.is_over {
                return everyone.intact();
            }
            if absent.is_empty() {
                return Ok(());
            }
            let patience = self.patience(&everyone, &absent, start).map_err(|absent| {
                let (call, waited) = (Box::new(call.clone()), start.elapsed());
                Error::Missing { rank, call, waited, absent }
            })?;
            let wait = self.bell.wait_timeout(everyone, patience);
            everyone = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn forget_ended(&self) {
        self.lock().within.retain(|_, hall| !hall.have_ended());
    }

    fn call_off(&self) {
        self.lock().is_called_off = true;
    }

    fn is_called_off(&self) -> bool {
        let everyone = self.lock();
        everyone.is_called_off || everyone.failure.is_some()
    }
}

impl Seat {
    /// For how long it gave no sign of life, if it gives any.
    fn silence(&self) -> Option<Duration> {
        self.heard.map(|heard| heard.elapsed())
    }
}

impl Everyone {
    fn intact(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    /// Where the post of this number stands; those before it were expected earlier and are still waited
    /// for.
    fn place(&self, slot: &Slot, call: &Call) -> Option<usize> {
        self.posts.get(slot)?.iter().position(|post| post.call.sequence == call.sequence)
    }

    fn difference(&self, rank: usize, slots: &[Slot], call: &Call) -> Option<Error> {
        let other = |slot: &Slot| {
            let place = self.place(slot, call)?;
            Some((slot.from, &self.posts[slot][place].call))
        };
        let (peer, other) =
            slots.iter().filter_map(other).find(|(_, other)| !call.agrees(other))?;
        let (own, other) = (Box::new(call.clone()), Box::new(other.clone()));
        Some(Error::Mismatch { rank, own, peer, other })
    }

    /// The ranks whose posts are not here yet.
    fn absent(&self, slots: &[Slot], call: &Call) -> Vec<usize> {
        let missing = slots.iter().filter(|slot| self.place(slot, call).is_none());
        missing.map(|slot| slot.from).collect()
    }

    fn take(&mut self, slot: &Slot, call: &Call) -> Vec<Parcel> {
        let place = self.place(slot, call);
        let post = place.and_then(|place| self.posts.get_mut(slot)?.remove(place));
        post.expect("the post was seen under the same lock").parcels
    }

    /// Until when `rank` is waited for by one that has waited since `start`.
    fn due(&self, rank: usize, start: Instant, hall: &Hall) -> Instant {
        let seat = &self.seats[rank];
        if seat.has_ended {
            return start;
        }
        let freed = seat.freed.map(|freed| freed + hall.deadline);
        // Whoever works gives signs of life; a process that is stopped gives none.
        let lost = seat.heard.map(|heard| heard + hall.deadline);
        let busy =
            seat.busy.iter().map(|work| lost.map_or(work.until, |lost| lost.min(work.until)));
        busy.chain(freed).fold(start + hall.deadline, Instant::max)
    }

    fn absence(&self, rank: usize, deadline: Duration) -> Absence {
        let seat = &self.seats[rank];
        let silence = seat.silence().filter(|silence| *silence >= deadline);
        let state = match (&seat.last, seat.busy.last(), silence) {
            _ if seat.has_ended => RankState::Ended,
            (_, Some(work), Some(silence)) => RankState::Lost { what: work.what.clone(), silence },
            (_, Some(work), None) => RankState::Busy { what: work.what.clone(), limit: work.limit },
            (None, None, _) => RankState::Silent,
            (Some(call), None, _) if seat.is_waiting => RankState::Waiting(Box::new(call.clone())),
            (Some(call), None, _) => RankState::After(Box::new(call.clone())),
        };
        Absence { rank, state }
    }
}
