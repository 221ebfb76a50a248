//! The pool of threads that all computation shares.

use engine::{Error, Result};

/// More threads than any machine has cores.
const MOST: usize = 4096;

/// Starts the pool: so many threads, or one per core.
///
/// # Errors
/// A number that cannot be, or the system refuses.
pub(crate) fn start(asked: Option<usize>) -> Result<()> {
    let threads = match asked {
        Some(threads) if !(1..=MOST).contains(&threads) => {
            let reason = format!("--threads is {threads}; choose 1 to {MOST}");
            return Err(Error::Request(reason));
        }
        Some(threads) => threads,
        None => std::thread::available_parallelism().map_or(1, usize::from),
    };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .map_err(|err| Error::Request(format!("cannot start {threads} threads: {err}")))
}
