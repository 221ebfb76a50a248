//! Ranks as threads of this process, each with its own pool of workers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::error::{Error, Result};
use crate::group::{DEADLINE, Group};
use crate::hall::Hall;
use crate::link::Link;

/// How many ranks to run, and how.
#[derive(Clone, Debug)]
pub struct Ranks {
    /// How many.
    pub size: usize,
    /// The workers of each. A rank that waits for a peer blocks its own pool only.
    pub threads: usize,
    /// How long a rank waits for one that announced no work.
    pub deadline: Duration,
    /// Whether the headers of calls are compared. Always, but where it is measured what that costs.
    pub checked: bool,
}

impl Ranks {
    /// `size` ranks of one thread each, which wait for one another up to five minutes.
    pub fn new(size: usize) -> Ranks {
        Ranks { size, threads: 1, deadline: DEADLINE, checked: true }
    }

    /// Runs `body` once per rank and returns what each gave, or how it panicked, in rank order.
    pub fn run<T: Send>(&self, body: impl Fn(Group) -> T + Sync) -> Vec<Result<T>> {
        self.run_in(&Arc::new(self.hall()), &body)
    }

    fn run_in<T: Send>(
        &self,
        hall: &Arc<Hall>,
        body: &(impl Fn(Group) -> T + Sync),
    ) -> Vec<Result<T>> {
        let pools: Result<Vec<ThreadPool>> = (0..self.size).map(|rank| self.pool(rank)).collect();
        let pools = match pools {
            Ok(pools) => pools,
            Err(error) => return (0..self.size).map(|_| Err(error.clone())).collect(),
        };
        thread::scope(|scope| {
            let start =
                |(rank, pool)| scope.spawn(move || run_rank(hall, self.size, rank, pool, body));
            let threads: Vec<_> = pools.into_iter().enumerate().map(start).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("a rank's panic is caught on its own thread"))
                .collect()
        })
    }

    fn hall(&self) -> Hall {
        Hall::new(self.size, self.deadline, self.checked)
    }

    pub(crate) fn pool(&self, rank: usize) -> Result<ThreadPool> {
        let builder = ThreadPoolBuilder::new()
            .num_threads(self.threads)
            .thread_name(move |worker| format!("rank {rank} worker {worker}"));
        builder.build().map_err(|error| Error::Start {
            rank,
            threads: self.threads,
            reason: error.to_string(),
        })
    }
}

/// Runs `body` once per rank, one thread each, and returns the results in rank order.
///
/// # Panics
/// Panics if a rank does, with the message of the one that broke the group.
pub fn on_ranks<T: Send>(size: usize, body: impl Fn(Group) -> T + Sync) -> Vec<T> {
    let ranks = Ranks::new(size);
    let hall = Arc::new(ranks.hall());
    let results = ranks.run_in(&hall, &body);
    let first = hall.broken_by().and_then(|rank| results[rank].as_ref().err());
    if let Some(error) = first.or_else(|| results.iter().find_map(|result| result.as_ref().err())) {
        panic!("{error}");
    }
    results.into_iter().flatten().collect()
}

fn run_rank<T: Send>(
    hall: &Arc<Hall>,
    size: usize,
    rank: usize,
    pool: ThreadPool,
    body: &(impl Fn(Group) -> T + Sync),
) -> Result<T> {
    let group = Group::world(hall.clone(), "world", size, rank);
    // What a rank shares with others is the hall, which stays consistent when one unwinds.
    let result = catch_unwind(AssertUnwindSafe(|| pool.install(|| body(group))));
    let result = result.map_err(|panic| {
        let error = Error::Panicked { rank, message: message(panic.as_ref()) };
        hall.fail(rank, error.clone());
        error
    });
    hall.end(rank);
    result
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}
