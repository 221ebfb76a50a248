//! How many ranks work together, and how: arguments that several commands share.

use std::time::Duration;

use comm::{Axis, Group, MeshShape, Ranks};
use parallel::{Layout, Pipeline, Plan, Refusal, Workload};

use crate::failure::{Failure, Outcome};

/// Where `--help` lists these.
const RANKS: &str = "Ranks";

/// More ranks than one process should have.
const MOST_RANKS: usize = 256;

/// How the work is spread over ranks. `--ranks` alone chooses a layout.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct LayoutArguments {
    /// Ranks, as threads of this process; each has --threads workers [default: the product of the
    /// degrees below]
    #[arg(long, help_heading = RANKS, value_name = "N")]
    ranks: Option<usize>,
    /// Replicas that make different samples
    #[arg(long, help_heading = RANKS, value_name = "D")]
    data: Option<usize>,
    /// Ranks that share the branches of guidance
    #[arg(long, help_heading = RANKS, value_name = "C")]
    cfg: Option<usize>,
    /// Ranks that trade tokens for heads around attention
    #[arg(long, help_heading = RANKS, value_name = "U")]
    ulysses: Option<usize>,
    /// Ranks that pass keys and values around
    #[arg(long, help_heading = RANKS, value_name = "R")]
    ring: Option<usize>,
    /// Ranks that share the transformer's matrices
    #[arg(long, help_heading = RANKS, value_name = "T")]
    tensor: Option<usize>,
    /// Stages of blocks, through which patches of a clip flow step after step
    #[arg(long, help_heading = RANKS, value_name = "P")]
    pipefusion: Option<usize>,
    /// Patches of a clip for --pipefusion [default: as many as stages]
    #[arg(long, help_heading = RANKS, value_name = "M")]
    patches: Option<usize>,
    /// Exact steps before --pipefusion begins [default: 1]
    #[arg(long, help_heading = RANKS, value_name = "W")]
    warmup: Option<usize>,
    /// Blocks of each stage of --pipefusion, like 10,9,9 [default: as even as can be]
    #[arg(long, help_heading = RANKS, value_name = "N,..", value_delimiter = ',')]
    stages: Option<Vec<usize>>,
    /// How many seconds a rank waits for another
    #[arg(long, help_heading = RANKS, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
}

impl LayoutArguments {
    /// Whether anything is asked for.
    pub(crate) fn is_given(&self) -> bool {
        self.ranks.is_some()
            || self.patches.is_some()
            || self.warmup.is_some()
            || self.stages.is_some()
            || self.degrees().iter().any(|(_, degree)| degree.is_some())
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

    /// The plan for a workload.
    ///
    /// # Errors
    /// The layout cannot be; the error names the nearest that can.
    pub(crate) fn plan(&self, workload: &Workload) -> Outcome<Plan> {
        let given = self.degrees().iter().any(|(_, degree)| degree.is_some());
        let mesh = self.degrees().iter().fold(MeshShape::default(), |mesh, (axis, degree)| {
            mesh.with(*axis, degree.unwrap_or(1))
        });
        let ranks = self.ranks.or(mesh.size()).unwrap_or(usize::MAX);
        if !(1..=MOST_RANKS).contains(&ranks) {
            let reason = format!("--ranks: it is {ranks}; choose 1 to {MOST_RANKS}");
            return Err(Failure::Refused(reason));
        }
        let (patches, warmup) = (self.patches, self.warmup);
        let pipeline = Pipeline { patches, warmup, stages: self.stages.clone() };
        if self.pipefusion.is_none() && pipeline != Pipeline::default() {
            let reason = "--patches, --warmup and --stages are for --pipefusion; add it";
            return Err(Failure::refused(reason));
        }
        let plan = match given {
            true => Plan::new(&Layout { ranks, mesh, pipeline }, workload),
            false => Plan::auto(ranks, workload),
        };
        plan.map_err(|Refusal { axis, reason }| {
            let flag = if axis == "pipeline" { "pipefusion" } else { &axis };
            Failure::Refused(format!("--{flag}: {reason}"))
        })
    }

    /// Runs `body` on every rank, each with so many threads, and returns what the first one gives.
    ///
    /// # Errors
    /// Whatever a rank reports first that is not about another rank.
    pub(crate) fn run<T: Send>(
        &self,
        plan: &Plan,
        threads: Option<usize>,
        body: impl Fn(Group) -> Outcome<T> + Sync,
    ) -> Outcome<T> {
        let size = plan.layout().ranks;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.unwrap_or((cores / size).max(1));
        let deadline = Duration::from_secs(self.timeout);
        let ranks = Ranks { threads, deadline, ..Ranks::new(size) };
        let set = crate::threads::instruction_set()?;
        let on_rank = |group: Group| {
            set.claim_pool();
            body(group)
        };
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
}
