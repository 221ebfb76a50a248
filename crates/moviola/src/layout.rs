//! How many ranks work together, and how: arguments that several commands share.

use std::time::Duration;

use comm::{Axis, Group, MeshShape, Ranks};
use parallel::cost::{Hardware, Work};
use parallel::{Layout, Pipeline, Plan, Refusal};
use serde::{Deserialize, Serialize};

use crate::failure::{Failure, Outcome};
use crate::job::Job;
use crate::launch::Process;

/// Where `--help` lists these.
const RANKS: &str = "Ranks";

/// More ranks than one process should have.
pub(crate) const MOST_RANKS: usize = 256;

/// How the work is spread over ranks. `--ranks` alone chooses a layout. Records hold what is said.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LayoutArguments {
    /// Which layout: `auto` weighs all of --ranks against each other and takes the cheapest, as --ranks alone
    /// does; without --ranks it is one rank per core
    #[arg(long, help_heading = RANKS, value_enum, value_name = "auto",
        conflicts_with_all = ["data", "cfg", "ulysses", "ring", "tensor", "pipefusion", "patches", "warmup", "stages"])]
    #[serde(skip)]
    layout: Option<LayoutName>,
    /// Ranks, as threads of this process; each has --threads workers [default: the product of the
    /// degrees below]
    #[arg(long, help_heading = RANKS, value_name = "N")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranks: Option<usize>,
    /// Replicas that make different samples
    #[arg(long, help_heading = RANKS, value_name = "D")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    data: Option<usize>,
    /// Ranks that share the branches of guidance
    #[arg(long, help_heading = RANKS, value_name = "C")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cfg: Option<usize>,
    /// Ranks that trade tokens for heads around attention
    #[arg(long, help_heading = RANKS, value_name = "U")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ulysses: Option<usize>,
    /// Ranks that pass keys and values around
    #[arg(long, help_heading = RANKS, value_name = "R")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ring: Option<usize>,
    /// Ranks that share the transformer's matrices
    #[arg(long, help_heading = RANKS, value_name = "T")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tensor: Option<usize>,
    /// Stages of blocks, through which patches of a clip flow step after step
    #[arg(long, help_heading = RANKS, value_name = "P")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pipefusion: Option<usize>,
    /// Patches of a clip for --pipefusion [default: as many as stages]
    #[arg(long, help_heading = RANKS, value_name = "M")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    patches: Option<usize>,
    /// Exact steps before --pipefusion begins [default: 1]
    #[arg(long, help_heading = RANKS, value_name = "W")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warmup: Option<usize>,
    /// Blocks of each stage of --pipefusion, like 10,9,9 [default: as even as can be]
    #[arg(long, help_heading = RANKS, value_name = "N,..", value_delimiter = ',')]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stages: Option<Vec<usize>>,
    /// Ranks of a replica that decode strips of its frames [default: 1]
    #[arg(long, help_heading = RANKS, value_name = "V")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vae_ranks: Option<usize>,
    /// How many seconds a rank waits for another
    #[arg(long, help_heading = RANKS, value_name = "SECONDS", default_value_t = 300, value_parser = seconds)]
    #[serde(skip)]
    timeout: u64,
}

/// A layout by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LayoutName {
    /// The cheapest by the cost model
    Auto,
}

impl LayoutArguments {
    /// Whether anything is asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.ranks.is_some()
            || self.layout.is_some()
            || Process::of_job().is_some()
            || self.patches.is_some()
            || self.warmup.is_some()
            || self.stages.is_some()
            || self.vae_ranks.is_some()
            || self.degrees().iter().any(|(_, degree)| degree.is_some())
    }

    /// What was said, as one would say it.
    pub(crate) fn words(&self) -> Vec<String> {
        let said = serde_json::to_value(self).expect("arguments are plain JSON");
        let said = said.as_object().into_iter().flatten();
        said.flat_map(|(key, value)| {
            let value = match value.as_array() {
                Some(all) => all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
                None => value.to_string(),
            };
            [format!("--{}", key.replace('_', "-")), value]
        })
        .collect()
    }

    fn degrees(&self) -> [(Axis, Option<usize>); 6] {
        [
            (Axis::Data, self.data),
            (Axis::Cfg, self.cfg),
            (Axis::Ulysses, self.ulysses),
            (Axis::Ring, self.ring),
            (Axis::Tensor, self.tensor),
            (Axis::Pipeline, self.pipefusion),
        ]
    }

    /// Whether a layout is to be chosen.
    pub(crate) fn is_auto(&self) -> bool {
        self.degrees().iter().all(|(_, degree)| degree.is_none())
    }

    /// How many ranks there are to be.
    ///
    /// # Errors
    /// Another number of processes was started, or it is too large.
    pub(crate) fn rank_count(&self) -> Outcome<usize> {
        let job = Process::of_job();
        if let (Some(Process { size, .. }), Some(ranks)) = (job, self.ranks)
            && size != ranks
        {
            let reason =
                format!("--ranks: it is {ranks}, but {size} processes were started; leave it out");
            return Err(Failure::Refused(reason));
        }
        let nought = self.degrees().into_iter().find(|(_, degree)| *degree == Some(0));
        if let Some((axis, _)) = nought {
            return Err(Failure::Refused(format!("--{}: it is 0; choose 1 or more", flag(axis))));
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let of_layout = || match self.layout {
            Some(LayoutName::Auto) => Some(cores()),
            None => self.mesh().size(),
        };
        let of_job = job.map(|process| process.size);
        let ranks = of_job.or(self.ranks).or_else(of_layout).unwrap_or(usize::MAX);
        if !(1..=MOST_RANKS).contains(&ranks) {
            let reason = format!("--ranks: it is {ranks}; choose 1 to {MOST_RANKS}");
            return Err(Failure::Refused(reason));
        }
        Ok(ranks)
    }

    /// The degrees that are given.
    pub(crate) fn mesh(&self) -> MeshShape {
        self.degrees().iter().fold(MeshShape::default(), |mesh, (axis, degree)| {
            mesh.with(*axis, degree.unwrap_or(1))
        })
    }

    /// The plan for some work on some hardware, which says what is cheap.
    ///
    /// # Errors
    /// The layout cannot be; the error names the nearest that can.
    pub(crate) fn plan(&self, work: &Work, hardware: &Hardware) -> Outcome<Plan> {
        self.fit(work, hardware)?.map_err(|Refusal { axis, reason }| {
            let flag = if axis == "pipeline" { "pipefusion" } else { &axis };
            Failure::Refused(format!("--{flag}: {reason}"))
        })
    }

    /// The same, with what does not fit the work apart from arguments that cannot be.
    ///
    /// # Errors
    /// The arguments contradict each other, or the processes that were started.
    pub(crate) fn fit(&self, work: &Work, hardware: &Hardware) -> Outcome<Result<Plan, Refusal>> {
        let ranks = self.rank_count()?;
        let (patches, warmup) = (self.patches, self.warmup);
        let pipeline = Pipeline { patches, warmup, stages: self.stages.clone() };
        if self.pipefusion.is_none() && pipeline != Pipeline::default() {
            let reason = "--patches, --warmup and --stages are for --pipefusion; add it";
            return Err(Failure::refused(reason));
        }
        let (mesh, vae_ranks) = (self.mesh(), self.vae_ranks.unwrap_or(1));
        Ok(match self.is_auto() {
            false => Plan::new(&Layout { ranks, mesh, pipeline, vae_ranks }, &work.workload),
            // The layout is chosen; how many decode is not.
            true => Plan::auto_decoding(ranks, vae_ranks, work, hardware),
        })
    }

    /// What makes any one of a plan's samples again: degrees that `--ranks` alone has chosen, and no
    /// replicas, which leave a sample as it is.
    pub(crate) fn of_one_sample(&self, plan: &Plan) -> LayoutArguments {
        let degree = |axis| Some(plan.layout().mesh.degree(axis)).filter(|degree| *degree > 1);
        LayoutArguments {
            layout: None,
            ranks: None,
            data: None,
            cfg: degree(Axis::Cfg),
            ulysses: degree(Axis::Ulysses),
            ring: degree(Axis::Ring),
            tensor: degree(Axis::Tensor),
            pipefusion: degree(Axis::Pipeline),
            ..self.clone()
        }
    }

    /// The same, whose ranks wait for each other as long as those of another.
    pub(crate) fn waiting_like(self, other: &LayoutArguments) -> LayoutArguments {
        LayoutArguments { timeout: other.timeout, ..self }
    }

    /// Runs `body` on every rank, each with so many threads, and returns what the first one gives, or this
    /// process's, where ranks are processes: those of a job are there already.
    ///
    /// # Errors
    /// Whatever a rank reports first that is not about another rank.
    pub(crate) fn run<T: Send>(
        &self,
        job: &Job,
        plan: &Plan,
        threads: Option<usize>,
        body: impl Fn(Group) -> Outcome<T> + Sync,
    ) -> Outcome<T> {
        match job {
            Job::Process(group) => body(group.clone()),
            Job::Alone => {
                run_ranks(plan.layout().ranks, threads, Duration::from_secs(self.timeout), body)
            }
        }
    }

    /// How many seconds a rank waits for another.
    pub(crate) fn timeout(&self) -> u64 {
        self.timeout
    }
}

/// What an axis is called among the arguments.
pub(crate) fn flag(axis: Axis) -> String {
    match axis {
        Axis::Pipeline => "pipefusion".to_owned(),
        axis => axis.to_string(),
    }
}

/// The longest that a rank may wait for another: a year.
const LONGEST_WAIT: u64 = 365 * 24 * 3600;

/// How long a rank waits for another. One that does not wait at all ends every job.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=LONGEST_WAIT).contains(seconds));
    seconds.ok_or_else(|| format!("choose 1 to {LONGEST_WAIT} seconds"))
}

/// How many ranks are asked for: processes that were started, or what the user says.
///
/// # Errors
/// They are not the same number, or too many.
pub(crate) fn ranks_asked(said: Option<usize>) -> Outcome<Option<usize>> {
    let job = Process::of_job().map(|process| process.size);
    if let (Some(size), Some(ranks)) = (job, said)
        && size != ranks
    {
        return Err(Failure::Refused(format!(
            "--ranks: it is {ranks}, but {size} processes were started; leave it out"
        )));
    }
    let asked = job.or(said);
    match asked.filter(|ranks| !(1..=MOST_RANKS).contains(ranks)) {
        None => Ok(asked),
        Some(ranks) => {
            let most = MOST_RANKS;
            Err(Failure::Refused(format!("--ranks: it is {ranks}; choose 1 to {most}")))
        }
    }
}

/// Runs `body` on so many ranks, which wait for each other up to a deadline, and returns what the first one gives, or
/// this process's, where ranks are processes.
///
/// # Errors
/// Whatever a rank reports first that is not about another rank.
pub(crate) fn run_ranks<T: Send>(
    size: usize,
    threads: Option<usize>,
    deadline: Duration,
    body: impl Fn(Group) -> Outcome<T> + Sync,
) -> Outcome<T> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Only the ranks of this host share its cores.
    let here = Process::of_job().map_or(size, Process::on_this_host);
    let threads = threads.unwrap_or((cores / here).max(1));
    let ranks = Ranks { threads, deadline, ..Ranks::new(size) };
    let set = crate::threads::instruction_set()?;
    let on_rank = |group: Group| {
        set.claim_pool();
        body(group)
    };
    if Process::of_job().is_some() {
        return run_as_process(&ranks, on_rank);
    }
    let mut results: Vec<Outcome<T>> = ranks
        .run(on_rank)
        .into_iter()
        .map(|result| result.unwrap_or_else(|error| Err(Failure::Rank(error.to_string()))))
        .collect();
    // A rank that failed by itself says why; the others only say that it did.
    let own = |result: &Outcome<T>| matches!(result, Err(error) if !error.is_of_another());
    let first = results.iter().position(own);
    let first = first.or_else(|| results.iter().position(Result::is_err)).unwrap_or(0);
    results.swap_remove(first)
}

/// Runs the rank of this process.
#[cfg(feature = "mpi")]
fn run_as_process<T: Send>(ranks: &Ranks, body: impl Fn(Group) -> Outcome<T> + Sync) -> Outcome<T> {
    let failed = |error: comm::Error| Failure::Rank(error.to_string());
    comm::mpi::run(ranks, &body).map_err(failed)?.finish()
}

/// Refused before it comes here.
#[cfg(not(feature = "mpi"))]
fn run_as_process<T>(_: &Ranks, _: impl Fn(Group) -> Outcome<T>) -> Outcome<T> {
    Err(Failure::refused("this binary knows no MPI"))
}
