//! What one rank knows of a group: who belongs to it, and what it has done there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a rank has sent to the other ranks of a group, and how long it waited for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of values; headers are not counted.
    pub bytes: u64,
    /// Posts.
    pub posts: u64,
    /// Time in calls that waited.
    pub waited: Duration,
}

/// One rank's place in a group; all handles on the group share it.
pub(crate) struct Membership {
    pub(crate) name: Arc<str>,
    /// Ranks of the world, by rank of the group.
    pub(crate) members: Vec<usize>,
    /// Of the group.
    pub(crate) rank: usize,
    collectives: AtomicU64,
    worlds: AtomicU64,
    counts: Mutex<Counts>,
}

#[derive(Default)]
struct Counts {
    /// Messages sent to and received from each peer.
    sent: BTreeMap<usize, u64>,
    received: BTreeMap<usize, u64>,
    /// How often a name was given to a part of the group.
    names: BTreeMap<String, u64>,
    traffic: Traffic,
}

impl Membership {
    pub(crate) fn new(name: Arc<str>, members: Vec<usize>, rank: usize) -> Membership {
        let (collectives, worlds) = (AtomicU64::new(0), AtomicU64::new(0));
        Membership { name, members, rank, collectives, worlds, counts: Mutex::default() }
    }

    /// The number of the next collective.
    pub(crate) fn next_collective(&self) -> u64 {
        self.collectives.fetch_add(1, Ordering::Relaxed)
    }

    /// The number of the next world within this one, from 1 on.
    pub(crate) fn next_world(&self) -> u64 {
        self.worlds.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The number of the next message to a peer.
    pub(crate) fn next_sent(&self, peer: usize) -> u64 {
        next(&mut self.counts().sent, peer)
    }

    /// The number of the next message from a peer.
    pub(crate) fn next_received(&self, peer: usize) -> u64 {
        next(&mut self.counts().received, peer)
    }

    /// A name for a part of the group that no other part has.
    pub(crate) fn unique(&self, name: &str) -> String {
        match next(&mut self.counts().names, name.to_owned()) {
            0 => name.to_owned(),
            again => format!("{name} #{again}"),
        }
    }

    /// Counts a post to a rank of the world.
    pub(crate) fn sent(&self, to: usize, bytes: u64) {
        if to != self.members[self.rank] {
            let traffic = &mut self.counts().traffic;
            traffic.bytes += bytes;
            traffic.posts += 1;
        }
    }

    /// Counts the time that `wait` takes.
    pub(crate) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = wait();
        self.counts().traffic.waited += start.elapsed();
        result
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.counts().traffic
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        // Numbers are changed one at a time, so that no panic leaves them half changed.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn next<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) -> u64 {
    let count = counts.entry(key).or_default();
    *count += 1;
    *count - 1
}
