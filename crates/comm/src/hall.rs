//! Where the ranks of one process meet: one lock over everybody's post, and a bell.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::call::Call;
use crate::error::{Absence, Error, RankState, Result};

/// Longer than any work, and short enough to be added to the time of day.
const FOREVER: Duration = Duration::from_secs(u32::MAX as u64);

/// What travels: a tensor outside any graph, whose rank the header states.
pub(crate) type Payload = Box<dyn Any + Send>;

/// The meeting place of one group.
pub(crate) struct Hall {
    pub(crate) name: Arc<str>,
    pub(crate) size: usize,
    deadline: Duration,
    state: Mutex<Everyone>,
    bell: Condvar,
}

/// What the lock protects.
struct Everyone {
    seats: Vec<Seat>,
    /// Posts on their way, by (receiver, sender), apart for collectives and for messages.
    posts: BTreeMap<(Channel, usize, usize), VecDeque<Post>>,
    /// Who broke the group, and why.
    failure: Option<(usize, Error)>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Channel {
    Collectives,
    Messages,
}

/// A header with what it announces. Nothing is taken from a post whose header does not agree.
struct Post {
    call: Call,
    payload: Payload,
}

/// What is known about a rank.
#[derive(Default)]
struct Seat {
    collectives: u64,
    /// Messages sent to and received from each peer.
    sent: BTreeMap<usize, u64>,
    received: BTreeMap<usize, u64>,
    last: Option<Call>,
    is_waiting: bool,
    busy: Vec<Work>,
    /// When it last finished announced work: from then on it has the ordinary deadline again.
    freed: Option<Instant>,
    has_ended: bool,
}

struct Work {
    what: Arc<str>,
    limit: Duration,
    until: Instant,
}

impl Hall {
    pub(crate) fn new(name: &str, size: usize, deadline: Duration) -> Hall {
        let seats = (0..size).map(|_| Seat::default()).collect();
        let state = Everyone { seats, posts: BTreeMap::new(), failure: None };
        let (state, bell) = (Mutex::new(state), Condvar::new());
        Hall { name: name.into(), size, deadline: deadline.min(FOREVER), state, bell }
    }

    /// Gives `payloads[i]` to rank `i` and returns what every rank gave to this one.
    pub(crate) fn exchange(
        &self,
        rank: usize,
        mut call: Call,
        payloads: Vec<Payload>,
    ) -> Result<Vec<Payload>> {
        let mut everyone = self.lock();
        everyone.intact()?;
        call.sequence = everyone.seats[rank].collectives;
        everyone.seats[rank].collectives += 1;
        for (peer, payload) in payloads.into_iter().enumerate() {
            everyone.post((Channel::Collectives, peer, rank), Post { call: call.clone(), payload });
        }
        self.bell.notify_all();
        let peers: Vec<usize> = (0..self.size).collect();
        self.collect(everyone, (Channel::Collectives, rank), &peers, call)
    }

    /// Leaves a message for `call`'s receiver.
    pub(crate) fn send(
        &self,
        rank: usize,
        peer: usize,
        mut call: Call,
        payload: Payload,
    ) -> Result<()> {
        let mut everyone = self.lock();
        everyone.intact()?;
        let sent = everyone.seats[rank].sent.entry(peer).or_default();
        call.sequence = *sent;
        *sent += 1;
        everyone.seats[rank].last = Some(call.clone());
        everyone.post((Channel::Messages, peer, rank), Post { call, payload });
        self.bell.notify_all();
        Ok(())
    }

    /// Takes the next message of `peer`.
    pub(crate) fn receive(&self, rank: usize, peer: usize, mut call: Call) -> Result<Payload> {
        let mut everyone = self.lock();
        everyone.intact()?;
        let received = everyone.seats[rank].received.entry(peer).or_default();
        call.sequence = *received;
        *received += 1;
        let mut payloads = self.collect(everyone, (Channel::Messages, rank), &[peer], call)?;
        Ok(payloads.remove(0))
    }

    /// Waits for one post of every peer, compares the headers and takes what they announce.
    fn collect(
        &self,
        mut everyone: MutexGuard<'_, Everyone>,
        (channel, rank): (Channel, usize),
        peers: &[usize],
        call: Call,
    ) -> Result<Vec<Payload>> {
        let start = Instant::now();
        everyone.seats[rank].last = Some(call.clone());
        everyone.seats[rank].is_waiting = true;
        loop {
            // A difference says more than an absence, so what has come is compared first.
            if let Some(error) = everyone.difference((channel, rank), peers, &call) {
                return Err(self.fail_locked(&mut everyone, rank, error));
            }
            let absent = everyone.absent((channel, rank), peers);
            if absent.is_empty() {
                everyone.seats[rank].is_waiting = false;
                return Ok(everyone.take((channel, rank), peers));
            }
            everyone.intact()?;
            let due: Vec<_> = absent.iter().map(|peer| everyone.due(*peer, start, self)).collect();
            let now = Instant::now();
            let overdue = absent.iter().zip(&due).filter(|(_, due)| **due <= now);
            let overdue: Vec<_> = overdue.map(|(peer, _)| everyone.absence(*peer)).collect();
            if !overdue.is_empty() {
                let (call, waited) = (Box::new(call), start.elapsed());
                let error = Error::Missing { rank, call, waited, absent: overdue };
                return Err(self.fail_locked(&mut everyone, rank, error));
            }
            let next = due.into_iter().min().unwrap_or(now);
            let patience = next.saturating_duration_since(now);
            let wait = self.bell.wait_timeout(everyone, patience);
            everyone = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Breaks the group: whoever waits wakes up with the error. The first failure stays.
    pub(crate) fn fail(&self, rank: usize, error: Error) -> Error {
        self.fail_locked(&mut self.lock(), rank, error)
    }

    fn fail_locked(&self, everyone: &mut Everyone, rank: usize, error: Error) -> Error {
        let (_, error) = everyone.failure.get_or_insert((rank, error)).clone();
        self.bell.notify_all();
        error
    }

    /// Who broke the group.
    pub(crate) fn broken_by(&self) -> Option<usize> {
        self.lock().failure.as_ref().map(|(rank, _)| *rank)
    }

    /// The rank makes no further calls.
    pub(crate) fn end(&self, rank: usize) {
        self.lock().seats[rank].has_ended = true;
        self.bell.notify_all();
    }

    /// The rank enters long work.
    pub(crate) fn start_work(&self, rank: usize, what: &str, limit: Duration) {
        let work = Work { what: what.into(), limit, until: Instant::now() + limit.min(FOREVER) };
        self.lock().seats[rank].busy.push(work);
        self.bell.notify_all();
    }

    /// The rank leaves the work it announced last.
    pub(crate) fn finish_work(&self, rank: usize) {
        let mut everyone = self.lock();
        everyone.seats[rank].busy.pop();
        everyone.seats[rank].freed = Some(Instant::now());
        drop(everyone);
        self.bell.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Everyone> {
        // Every change under the lock is complete before anything in it can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Everyone {
    fn intact(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    fn post(&mut self, slot: (Channel, usize, usize), post: Post) {
        self.posts.entry(slot).or_default().push_back(post);
    }

    fn front(&self, (channel, rank): (Channel, usize), peer: usize) -> Option<&Post> {
        self.posts.get(&(channel, rank, peer))?.front()
    }

    fn difference(&self, slot: (Channel, usize), peers: &[usize], call: &Call) -> Option<Error> {
        let other = |peer: &usize| self.front(slot, *peer).map(|post| (*peer, &post.call));
        let (peer, other) =
            peers.iter().filter_map(other).find(|(_, other)| !call.agrees(other))?;
        let (own, other) = (Box::new(call.clone()), Box::new(other.clone()));
        Some(Error::Mismatch { rank: slot.1, own, peer, other })
    }

    fn absent(&self, slot: (Channel, usize), peers: &[usize]) -> Vec<usize> {
        peers.iter().copied().filter(|peer| self.front(slot, *peer).is_none()).collect()
    }

    fn take(&mut self, (channel, rank): (Channel, usize), peers: &[usize]) -> Vec<Payload> {
        let mut take = |peer: &usize| {
            let post = self.posts.get_mut(&(channel, rank, *peer)).and_then(VecDeque::pop_front);
            post.expect("the post was seen under the same lock").payload
        };
        peers.iter().map(&mut take).collect()
    }

    /// Until when `rank` is waited for by one that has waited since `start`.
    fn due(&self, rank: usize, start: Instant, hall: &Hall) -> Instant {
        let seat = &self.seats[rank];
        if seat.has_ended {
            return start;
        }
        let freed = seat.freed.map(|freed| freed + hall.deadline);
        let busy = seat.busy.iter().map(|work| work.until);
        busy.chain(freed).fold(start + hall.deadline, Instant::max)
    }

    fn absence(&self, rank: usize) -> Absence {
        let seat = &self.seats[rank];
        let state = match (&seat.last, seat.busy.last()) {
            _ if seat.has_ended => RankState::Ended,
            (_, Some(work)) => RankState::Busy { what: work.what.clone(), limit: work.limit },
            (None, None) => RankState::Silent,
            (Some(call), None) if seat.is_waiting => RankState::Waiting(Box::new(call.clone())),
            (Some(call), None) => RankState::After(Box::new(call.clone())),
        };
        Absence { rank, state }
    }
}
