//! `cargo xtask bench`: the same work here and in PyTorch, side by side on the same cores.
//!
//! Both sides are long-lived child processes that answer requests, so starting and importing is
//! not counted. They take turns, so that a busy moment of the machine hits both; the best time of
//! each counts. Every case gets two new processes, so its peak memory is its own.

mod cases;
mod machine;
mod report;
mod worker;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{available_parallelism, sleep};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::process::{self, command};
use crate::venv;
use cases::Case;
use report::{Report, Row, Timing};
use worker::Worker;

/// How to run the comparison.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Use this interpreter, which has tools/bench/requirements.txt installed, instead of making
    /// target/venv-bench
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Threads on each side [default: all cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Turns of each side per case; the best counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run only the cases whose name contains this
    #[arg(long, value_name = "PART", conflicts_with = "record")]
    only: Option<String>,
    /// Write the result to benches/RESULTS.md
    #[arg(long)]
    record: bool,
}

/// A turn repeats quick work until about this many seconds are filled.
const TURN_SECONDS: f64 = 0.5;

/// A turn never repeats more often than this.
const MOST_REPEATS: f64 = 200.0;

/// Whole runs take long; each side gets at most this many.
const MOST_WHOLE_RUNS: u32 = 3;

/// Between turns: the threads of the side that just worked may spin for a while.
const SETTLE: Duration = Duration::from_millis(100);

/// The case that measures this machine instead of comparing.
const PEAK_CASE: &str = "fma_peak";

/// Runs the comparison, prints it and, if asked, records it.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let bench = Bench::prepare(root, options)?;
    let mut peak = bench.start_ours()?;
    let torch = bench.start_torch()?.hello.clone();
    let mut report = Report {
        command: repeating_command(options, bench.threads),
        kind: machine::kind(),
        machine: machine::describe(bench.threads),
        date: machine::today()?,
        versions: vec![peak.hello.version.clone(), torch.version.clone()],
        ..Report::default()
    };
    for case in cases::all() {
        if options.only.as_ref().is_some_and(|part| !case.name.contains(part.as_str())) {
            continue;
        }
        if !peak.hello.has(case.name) || !torch.has(case.name) {
            report.missing.push(case.name);
            continue;
        }
        eprintln!("measuring {}", case.name);
        report.rows.push(bench.measure(&case, &mut peak, &mut report.peak)?);
    }
    if options.only.is_none() {
        eprintln!("measuring whole runs");
        report.whole_runs = bench.whole_runs()?;
    }
    if report.rows.is_empty() {
        bail!("no case was measured; without --only, all that both sides know are");
    }
    println!("{}", report.to_markdown());
    if options.record {
        let path = root.join("benches/RESULTS.md");
        report.record(&path)?;
        println!("recorded in {}", path.display());
    }
    Ok(())
}

/// What both sides are started with.
struct Bench<'a> {
    root: &'a Path,
    binary: PathBuf,
    python: PathBuf,
    threads: usize,
    rounds: u32,
}

impl<'a> Bench<'a> {
    fn prepare(root: &'a Path, options: &Options) -> Result<Bench<'a>> {
        let threads = match options.threads {
            Some(0) => bail!("--threads 0 would do no work; give at least 1"),
            Some(threads) => threads,
            None => available_parallelism().context("cannot count the cores")?.get(),
        };
        let requirements = root.join("tools/bench/requirements.txt");
        let python = venv::choose(options.python.as_deref(), root, "venv-bench", &requirements)?;
        let binary = build_worker(root)?;
        Ok(Bench { root, binary, python, threads, rounds: options.rounds })
    }

    fn start_ours(&self) -> Result<Worker> {
        self.start("moviola", Command::new(&self.binary))
    }

    fn start_torch(&self) -> Result<Worker> {
        let mut command = Command::new(&self.python);
        command.arg(self.root.join("tools/bench/worker.py"));
        self.start("PyTorch", command)
    }

    fn start(&self, side: &'static str, mut command: Command) -> Result<Worker> {
        let threads = self.threads.to_string();
        command.args(["--threads", &threads]).current_dir(self.root);
        for pool in ["RAYON_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(pool, &threads);
        }
        Worker::start(side, command)
    }

    /// The table of whole processes, from their start to their pictures.
    fn whole_runs(&self) -> Result<String> {
        let binary = self.binary.with_file_name(format!("moviola{}", std::env::consts::EXE_SUFFIX));
        let mut command = Command::new(&self.python);
        command.arg(self.root.join("tools/bench/whole_runs.py")).arg("--binary").arg(binary);
        let rounds = self.rounds.min(MOST_WHOLE_RUNS).to_string();
        command.args(["--threads", &self.threads.to_string(), "--rounds", &rounds]);
        process::output(&mut command)
    }

    /// Lets both sides take turns at `case`, and `peak` after each pair of turns.
    fn measure(&self, case: &Case, peak: &mut Worker, best: &mut Option<f64>) -> Result<Row> {
        let mut sides = vec![
            Turns::start(self.start_ours()?, case.name)?,
            Turns::start(self.start_torch()?, case.name)?,
        ];
        // Our two precisions are compared in the same minutes, not across the table.
        if let Some(name) = case.name.strip_suffix("_bf16") {
            sides.push(Turns::start(self.start_ours()?, &format!("{name}_f32"))?);
        }
        for _ in 0..self.rounds {
            for side in &mut sides {
                sleep(SETTLE);
                side.take()?;
            }
            // No side always goes first.
            sides.rotate_left(1);
            if peak.hello.has(PEAK_CASE) {
                sleep(SETTLE);
                let rate = peak.request(PEAK_CASE, 1)?.flops_per_second;
                *best = (*best).into_iter().chain(rate).reduce(f64::max);
            }
        }
        let count = sides.len();
        sides.rotate_right(self.rounds as usize % count);
        let mut timings = sides.into_iter().map(|side| side.timing);
        let mut next = || timings.next().unwrap_or_default();
        let (ours, torch) = (next(), next());
        let full = (count == 3).then(next);
        Ok(Row { name: case.name, flops: case.flops, goal: case.goal, ours, torch, full })
    }
}

/// One side at one case.
struct Turns {
    worker: Worker,
    case: String,
    repeat: u32,
    timing: Timing,
}

impl Turns {
    /// Prepares the case and finds out how often a turn should repeat it; this time is discarded.
    fn start(mut worker: Worker, case: &str) -> Result<Turns> {
        let seconds = worker.request(case, 1)?.best()?;
        let (case, timing) = (case.to_owned(), Timing::default());
        Ok(Turns { worker, case, repeat: repeats(seconds), timing })
    }

    fn take(&mut self) -> Result<()> {
        let answer = self.worker.request(&self.case, self.repeat)?;
        let best = answer.best()?;
        let so_far = self.timing.seconds;
        self.timing.seconds = if so_far == 0.0 { best } else { so_far.min(best) };
        self.timing.peak_bytes = self.timing.peak_bytes.max(answer.peak_rss_bytes);
        self.timing.held_bytes = answer.held_bytes;
        Ok(())
    }
}

/// How often a turn repeats work that takes `seconds`.
fn repeats(seconds: f64) -> u32 {
    (TURN_SECONDS / seconds.max(1e-6)).ceil().clamp(1.0, MOST_REPEATS) as u32
}

/// Builds our side as users build it, and says where it is.
fn build_worker(root: &Path) -> Result<PathBuf> {
    #[derive(Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    // With the binary, so that both commands share one selection of features and one build.
    let build = "build --release --package moviola --package bench-worker";
    process::run(&mut command("cargo", build, root))?;
    let arguments = "metadata --no-deps --format-version 1";
    let text = process::output(&mut command("cargo", arguments, root))?;
    let metadata: Metadata = serde_json::from_str(&text).context("cannot read cargo's metadata")?;
    let name = format!("bench-worker{}", std::env::consts::EXE_SUFFIX);
    Ok(metadata.target_directory.join("release").join(name))
}

/// The command that repeats this run on another machine: it names no interpreter.
fn repeating_command(options: &Options, threads: usize) -> String {
    let only = options.only.as_ref().map_or(String::new(), |part| format!(" --only {part}"));
    let record = if options.record { " --record" } else { "" };
    format!("cargo xtask bench --threads {threads} --rounds {}{only}{record}", options.rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_work_is_repeated_and_slow_work_is_not() {
        assert_eq!([repeats(0.0), repeats(0.01), repeats(0.4), repeats(7.0)], [200, 50, 2, 1]);
    }

    #[test]
    fn the_command_names_no_interpreter() {
        let mut options = Options {
            python: Some("somewhere/python".into()),
            threads: None,
            rounds: 3,
            only: Some("gelu".into()),
            record: false,
        };
        let expected = "cargo xtask bench --threads 2 --rounds 3 --only gelu";
        assert_eq!(repeating_command(&options, 2), expected);
        (options.only, options.record) = (None, true);
        let expected = "cargo xtask bench --threads 2 --rounds 3 --record";
        assert_eq!(repeating_command(&options, 2), expected);
    }
}
