//! The project's own commands: `cargo xtask check | tidy | test | mpi | hosts | break | fuzz | tour | serve-test | studio-test | goldens | bench | layouts | learn`.
//!
//! Everything that a person or CI does to this repository, beyond plain cargo, is here and written
//! in Rust, so that a new machine needs nothing but a Rust toolchain to run the checks.
#![expect(clippy::print_stdout, reason = "these commands talk to a person in a terminal")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

mod bench;
mod breaks;
mod check;
mod fuzz;
mod goldens;
mod hosts;
mod layouts;
mod learn;
mod process;
mod serve;
mod studio;
mod tidy;
mod tour;
mod venv;
mod wan_i2v;

/// Moviola's own commands; run them as `cargo xtask <command>`.
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run exactly what CI runs, cheapest first, and stop at the first failure
    Check,
    /// Check what the compiler cannot: dependency direction, file and function size, state, unsafe
    Tidy,
    /// Run all tests, with cargo-nextest where it is installed
    Test,
    /// Run the tests of ranks as processes; installs an MPI where there is none
    Mpi(check::MpiOptions),
    /// Run the law of ranks on two hosts that a shaped link joins, and cut the link; wants root
    Hosts,
    /// Try to break the command: bombs, floods, hangs, kills, in processes with 4 GB of memory
    Break(breaks::Options),
    /// Feed readers and the command with damaged input: no panic, abort, hang or half-written file
    Fuzz(fuzz::Options),
    /// Walk a person's path: clips, doctor, preprocess, a LoRA, exports, clips of one's own
    Tour(tour::Options),
    /// Try the server from outside: openai-python, load, `kill -9`, bad input
    ServeTest(serve::Options),
    /// Try the studio page in a headless Chromium: clips, comparisons, keys, training, a phone
    StudioTest(studio::Options),
    /// Make the reference files in goldens/ anew with PyTorch and diffusers
    Goldens(goldens::Options),
    /// Train on the shapes world in every way there is, and score what was learnt
    Learn(learn::Options),
    /// Compare our speed and memory with PyTorch's on this machine
    Bench(bench::Options),
    /// Measure what is promised of layouts on thread ranks: speed, memory, cost of checks, what plans say
    Layouts(layouts::Options),
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<()> {
    let root = repository_root()?;
    match arguments.command {
        Command::Check => check::run(&root),
        Command::Tidy => tidy::run(&root),
        Command::Test => check::run_tests(&root),
        Command::Mpi(options) => check::run_mpi(&root, &options),
        Command::Hosts => hosts::run(&root),
        Command::Break(options) => breaks::run(&root, &options),
        Command::Fuzz(options) => fuzz::run(&root, &options),
        Command::Tour(options) => tour::run(&root, &options),
        Command::ServeTest(options) => serve::run(&root, &options),
        Command::StudioTest(options) => studio::run(&root, &options),
        Command::Goldens(options) => goldens::run(&root, &options),
        Command::Learn(options) => learn::run(&root, &options),
        Command::Bench(options) => bench::run(&root, &options),
        Command::Layouts(options) => layouts::run(&root, &options),
    }
}

/// The folder of the workspace that the command was started in.
fn repository_root() -> Result<PathBuf> {
    let arguments = "locate-project --workspace --message-format plain";
    let manifest = process::output(&mut process::command("cargo", arguments, Path::new(".")))?;
    let root = Path::new(manifest.trim()).parent();
    Ok(root.context("the workspace's manifest is in no folder")?.to_path_buf())
}
