//! Memory of a rank, and of a host.

use comm::Axis;

use super::RankForecast;
use super::hardware::Hardware;
use super::network::{Network, Part, Stream, Work};
use super::share::{Share, is_exchanged};
use crate::plan::Plan;

/// Copies of the stream that are alive at once in a block: what goes in, its norm, queries, keys, values,
/// what comes out.
const STREAMS: f64 = 6.0;

/// Of the widest layer: its rows before and after the activation.
const WIDEST: f64 = 2.0;

/// One part in so many of what is computed is lost to the allocator.
const LOST: f64 = 10.0;

/// Where ranks are threads of a process, what one has computed and another lets go of stays with it for a while,
/// so that each of several ranks has what it computes about twice.
const LEFT_BEHIND: u64 = 2;

/// Bytes of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankMemory {
    /// Parameters that it works with.
    pub parameters: u64,
    /// How many parameters these are.
    pub parameter_count: u64,
    /// What it computes while it denoises.
    pub activations: u64,
    /// Keys and values that it keeps from step to step.
    pub key_values: u64,
    /// What it computes while it decodes, if it does.
    pub decode: u64,
    /// All of it at its most, without what the program itself needs.
    pub peak: u64,
}

pub(super) fn of_rank(plan: &Plan, work: &Work, hardware: &Hardware, rank: usize) -> RankMemory {
    let mesh = &plan.layout().mesh;
    let stage = mesh.coordinate(rank, Axis::Pipeline);
    let tensor = mesh.degree(Axis::Tensor) as u64;
    let parts = own_parts(plan, work.network(), stage);
    let parameters = parts.iter().map(|part| part.whole_bytes + part.split_bytes / tensor).sum();
    let count = |part: &&Part| part.whole_parameters + part.split_parameters / tensor;
    let parameter_count = parts.iter().map(count).sum();
    let samples = work.together.min(super::share::samples(plan)).max(1) as f64;
    let bytes = samples * hardware.value_bytes as f64;
    let (activations, kept) = computed(plan, work, rank);
    let (activations, key_values) = ((activations * bytes) as u64, (kept * bytes) as u64);
    let replica = rank % (plan.layout().ranks / mesh.degree(Axis::Data));
    let strips = plan.layout().vae_ranks;
    let decode = if replica < strips { work.decode_bytes / strips as u64 } else { 0 };
    let computed = (activations + key_values).max(decode);
    let lost = (computed as f64 / LOST) as u64;
    let others = if replica < strips { work.other_bytes } else { 0 };
    let peak = parameters + others + computed + lost;
    RankMemory { parameters, parameter_count, activations, key_values, decode, peak }
}

/// Values that are alive at once while a rank runs a pass over a sample, and those that it keeps from step to step, each at
/// its most.
fn computed(plan: &Plan, work: &Work, rank: usize) -> (f64, f64) {
    let stage = plan.layout().mesh.coordinate(rank, Axis::Pipeline);
    let is_piped = plan.patches() > 1 || plan.layout().mesh.degree(Axis::Pipeline) > 1;
    // The steps of the warm-up have the whole sequence at hand.
    let share = Share::of(plan, rank);
    let (mut most, mut most_kept) = (0.0_f64, 0.0_f64);
    for steps in work.alike(plan) {
        let mut all = 0.0;
        for network in steps.own(plan, rank) {
            let parts = own_parts(plan, network, stage);
            most = most.max(activations(network, &parts, &share));
            all += parts.iter().map(|part| kept(part, &share)).sum::<f64>();
        }
        most_kept = most_kept.max(if is_piped { all } else { 0.0 });
    }
    (most, most_kept)
}

/// The parts of a network that a stage runs.
fn own_parts<'a>(plan: &Plan, network: &'a Network, stage: usize) -> Vec<&'a Part> {
    let last = plan.layout().mesh.degree(Axis::Pipeline) - 1;
    let first = (stage == 0).then_some(&network.embed);
    let end = (stage == last).then_some(&network.head);
    let around = [Some(&network.shared), first, end].into_iter().flatten();
    around.chain(&network.blocks[plan.stage(stage)]).collect()
}

/// Values that are alive at once while a block runs.
pub(super) fn activations(network: &Network, parts: &[&Part], share: &Share) -> f64 {
    let values = |own: &Stream| share.rows(own.rows) * own.width as f64;
    let streams = network.streams.iter().map(|streams| streams.iter().map(values).sum::<f64>());
    let stream = streams.fold(0.0, f64::max);
    let widest = parts.iter().flat_map(|part| &part.products).map(|own| {
        share.rows(own.rows) * (own.inputs.max(own.outputs)) as f64 * share.of_layer(own)
    });
    let coming = parts.iter().flat_map(|part| &part.mixings).map(|own| match share.ring {
        1 => 0.0,
        _ => 2.0 * share.of_group(own.keys) * share.heads(own) * own.head_width as f64,
    });
    STREAMS * stream + WIDEST * widest.fold(0.0, f64::max) + coming.fold(0.0, f64::max)
}

/// Keys and values of a block that are kept, and what is made of the context.
fn kept(part: &Part, share: &Share) -> f64 {
    let mixings = part.mixings.iter().filter(|own| is_exchanged(own));
    let tokens = mixings
        .map(|own| 2.0 * share.of_group(own.keys) * share.heads(own) * own.head_width as f64)
        .sum::<f64>();
    let made = part.products.iter();
    let made = made.map(|own| (own.rows.constant * own.outputs) as f64 * share.of_layer(own));
    tokens + made.sum::<f64>()
}

/// The fullest host: where memory is shared, parameters are there once.
pub(super) fn of_host(ranks: &[RankForecast], work: &Work, hardware: &Hardware) -> u64 {
    if !hardware.shared_memory {
        let most = ranks.iter().map(|rank| rank.memory.peak).max();
        return hardware.program + most.unwrap_or(0);
    }
    let here = hardware.ranks_of_host(ranks.len());
    let host = |ranks: &[RankForecast]| {
        let several = ranks.len() > 1;
        let parameters: u64 = ranks.iter().map(|rank| rank.memory.parameters).sum();
        let own = |rank: &RankForecast| {
            let times = if several { LEFT_BEHIND } else { 1 };
            (rank.memory.activations * times + rank.memory.key_values, rank.memory.decode)
        };
        let (denoise, decode) =
            ranks.iter().map(own).fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1));
        let computed = denoise.max(decode);
        let lost = (computed as f64 / LOST) as u64;
        let own = if several { hardware.rank_program * ranks.len() as u64 } else { 0 };
        work.network().bytes().min(parameters) + work.other_bytes + computed + lost + own
    };
    hardware.program + ranks.chunks(here).map(host).max().unwrap_or(0)
}
