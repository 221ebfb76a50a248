//! The command: arguments, signals, progress bars and exit codes. Everything else lives below.

mod bars;
mod clips;
mod clock;
mod device;
mod doctor;
mod exam;
mod export;
mod failure;
mod generate;
mod given;
mod hub;
mod inspect;
mod layout;
mod output;
mod preprocess;
mod questions;
mod quickstart;
mod report;
mod session;
mod signals;
mod threads;
mod train;
mod watch;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Instant;

use clock::Clock;
use failure::Outcome;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: kernels::Allocator = kernels::Allocator;

/// Trains, distils and serves video diffusion transformers.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make clips and pictures from captions and pictures.
    Generate(Box<generate::Arguments>),
    /// Train a tiny text-to-video model on the shapes world, and score it.
    Quickstart(quickstart::Arguments),
    /// Run a recipe, or go on with a run that was stopped.
    Train(Box<train::Arguments>),
    /// Turn a run's checkpoint into a diffusers folder, a LoRA or one file.
    Export(export::Arguments),
    /// Score a model of the shapes world.
    Exam(exam::Arguments),
    /// Encode clips and captions for training.
    Preprocess(Box<preprocess::Arguments>),
    /// Tell which clips of a dataset would be skipped, and why.
    Doctor(Box<doctor::Arguments>),
    /// Tell what a safetensors file, a diffusers folder or a config is, or what this machine can do.
    #[command(
        after_help = "Examples:\n  moviola inspect goldens/pixart-tiny\n  moviola inspect model.safetensors\n  moviola inspect --machine"
    )]
    Inspect(inspect::Arguments),
}

fn main() -> ExitCode {
    let clock = Clock::new(Instant::now());
    kernels::keep_freed_pages();
    let result = match Arguments::parse().command {
        Command::Generate(arguments) => generate::run(&arguments, &clock),
        Command::Quickstart(arguments) => quickstart::run(&arguments, &clock),
        Command::Train(arguments) => train::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Exam(arguments) => exam::run(&arguments, &clock),
        Command::Preprocess(arguments) => return finish(preprocess::run(&arguments)),
        Command::Doctor(arguments) => return finish(doctor::run(&arguments)),
        Command::Inspect(arguments) => inspect::run(&arguments),
    };
    finish(result.map(|()| ExitCode::SUCCESS))
}

/// The exit code of a command; an error is told.
fn finish(result: Outcome<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::from(err.code())
        }
    }
}

/// Prints what was asked for. A reader that has seen enough (`moviola … | head`) is no error.
fn say(text: std::fmt::Arguments<'_>) -> engine::Result<()> {
    let mut output = std::io::stdout();
    match output.write_fmt(text).and_then(|()| output.flush()) {
        Err(source) if source.kind() != ErrorKind::BrokenPipe => {
            Err(engine::Error::File { verb: "write", path: "the standard output".into(), source })
        }
        _ => Ok(()),
    }
}
