//! How long a plan takes.

use comm::Axis;
use nn::Split;

use super::hardware::{Hardware, Link};
use super::network::{Mixing, Network, Part, Steps, Stream, Work};
use super::share::{Share, is_exchanged, samples};
use super::traffic;
use crate::plan::Plan;

/// Seconds of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds {
    /// Of a step, one of patches where any step is.
    pub step: f64,
    /// Of an exact step at the beginning of PipeFusion; as long as any other elsewhere.
    pub warm_step: f64,
    /// Before the steps.
    pub before: f64,
    /// Of all steps of all samples of a replica.
    pub steps: f64,
    /// Of decoding all of them.
    pub decode: f64,
    /// Of everything.
    pub all: f64,
}

/// A rank's pass, on its hardware.
struct Pass<'a> {
    hardware: &'a Hardware,
    share: Share,
    tensor: Link,
    ulysses: Link,
    ring: Link,
    /// Operations a second of a rank.
    rate: f64,
    stream: f64,
}

impl<'a> Pass<'a> {
    fn of(plan: &Plan, hardware: &'a Hardware, rank: usize, patches: Option<usize>) -> Pass<'a> {
        let (mesh, ranks) = (&plan.layout().mesh, plan.layout().ranks);
        let link = |axis| hardware.link(&mesh.neighbours(rank, &[axis]), ranks);
        let crowding = hardware.crowding(working(plan));
        Pass {
            hardware,
            share: Share::of(plan, rank).patched(patches),
            tensor: link(Axis::Tensor),
            ulysses: link(Axis::Ulysses),
            ring: link(Axis::Ring),
            rate: hardware.flops / crowding,
            stream: hardware.stream / crowding,
        }
    }

    /// Seconds in which a rank computes a part.
    fn compute(&self, part: &Part) -> f64 {
        let share = &self.share;
        let products = part.products.iter().map(|own| {
            let rows = share.rows(own.rows);
            let operations =
                2.0 * rows * own.inputs as f64 * own.outputs as f64 * share.of_layer(own);
            let passed = rows * (own.inputs + own.outputs) as f64 * share.of_layer(own);
            operations / (self.rate * self.hardware.efficiency) + self.passed(passed)
        });
        let mixings = part.mixings.iter().map(|own| self.mixing(own));
        products.chain(mixings).sum()
    }

    /// Seconds of an attention, without what is exchanged for it.
    fn mixing(&self, mixing: &Mixing) -> f64 {
        let share = &self.share;
        let patches = share.patches as f64;
        let (queries, keys, heads) = match is_exchanged(mixing) {
            true => {
                let queries = share.of_group(mixing.queries) / patches;
                let keys = mixing.keys.spread + mixing.keys.whole;
                (queries + mixing.queries.whole as f64, keys, share.heads(mixing))
            }
            false => (share.rows(mixing.queries), mixing.keys.whole, share.tensor_heads(mixing)),
        };
        let width = heads * mixing.head_width as f64;
        let operations = 4.0 * queries * keys as f64 * width;
        // Queries and answers, keys and values are each written and read once more around it.
        let passed = 4.0 * (queries + keys as f64 / share.ring as f64) * width;
        operations / (self.rate * self.hardware.attention) + self.passed(passed)
    }

    /// Seconds in which so many values pass through a rank.
    fn passed(&self, values: f64) -> f64 {
        values * self.hardware.value_bytes as f64 / self.stream
    }

    /// Seconds in which a rank waits for what others send it in a part.
    fn exchange(&self, part: &Part) -> f64 {
        let (share, value) = (&self.share, self.hardware.value_bytes as f64);
        let sent = traffic::of_part(part, share);
        let mut seconds = 0.0;
        if share.tensor > 1 {
            let sums = part.products.iter().filter(|own| own.split == Some(Split::Rows)).count();
            let calls = 2 * (sums + part.norms.len());
            seconds += self.tensor.seconds(calls as f64, sent.tensor * value);
        }
        let mixings = || part.mixings.iter().filter(|own| is_exchanged(own));
        if share.ulysses > 1 {
            let calls = mixings().map(|own| 4 + usize::from(own.queries.whole > 0)).sum::<usize>();
            seconds += self.ulysses.seconds(calls as f64, sent.ulysses * value);
        }
        if share.ring > 1 {
            let rounds = share.ring as f64;
            seconds += mixings()
                .map(|own| {
                    let keys = share.of_group(own.keys) * share.heads(own);
                    let block = 2.0 * keys * own.head_width as f64 * value;
                    // A block travels while the one before it is looked at; what is found in each is merged.
                    let travel = self.ring.seconds(2.0, block);
                    let found =
                        share.of_group(own.queries) * share.heads(own) * own.head_width as f64;
                    let merge = self.passed(4.0 * found / share.patches as f64);
                    (rounds - 1.0) * (merge + (travel - self.mixing(own) / rounds).max(0.0))
                })
                .sum::<f64>();
        }
        seconds
    }

    fn seconds(&self, part: &Part) -> f64 {
        self.compute(part) + self.exchange(part)
    }
}

/// Ranks that have something to do: replicas without samples idle.
fn working(plan: &Plan) -> usize {
    let replicas = plan.samples().iter().filter(|own| !own.is_empty()).count();
    plan.layout().ranks / plan.layout().mesh.degree(Axis::Data) * replicas.max(1)
}

/// The parts of a pass of one stage.
fn parts<'a>(plan: &Plan, network: &'a Network, stage: usize) -> Vec<&'a Part> {
    let last = plan.layout().mesh.degree(Axis::Pipeline) - 1;
    let mut parts = vec![&network.shared];
    parts.extend((stage == 0).then_some(&network.embed));
    parts.extend(&network.blocks[plan.stage(stage)]);
    parts.extend((stage == last).then_some(&network.head));
    parts
}

/// Seconds of a stage's pass over a branch: the first rank of a stage has the most of everything.
fn stage_pass(
    plan: &Plan,
    network: &Network,
    hardware: &Hardware,
    stage: usize,
    patches: Option<usize>,
) -> f64 {
    let mesh = &plan.layout().mesh;
    let rank = first_of(plan, stage);
    let pass = Pass::of(plan, hardware, rank, patches);
    let mut seconds = parts(plan, network, stage).into_iter().map(|part| pass.seconds(part)).sum();
    let sequence = pass.share.sequence();
    if stage + 1 == mesh.degree(Axis::Pipeline) && sequence > 1 {
        let link = hardware
            .link(&mesh.neighbours(rank, &[Axis::Ulysses, Axis::Ring]), plan.layout().ranks);
        let values =
            network.predictions.iter().map(|own| pass.share.rows(own.rows) * own.width as f64);
        let bytes = values.sum::<f64>() * hardware.value_bytes as f64 * (sequence - 1) as f64;
        seconds += link.seconds(1.0, bytes);
    }
    seconds
}

/// The first rank of a stage.
fn first_of(plan: &Plan, stage: usize) -> usize {
    let mesh = &plan.layout().mesh;
    let stride = mesh.degree(Axis::Tensor) * mesh.degree(Axis::Ulysses) * mesh.degree(Axis::Ring);
    stage * stride
}

/// What a step takes: the passes of the ranks of branches that are the last to be done, stage by stage.
struct Busiest {
    /// Seconds of a pass on each stage, where branches differ their mean.
    passes: Vec<f64>,
    /// How many passes there are of each.
    own: f64,
    slowest: f64,
}

impl Busiest {
    fn of(plan: &Plan, steps: &Steps<'_>, hardware: &Hardware) -> Busiest {
        let (mesh, patches) = (&plan.layout().mesh, steps.patched.then_some(plan.patches()));
        let stages = mesh.degree(Axis::Pipeline);
        // Branches that differ are few: each pass is looked at once.
        let mut known: Vec<Option<Vec<f64>>> = vec![None; steps.run.networks.len()];
        for branch in steps.branches {
            known[*branch].get_or_insert_with(|| {
                let network = &steps.run.networks[*branch];
                (0..stages)
                    .map(|stage| stage_pass(plan, network, hardware, stage, patches))
                    .collect()
            });
        }
        let alone = steps.branches.len() == 1;
        let degree = mesh.degree(Axis::Cfg).min(steps.branches.len());
        let rank = |at: usize| {
            let own = steps.branches.iter().skip(at).step_by(if alone { 1 } else { degree });
            let own: Vec<&Vec<f64>> = own.filter_map(|branch| known[*branch].as_ref()).collect();
            let count = own.len() as f64;
            let mean = |stage| own.iter().map(|passes| passes[stage]).sum::<f64>() / count;
            let passes: Vec<f64> = (0..stages).map(mean).collect();
            let slowest = passes.iter().copied().fold(0.0, f64::max);
            Busiest { passes, own: count, slowest }
        };
        let all = (0..degree.max(1)).map(rank);
        let order = |one: &Busiest, two: &Busiest| one.all().total_cmp(&two.all());
        all.reduce(|one, two| if order(&one, &two).is_lt() { two } else { one })
            .expect("a step has a branch")
    }

    /// Seconds until all passes are through all stages.
    fn all(&self) -> f64 {
        self.passes.iter().sum::<f64>() + (self.own - 1.0) * self.slowest
    }
}

/// Seconds in which the predictions of other branches come.
fn guidance(plan: &Plan, steps: &Steps<'_>, hardware: &Hardware) -> f64 {
    let (mesh, branches) = (&plan.layout().mesh, steps.branches.len());
    if mesh.degree(Axis::Cfg) == 1 || branches == 1 {
        return 0.0;
    }
    let last = first_of(plan, mesh.degree(Axis::Pipeline) - 1);
    let link = hardware.link(&mesh.neighbours(last, &[Axis::Cfg]), plan.layout().ranks);
    let values = steps.networks().flat_map(|network| &network.predictions);
    let values = values.map(|own| own.rows.spread * own.width).sum::<usize>();
    link.seconds(branches as f64, values as f64 * hardware.value_bytes as f64)
}

/// Seconds in which a stage hands a patch on.
fn hop(plan: &Plan, steps: &Steps<'_>, hardware: &Hardware) -> f64 {
    let (mesh, ranks) = (&plan.layout().mesh, plan.layout().ranks);
    if mesh.degree(Axis::Pipeline) == 1 {
        return 0.0;
    }
    let link = hardware.link(&mesh.neighbours(0, &[Axis::Pipeline]), ranks);
    let share = Share::of(plan, 0).patched(steps.patched.then_some(plan.patches()));
    let values = |own: &Stream| share.rows(own.rows) * own.width as f64;
    let stages = 0..mesh.degree(Axis::Pipeline) - 1;
    let ends = stages.flat_map(|stage| {
        let end = plan.stage(stage).end;
        steps.networks().map(move |network| network.streams[end].iter().map(values).sum())
    });
    link.seconds(1.0, ends.fold(0.0, f64::max) * hardware.value_bytes as f64)
}

/// Seconds of one of some steps, and of the way of what is at hand through all stages.
fn step(plan: &Plan, steps: &Steps<'_>, hardware: &Hardware) -> (f64, f64) {
    let stages = plan.layout().mesh.degree(Axis::Pipeline) as f64;
    let busiest = Busiest::of(plan, steps, hardware);
    let (hop, guidance) = (hop(plan, steps, hardware), guidance(plan, steps, hardware));
    // Branches follow one another through the stages, so a patch is through when its last one is.
    let through = busiest.all() + hop * stages;
    match steps.patched {
        false => (through + guidance, through),
        true => {
            let all = plan.patches() as f64 * busiest.own * busiest.slowest.max(hop);
            (all.max(through) + guidance, through)
        }
    }
}

/// How long a plan takes.
pub(super) fn seconds(plan: &Plan, work: &Work, hardware: &Hardware) -> Seconds {
    let samples = samples(plan) as f64;
    let mut steps = 0.0;
    for run in &work.runs {
        let mut drain = 0.0;
        for own in work.alike(plan).iter().filter(|own| std::ptr::eq(own.run, run)) {
            let (seconds, through) = step(plan, own, hardware);
            steps += samples * own.count as f64 * seconds;
            if own.patched {
                // The last patch of the last step has the stages to go through still.
                drain = (through - seconds / plan.patches() as f64).max(0.0);
            }
        }
        steps += samples * drain;
    }
    let fullest = work.fullest(plan);
    let exact = Steps { patched: false, ..fullest };
    let [own, warm_step] = [&fullest, &exact].map(|steps| step(plan, steps, hardware).0);
    let rate = hardware.flops * hardware.efficiency / hardware.crowding(working(plan));
    let part = samples / work.workload.samples.max(1) as f64;
    let before = work.before * part / rate;
    let decode = samples * work.decode / rate / plan.layout().vae_ranks as f64;
    Seconds { step: own, warm_step, before, steps, decode, all: before + steps + decode }
}

/// Seconds of a step in which a rank computes.
pub(super) fn busy(plan: &Plan, work: &Work, hardware: &Hardware, rank: usize) -> f64 {
    let stage = plan.layout().mesh.coordinate(rank, Axis::Pipeline);
    let steps = work.fullest(plan);
    let pass = Pass::of(plan, hardware, rank, steps.patched.then_some(plan.patches()));
    let own = steps.own(plan, rank).into_iter();
    let parts = own.flat_map(|network| parts(plan, network, stage));
    parts.map(|part| pass.compute(part)).sum::<f64>() * pass.share.patches as f64
}
