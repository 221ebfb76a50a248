//! `moviola bench --calibrate`: measures this machine and writes a hardware file.

use std::path::PathBuf;
use std::time::Instant;

use burn::tensor::{Device, Distribution, Tensor};
use comm::{Group, Ranks};
use engine::machine_memory;
use kernels::{Activation, AttentionInputs};
use parallel::exchange;

use crate::failure::{Failure, Outcome};
use crate::hardware::{HardwareFile, LinkFile};
use crate::voice::Voice;
use crate::{output, say, threads};

/// What to measure.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Measure what `moviola plan` asks of a hardware file: products, attention, memory, exchanges
    #[arg(long, required = true)]
    calibrate: bool,
    /// Where the file goes [default: it is printed]
    #[arg(long, value_name = "FILE.yaml", requires = "calibrate")]
    output: Option<PathBuf>,
    /// Ranks that work at once, of one thread each [default: one per core]
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
}

/// Tokens, heads and head width of what is measured, and the width of a feed-forward: those of small video
/// transformers.
const TOKENS: usize = 1024;
const HEADS: usize = 12;
const HEAD_WIDTH: usize = 128;
const WIDTH: usize = HEADS * HEAD_WIDTH;
const FEED: usize = 8960;

/// Every measurement is the best of so many.
const TIMES: usize = 7;

/// Calls of an exchange that are timed together.
const CALLS: usize = 20;

/// What the program itself needs, with its threads and the allocator's own.
const PROGRAM: f64 = (46 << 20) as f64;

/// What each of several ranks needs beside that: 52, 80, 106 and 159 MiB are what a tiny model takes on 1, 2, 4 and 8
/// ranks.
const RANK: f64 = (14 << 20) as f64;

/// Measures and writes.
///
/// # Errors
/// A number that cannot be, the system refuses threads, or the file cannot be written.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let cores = threads::count(None)?;
    let ranks = arguments.ranks.unwrap_or(cores);
    if !(1..=256).contains(&ranks) {
        return Err(Failure::Refused(format!("--ranks: it is {ranks}; choose 1 to 256")));
    }
    voice.say(&format!("measuring {ranks} ranks of one thread at once, about a minute"));
    let file = measured(ranks, cores)?;
    let body = serde_saphyr::to_string(&file)
        .map_err(|err| Failure::Refused(format!("the file cannot be written: {err}")))?;
    let text = format!(
        "# Measured by `moviola bench --calibrate`: {ranks} ranks of one thread at once, best of {TIMES}.\n\
         # flops: the micro-kernel on data in the first-level cache. efficiency: {TOKENS} x {WIDTH} x {FEED} and\n\
         # {WIDTH}. attention: {HEADS} heads of {HEAD_WIDTH}, {TOKENS} tokens. stream: a sum of two tensors. within: tokens\n\
         # traded for heads.\n{body}"
    );
    match &arguments.output {
        Some(path) => Ok(output::write(path, text.as_bytes())?),
        None => Ok(say(format_args!("{text}"))?),
    }
}

/// What one rank found.
#[derive(Clone, Copy, Debug)]
struct Found {
    products: f64,
    attention: f64,
    stream: f64,
    latency: f64,
    bandwidth: f64,
}

fn measured(ranks: usize, cores: usize) -> Outcome<HardwareFile> {
    let set = threads::instruction_set()?;
    let flops =
        threads::pool(ranks, set)?.install(|| kernels::measure_fma_peak(ranks)) / ranks as f64;
    // An exchange takes two.
    let results = Ranks::new(ranks.max(2)).run(|group| {
        set.claim_pool();
        on_rank(&group)
    });
    let failed = |error: comm::Error| Failure::Rank(error.to_string());
    let found = results
        .into_iter()
        .map(|own| own.map_err(failed)?.map_err(|err| Failure::Rank(err.to_string())))
        .collect::<Outcome<Vec<Found>>>()?;
    let mean = |of: fn(&Found) -> f64| found.iter().map(of).sum::<f64>() / found.len() as f64;
    let round = |value: f64| format!("{value:.3e}").parse::<f64>().unwrap_or(value);
    let within = LinkFile {
        bandwidth: round(mean(|own| own.bandwidth)),
        latency: round(mean(|own| own.latency)),
    };
    Ok(HardwareFile {
        name: format!("this machine ({set}), {cores} ranks of one thread"),
        flops: round(flops),
        efficiency: round((mean(|own| own.products) / flops).min(1.0)),
        attention: Some(round((mean(|own| own.attention) / flops).min(1.0))),
        stream: round(mean(|own| own.stream)),
        value_bytes: 4,
        memory: round(machine_memory().unwrap_or(1 << 34) as f64),
        shared_memory: true,
        program: PROGRAM,
        rank_program: RANK,
        ranks_per_host: cores,
        hosts: Some(1),
        within,
        between: None,
    })
}

fn on_rank(group: &Group) -> parallel::Result<Found> {
    let device = Device::flex();
    let random = |rows: usize, columns: usize| {
        Tensor::<2>::random([rows, columns], Distribution::Uniform(-1.0, 1.0), &device)
    };
    let x = random(TOKENS, WIDTH);
    let (square, up, down) = (random(WIDTH, WIDTH), random(FEED, WIDTH), random(WIDTH, FEED));
    let seconds = best(group, || {
        let linear = |x: Tensor<2>, weight: &Tensor<2>| {
            kernels::linear(x, weight.clone(), None, Activation::Identity)
        };
        linear(linear(linear(x.clone(), &square), &up), &down)
    })?;
    let operations = 2 * TOKENS * WIDTH * (WIDTH + 2 * FEED);
    let products = operations as f64 / seconds;
    let heads = || random(TOKENS, WIDTH).reshape([1, TOKENS, HEADS, HEAD_WIDTH]);
    let (q, k, v) = (heads(), heads(), heads());
    let scale = 1.0 / (HEAD_WIDTH as f32).sqrt();
    let seconds = best(group, || {
        let (q, k, v) = (q.clone(), k.clone(), v.clone());
        kernels::attention_forward(AttentionInputs { q, k, v, mask: None, scale }).0
    })?;
    let attention = (4 * TOKENS * TOKENS * WIDTH) as f64 / seconds;
    let (left, right) = (random(TOKENS, FEED), random(TOKENS, FEED));
    let seconds = best(group, || left.clone() + right.clone())?;
    let stream = (3 * TOKENS * FEED * size_of::<f32>()) as f64 / seconds;
    let latency = exchanged(group, group.size())?;
    let seconds = exchanged(group, TOKENS)? - latency;
    let others = (group.size() - 1) as f64 / group.size() as f64;
    let sent = (TOKENS / group.size() * WIDTH * size_of::<f32>()) as f64 * others;
    Ok(Found { products, attention, stream, latency, bandwidth: sent / seconds.max(1e-9) })
}

/// Seconds of trading so many tokens for heads, once.
fn exchanged(group: &Group, tokens: usize) -> parallel::Result<f64> {
    let own = tokens / group.size();
    let x = Tensor::<4>::ones([1, own, HEADS, HEAD_WIDTH], &Device::flex());
    let counts: Vec<usize> =
        (0..group.size()).map(|rank| comm::share(HEADS, rank, group.size()).len()).collect();
    let mut least = f64::INFINITY;
    for _ in 0..TIMES {
        group.barrier()?;
        let start = Instant::now();
        for _ in 0..CALLS {
            exchange::all_to_all(group, x.clone(), (2, &counts), 1)?;
        }
        least = least.min(start.elapsed().as_secs_f64() / CALLS as f64);
    }
    Ok(least)
}

/// The best time of some work that all ranks do at once.
fn best<const D: usize>(group: &Group, work: impl Fn() -> Tensor<D>) -> parallel::Result<f64> {
    let mut least = f64::INFINITY;
    for _ in 0..TIMES {
        group.barrier()?;
        let start = Instant::now();
        std::hint::black_box(work());
        least = least.min(start.elapsed().as_secs_f64());
    }
    Ok(least)
}
