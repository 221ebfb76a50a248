//! Bytes that a rank sends in a step, group by group, as the communicator counts them.
//!
//! Exact where tokens, heads and patches come out even; where they do not, some messages are longer than
//! others and a rank's sum is off by less than a token of each.

use comm::Axis;
use nn::Split;

use super::hardware::Hardware;
use super::network::{Network, Part, Steps, Stream, Work};
use super::share::{Share, is_exchanged};
use crate::plan::Plan;

/// Bytes that a rank sends in a step for one sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RankTraffic {
    /// Sums over tensor ranks.
    pub tensor: f64,
    /// Tokens traded for heads, and back.
    pub ulysses: f64,
    /// Keys and values passed around.
    pub ring: f64,
    /// Predictions put together again from those of a sequence.
    pub sequence: f64,
    /// Streams to the next stage, and what is made back to the first.
    pub pipeline: f64,
    /// Predictions of other branches.
    pub cfg: f64,
}

impl RankTraffic {
    /// All of it.
    pub fn bytes(&self) -> f64 {
        self.tensor + self.ulysses + self.ring + self.sequence + self.pipeline + self.cfg
    }

    fn add(&mut self, other: RankTraffic) {
        self.tensor += other.tensor;
        self.ulysses += other.ulysses;
        self.ring += other.ring;
        self.sequence += other.sequence;
        self.pipeline += other.pipeline;
        self.cfg += other.cfg;
    }

    fn times(self, factor: f64) -> RankTraffic {
        let Self { tensor, ulysses, ring, sequence, pipeline, cfg } = self;
        let [tensor, ulysses, ring] = [tensor, ulysses, ring].map(|bytes| bytes * factor);
        let [sequence, pipeline, cfg] = [sequence, pipeline, cfg].map(|bytes| bytes * factor);
        RankTraffic { tensor, ulysses, ring, sequence, pipeline, cfg }
    }
}

/// What a rank sends in a step, one of patches where any step is; where steps differ, in the fullest.
pub(super) fn of_rank(plan: &Plan, work: &Work, hardware: &Hardware, rank: usize) -> RankTraffic {
    of_step(plan, &work.fullest(plan), hardware, rank)
}

/// What a rank sends in all steps for one sample.
pub fn of_all_steps(plan: &Plan, work: &Work, hardware: &Hardware, rank: usize) -> RankTraffic {
    let mut all = RankTraffic::default();
    for steps in work.alike(plan) {
        all.add(of_step(plan, &steps, hardware, rank).times(steps.count as f64));
    }
    all
}

/// What a rank sends in one of some steps.
fn of_step(plan: &Plan, steps: &Steps<'_>, hardware: &Hardware, rank: usize) -> RankTraffic {
    let mesh = &plan.layout().mesh;
    let share = Share::of(plan, rank).patched(steps.patched.then_some(plan.patches()));
    let (stage, stages) = (mesh.coordinate(rank, Axis::Pipeline), mesh.degree(Axis::Pipeline));
    let is_last = stage + 1 == stages;
    let (mut step, own) = (RankTraffic::default(), steps.own(plan, rank));
    own.iter().for_each(|network| step.add(of_pass(plan, network, &share, stage)));
    step = step.times(share.patches as f64);
    if is_last {
        let whole = |streams: &[Stream]| {
            streams.iter().map(|own| (own.rows.spread * own.width) as f64).sum::<f64>()
        };
        if steps.branches.len() > 1 {
            let others = (mesh.degree(Axis::Cfg) - 1) as f64;
            step.cfg += own.iter().map(|own| whole(&own.predictions)).sum::<f64>() * others;
        }
        if stages > 1 {
            step.pipeline += whole(&steps.run.whole().made);
        }
    }
    step.times(hardware.value_bytes as f64)
}

/// Values that a rank of a stage sends in a pass over a branch.
fn of_pass(plan: &Plan, network: &Network, share: &Share, stage: usize) -> RankTraffic {
    let mut pass = of_part(&network.shared, share);
    if stage == 0 {
        pass.add(of_part(&network.embed, share));
    }
    network.blocks[plan.stage(stage)].iter().for_each(|block| pass.add(of_part(block, share)));
    if stage + 1 == plan.layout().mesh.degree(Axis::Pipeline) {
        pass.add(of_part(&network.head, share));
        pass.sequence += values(&network.predictions, share) * (share.sequence() - 1) as f64;
    } else {
        pass.pipeline += values(&network.streams[plan.stage(stage).end], share);
    }
    pass
}

/// Values of a rank's part of streams.
fn values(streams: &[Stream], share: &Share) -> f64 {
    streams.iter().map(|own| share.rows(own.rows) * own.width as f64).sum()
}

/// Values that a rank sends in one part of a pass.
pub(super) fn of_part(part: &Part, share: &Share) -> RankTraffic {
    let mut sent = RankTraffic::default();
    let sums = part.products.iter().filter(|own| own.split == Some(Split::Rows));
    let sums = sums.map(|own| share.rows(own.rows) * own.outputs as f64);
    let squares = part.norms.iter().map(|rows| share.rows(*rows));
    let tensor = share.tensor as f64;
    sent.tensor = sums.chain(squares).sum::<f64>() * 2.0 * (tensor - 1.0) / tensor;
    let (patches, others) = (share.patches as f64, (share.ulysses - 1) as f64);
    for mixing in part.mixings.iter().filter(|own| is_exchanged(own)) {
        let width = mixing.head_width as f64;
        let (all, own) = (share.tensor_heads(mixing), share.heads(mixing));
        let [queries, keys] = [mixing.queries, mixing.keys].map(|rows| share.own(rows));
        let of_group = share.of_group(mixing.queries) / patches;
        if share.ulysses > 1 {
            let there = (queries + 2.0 * keys) * (all - own);
            let back = (of_group - queries) * own;
            let text = mixing.queries.whole as f64 * own * others;
            sent.ulysses += (there + back + text) * width;
        }
        // Keys of all patches travel, however few queries look at them.
        let block = share.of_group(mixing.keys) * own * width;
        sent.ring += 2.0 * block * (share.ring - 1) as f64;
    }
    sent
}
