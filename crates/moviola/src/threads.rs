//! How many threads compute.

use engine::{Error, Result};

/// More threads than any machine has cores.
const MOST_THREADS: usize = 4096;

/// Starts the threads of this process, one per core if none are asked for.
///
/// # Errors
/// There cannot be so many.
pub(crate) fn start(asked: Option<usize>) -> Result<()> {
    let threads = match asked {
        Some(threads) if !(1..=MOST_THREADS).contains(&threads) => {
            let reason = format!("--threads is {threads}; choose 1 to {MOST_THREADS}");
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
