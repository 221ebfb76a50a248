//! The command: arguments, signals, progress bars and exit codes. Everything else lives below.

mod bars;
mod clips;
mod clock;
mod device;
mod doctor;
mod generate;
mod output;
mod preprocess;
mod signals;
mod threads;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clock::Clock;
use signals::INTERRUPTED;

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
    /// Encode clips and captions for training.
    Preprocess(Box<preprocess::Arguments>),
    /// Tell which clips of a dataset would be skipped, and why.
    Doctor(Box<doctor::Arguments>),
    /// Tell what a safetensors file, a diffusers folder or a config is.
    #[command(
        after_help = "Examples:\n  moviola inspect goldens/pixart-tiny\n  moviola inspect model.safetensors"
    )]
    Inspect {
        /// A file or a folder.
        path: PathBuf,
    },
}

fn main() -> ExitCode {
    let clock = Clock::new(Instant::now());
    kernels::keep_freed_pages();
    let result = match Arguments::parse().command {
        Command::Generate(arguments) => generate::run(&arguments, &clock),
        Command::Preprocess(arguments) => return finish(preprocess::run(&arguments)),
        Command::Doctor(arguments) => return finish(doctor::run(&arguments)),
        Command::Inspect { path } => inspect(&path),
    };
    finish(result.map(|()| ExitCode::SUCCESS))
}

/// The exit code of a command; an error is told.
fn finish(result: engine::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(err) => {
            eprintln!("error: {err}");
            ExitCode::from(if matches!(err, engine::Error::Interrupted) { INTERRUPTED } else { 2 })
        }
    }
}

fn inspect(path: &std::path::Path) -> engine::Result<()> {
    say(format_args!("{}", engine::inspect(path)?))
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
