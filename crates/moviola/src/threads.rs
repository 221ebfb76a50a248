//! The pool of threads that all computation shares.

use crate::failure::{Failure, Outcome};

/// More threads than any machine has cores.
const MOST: usize = 4096;

/// Runs `work` on a pool of so many threads, or one per core.
///
/// The work itself runs on one of them: whoever waits for a part of a computation then does another
/// part meanwhile, where a thread outside the pool would be put to sleep and woken each time.
///
/// # Errors
/// A number that cannot be, the system refuses, or the work fails.
pub(crate) fn within<T: Send>(
    asked: Option<usize>,
    work: impl FnOnce() -> Outcome<T> + Send,
) -> Outcome<T> {
    let threads = match asked {
        Some(threads) if !(1..=MOST).contains(&threads) => {
            let reason = format!("--threads is {threads}; choose 1 to {MOST}");
            return Err(Failure::Refused(reason));
        }
        Some(threads) => threads,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .map_err(|err| Failure::Refused(format!("cannot start {threads} threads: {err}")))?
        .install(work)
}
