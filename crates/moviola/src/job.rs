//! Who does the work of a command: this process, or all processes of a job, which stay together from the first thing
//! that they must agree on to the last request.

use std::time::Duration;

use burn::tensor::{Device, Tensor};
use comm::Group;

use crate::failure::{Failure, Outcome};
use crate::launch::Process;
use crate::{layout, threads};

/// A command, as one of its processes sees it.
pub(crate) enum Job {
    /// There is one process, whose ranks are threads.
    Alone,
    /// This process is a rank.
    Process(Group),
}

impl Job {
    /// Does `work` on a pool of so many threads; in a job of processes they wait for each other so many seconds.
    ///
    /// # Errors
    /// The pool or MPI cannot be, or the work fails here or, where others wait for it, in another process.
    pub(crate) fn run<T: Send>(
        threads: Option<usize>,
        timeout: u64,
        work: impl Fn(&Job) -> Outcome<T> + Sync,
    ) -> Outcome<T> {
        threads::count(threads)?;
        match Process::of_job() {
            None => threads::within(threads, || work(&Job::Alone)),
            Some(process) => {
                let deadline = Duration::from_secs(timeout);
                layout::run_ranks(process.size, threads, deadline, |group| {
                    work(&Job::Process(group))
                })
            }
        }
    }

    /// What the first process says, where each process has numbers of its own for the same thing.
    ///
    /// # Errors
    /// A process does not come, or has another count of them: it was asked for something else.
    pub(crate) fn as_the_first(&self, what: &str, own: Vec<u64>) -> Outcome<Vec<u64>> {
        let Job::Process(group) = self else { return Ok(own) };
        // A byte is exact in f32.
        let parts = own.iter().flat_map(|number| number.to_le_bytes());
        let parts: Vec<f32> = parts.map(f32::from).collect();
        let parts = Tensor::<1>::from_floats(parts.as_slice(), &Device::flex());
        let first = group.named(what).broadcast(0, (group.rank() == 0).then_some(parts));
        let first = first.map_err(|err| Failure::Rank(err.to_string()))?;
        let first: Vec<u8> = first.into_data().iter::<f32>().map(|part| part as u8).collect();
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| 256 * sum + u64::from(*byte));
        let first: Vec<u64> = first.chunks(8).map(number).collect();
        match first.len() == own.len() {
            true => Ok(first),
            false => Err(Failure::Refused(format!(
                "{what}: the first process has {} and this one {}; give all processes the same files",
                first.len(),
                own.len()
            ))),
        }
    }

    /// Waits until every process has come here.
    ///
    /// # Errors
    /// One does not, and why.
    pub(crate) fn meet(&self, why: &str) -> Outcome {
        match self {
            Job::Alone => Ok(()),
            Job::Process(group) => {
                group.named(why).barrier().map_err(|err| Failure::Rank(err.to_string()))
            }
        }
    }
}
