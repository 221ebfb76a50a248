//! Feeds what users bring with damaged input, and sees that nothing panics, aborts or hangs.
//!
//! `cargo xtask fuzz --minutes N` builds and runs this. It needs no nightly toolchain and no instrumentation: cases are
//! mutations of a corpus (`fuzz/corpus`, `goldens`, `recipes`), drawn from a seed and a number, so that each can be made
//! again. In-process targets call a reader directly; process cases run the command itself on a damaged copy of a folder.
#![expect(clippy::print_stdout, reason = "it talks to a person in a terminal")]

mod commands;
mod configs;
mod mutate;
mod probed;
mod targets;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;

use mutate::{Corpus, Mutator};

/// A case that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(10);

/// The exit code of a target that found something.
const FOUND: u8 = 3;

/// What to feed.
#[derive(Parser)]
struct Arguments {
    /// The repository, whose corpus, goldens and recipes are mutated
    #[arg(long)]
    root: PathBuf,
    /// The target; all are listed without one
    #[arg(long)]
    target: Option<String>,
    /// The command, for the target `command`
    #[arg(long)]
    moviola: Option<PathBuf>,
    /// How long
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// What all cases are drawn from
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// The number of the first case
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Where inputs go that were found
    #[arg(long)]
    found: PathBuf,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let again = match arguments.target.as_deref() {
        Some(probed::NAME) => probed::started_again(),
        _ => Ok(None),
    };
    let code = |found| if found == 0 { ExitCode::SUCCESS } else { ExitCode::from(FOUND) };
    let done = match again {
        Ok(None) => run(&arguments).map(code),
        Ok(Some(ended)) => Ok(ended),
        Err(error) => Err(error),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one target and returns how many cases it found.
fn run(arguments: &Arguments) -> Result<usize> {
    let Some(name) = &arguments.target else {
        targets::TARGETS.iter().for_each(|own| println!("{}", own.name));
        println!("{}", commands::NAME);
        return Ok(0);
    };
    fs::create_dir_all(&arguments.found)?;
    let until = Instant::now() + Duration::from_secs_f64(arguments.seconds);
    if name == commands::NAME {
        let moviola = arguments.moviola.as_ref().context("--moviola is the command to run")?;
        return commands::run(
            &arguments.root,
            moviola,
            (arguments.seed, arguments.from),
            until,
            &arguments.found,
        );
    }
    let target = targets::TARGETS.iter().find(|own| own.name == name);
    let target = target.with_context(|| format!("there is no target `{name}`"))?;
    in_process(arguments, target, until)
}

/// Calls a target until the time is over.
fn in_process(arguments: &Arguments, target: &targets::Target, until: Instant) -> Result<usize> {
    let corpus = Corpus::read(&arguments.root, target)?;
    let place = tempfile::tempdir_in(memory())?;
    let current = arguments.found.join(format!("{}.current", target.name));
    let begun = watch(current.clone());
    std::panic::set_hook(Box::new(|_| {}));
    let (mut found, mut number) = (0, arguments.from);
    while Instant::now() < until {
        let input = Mutator::new(arguments.seed, number).mutate(&corpus);
        // An abort leaves no other trace.
        fs::write(&current, &input)?;
        begun.fetch_add(1, Ordering::Relaxed);
        if catch_unwind(AssertUnwindSafe(|| (target.call)(place.path(), &input))).is_err() {
            found += 1;
            let kept = arguments.found.join(format!("{}-{}-{number}", target.name, arguments.seed));
            fs::write(&kept, &input)?;
            println!("{}: case {number} panicked; its input is {}", target.name, kept.display());
        }
        number += 1;
        if found == 10 {
            break;
        }
    }
    fs::remove_file(&current)?;
    println!("{}: {} cases, {found} found", target.name, number - arguments.from);
    Ok(found)
}

/// Ends the process if no case begins for too long. What hangs is the current input.
fn watch(current: PathBuf) -> Arc<AtomicU64> {
    let begun = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&begun);
    std::thread::spawn(move || {
        let mut last = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_millis(200));
            let now = seen.load(Ordering::Relaxed);
            if now != last.0 {
                last = (now, Instant::now());
            } else if last.1.elapsed() > LONGEST {
                println!("a case hangs; its input is {}", current.display());
                std::process::exit(i32::from(FOUND));
            }
        }
    });
    begun
}

/// A folder whose files need no disk, where there is one.
fn memory() -> PathBuf {
    let shared = Path::new("/dev/shm");
    if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() }
}
