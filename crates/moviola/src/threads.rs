//! The pool of threads that all computation shares, and the instructions that it uses.

use kernels::InstructionSet;
use rayon::ThreadPool;

use crate::failure::{Failure, Outcome};

/// More threads than any machine has cores.
const MOST: usize = 4096;

/// The variable that chooses an instruction set, so that each can be tested and measured.
const VARIABLE: &str = "MOVIOLA_ISA";

/// Runs `work` on a pool of so many threads, or one per core.
///
/// The work itself runs on one of them: whoever waits for a part of a computation then does another
/// part meanwhile, where a thread outside the pool would be put to sleep and woken each time.
///
/// # Errors
/// A number or an instruction set that cannot be, the system refuses, or the work fails.
pub(crate) fn within<T: Send>(
    asked: Option<usize>,
    work: impl FnOnce() -> Outcome<T> + Send,
) -> Outcome<T> {
    pool(count(asked)?, instruction_set()?)?.install(work)
}

/// The number of threads that was asked for, or one per core.
///
/// # Errors
/// A number that cannot be.
pub(crate) fn count(asked: Option<usize>) -> Outcome<usize> {
    match asked {
        Some(threads) if !(1..=MOST).contains(&threads) => {
            let reason = format!("--threads is {threads}; choose 1 to {MOST}");
            Err(Failure::Refused(reason))
        }
        Some(threads) => Ok(threads),
        None => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
    }
}

/// The instruction set that the environment asks for, or the best of this machine.
///
/// # Errors
/// There is no such set, or this machine does not have it.
pub(crate) fn instruction_set() -> Outcome<InstructionSet> {
    match std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) {
        Some(name) => {
            let set = name.to_string_lossy().parse();
            set.map_err(|err| Failure::Refused(format!("{VARIABLE}: {err}")))
        }
        None => Ok(InstructionSet::best()),
    }
}

/// A pool of so many threads whose kernels use that set.
///
/// # Errors
/// The system refuses.
pub(crate) fn pool(threads: usize, set: InstructionSet) -> Outcome<ThreadPool> {
    let pool = set.pool(threads);
    pool.map_err(|err| Failure::Refused(format!("cannot start {threads} threads: {err}")))
}
