//! Processes that a launcher started together: `mpirun`, `mpiexec`, `srun`.

use std::env;
use std::thread;
use std::time::Duration;

use crate::failure::{Failure, Outcome};

/// Where launchers say which process this is and how many there are.
const VARIABLES: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
];

/// Where launchers say how many of the processes are on this host. Slurm's is of the form `4` or `4(x2),3`, where
/// the first number is taken: hosts of one job are rarely filled differently.
const HERE: [&str; 3] =
    ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_STEP_TASKS_PER_NODE"];

/// How long a process that is not the first waits before it tells an error: where all have the same one, the
/// first process tells it, and the launcher ends the others.
const AFTER_THE_FIRST: Duration = Duration::from_secs(3);

/// One of several processes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) rank: usize,
    pub(crate) size: usize,
}

/// Whether this process tells what goes on and gets what is made: the only one, or the first of a job.
pub(crate) fn is_first() -> bool {
    Process::of_job().is_none_or(|process| process.rank == 0)
}

impl Process {
    /// This process, if a launcher started several.
    #[expect(clippy::disallowed_methods, reason = "launchers speak through the environment")]
    pub(crate) fn of_job() -> Option<Process> {
        let number = |name: &str| env::var(name).ok()?.parse::<usize>().ok();
        let found = VARIABLES
            .iter()
            .find_map(|(rank, size)| Some(Process { rank: number(rank)?, size: number(size)? }));
        found.filter(|process| process.size > 1)
    }

    /// How many processes of the job share this host; all of them where the launcher does not say.
    #[expect(clippy::disallowed_methods, reason = "launchers speak through the environment")]
    pub(crate) fn on_this_host(self) -> usize {
        self.sharing(HERE.iter().find_map(|name| env::var(name).ok()).as_deref())
    }

    /// What a launcher's word about this host means.
    fn sharing(self, said: Option<&str>) -> usize {
        let leading = said.and_then(|said| said.split(|c: char| !c.is_ascii_digit()).next());
        let count = leading.and_then(|digits| digits.parse::<usize>().ok());
        count.filter(|count| (1..=self.size).contains(count)).unwrap_or(self.size)
    }

    /// Refuses what cannot be done by several processes.
    ///
    /// # Errors
    /// This binary cannot, or the command cannot.
    pub(crate) fn check(self, command: &str) -> Outcome {
        let Process { rank, size } = self;
        if !cfg!(feature = "mpi") {
            return Err(Failure::Refused(format!(
                "this is process {rank} of {size} that a launcher started, but this binary knows no MPI; build \
                 it with `cargo build --release --features mpi`, or start one process with --ranks {size}"
            )));
        }
        match command {
            "generate" | "exam" | "preprocess" | "train" | "serve" => Ok(()),
            _ => Err(Failure::Refused(format!(
                "`{command}` runs in one process, but a launcher started {size}; start it alone"
            ))),
        }
    }

    /// Lets the first process speak first.
    pub(crate) fn wait_for_the_first(self) {
        if self.rank > 0 {
            thread::sleep(AFTER_THE_FIRST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Process;

    #[test]
    fn a_host_is_shared_by_as_many_processes_as_its_launcher_says() {
        let process = Process { rank: 0, size: 8 };
        for (said, shared) in [
            (Some("4"), 4),
            (Some("2(x4)"), 2),
            (Some("3,5"), 3),
            (Some("0"), 8),
            (Some("9"), 8),
            (Some("many"), 8),
            (None, 8),
        ] {
            assert_eq!(process.sharing(said), shared, "{said:?}");
        }
    }
}
