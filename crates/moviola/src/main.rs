//! The command: arguments, signals, progress bars and exit codes. Everything else lives below.

mod bars;
mod bench;
mod changes;
mod clips;
mod clock;
mod completions;
mod convert;
mod crew;
mod device;
mod doctor;
mod exam;
mod export;
mod failure;
mod found;
mod generate;
mod given;
mod hardware;
mod hub;
mod import;
mod inputs;
mod inspect;
mod job;
mod launch;
mod layout;
mod looking;
mod memory;
mod output;
mod places;
mod plan;
mod preprocess;
mod questions;
mod quickstart;
mod ranked;
mod report;
mod reporter;
mod serve;
mod session;
mod signals;
mod threads;
mod train;
mod voice;
mod watch;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;
use std::time::Instant;

use clock::Clock;
use failure::Outcome;
use voice::{Voice, VoiceArguments};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: kernels::Allocator = kernels::Allocator;

/// Trains, distils and serves video diffusion transformers.
#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    voice: VoiceArguments,
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
    Exam(Box<exam::Arguments>),
    /// Encode clips and captions for training.
    Preprocess(Box<preprocess::Arguments>),
    /// Take over a dataset that LTX-2's trainer has preprocessed.
    Import(import::Arguments),
    /// Make a recipe of a config of LTX-2's trainer.
    ConvertRecipe(convert::Arguments),
    /// Tell which clips of a dataset would be skipped, and why.
    Doctor(Box<doctor::Arguments>),
    /// Tell what a model, a LoRA, a dataset, a run or another file is, or what this machine can do.
    #[command(
        after_help = "Examples:\n  moviola inspect goldens/pixart-tiny\n  moviola inspect model.safetensors\n  moviola inspect --machine"
    )]
    Inspect(inspect::Arguments),
    /// Print what makes a shell complete these commands and their arguments.
    Completions(completions::Completions),
    /// Write the manual pages of all commands into a folder.
    Man(completions::Man),
    /// Tell what a layout costs: memory, traffic and time of every rank, or why it cannot be.
    #[command(
        after_help = "Examples:\n  moviola plan goldens/wan-tiny --ranks 4\n  moviola plan hardware/hunyuan-video.yaml --ranks 8 --hardware hardware/h100.yaml\n  moviola plan shape.yaml --ulysses 4 --cfg 2 --json"
    )]
    Plan(Box<plan::Arguments>),
    /// Measure this machine.
    Bench(bench::Arguments),
    /// Serve models to clients of OpenAI's videos and images, with a page.
    Serve(Box<serve::Arguments>),
}

impl Command {
    fn name(&self) -> &'static str {
        match self {
            Command::Generate(_) => "generate",
            Command::Quickstart(_) => "quickstart",
            Command::Train(_) => "train",
            Command::Export(_) => "export",
            Command::Exam(_) => "exam",
            Command::Preprocess(_) => "preprocess",
            Command::Import(_) => "import",
            Command::ConvertRecipe(_) => "convert-recipe",
            Command::Doctor(_) => "doctor",
            Command::Inspect(_) => "inspect",
            Command::Completions(_) => "completions",
            Command::Man(_) => "man",
            Command::Plan(_) => "plan",
            Command::Bench(_) => "bench",
            Command::Serve(_) => "serve",
        }
    }
}

fn main() -> ExitCode {
    let clock = Clock::new(Instant::now());
    kernels::keep_freed_pages();
    let arguments = parsed();
    let voice = match launch::is_first() {
        true => Voice::from(arguments.voice),
        false => Voice::from(arguments.voice).in_the_background(),
    };
    // Without a handler a file that shrinks ends the process as it always did: the work can be done.
    let _ = kernels::watch_mapped_files(failure::REFUSED.into(), move |path| {
        voice.shrunk(path, failure::REFUSED)
    });
    let done = |result: Outcome| result.map(|()| ExitCode::SUCCESS);
    if let Some(process) = launch::Process::of_job()
        && let Err(failure) = process.check(arguments.command.name())
    {
        return finish(Err(failure), voice);
    }
    let result = match arguments.command {
        Command::Generate(arguments) => done(generate::run(&arguments, voice, &clock)),
        Command::Quickstart(arguments) => done(quickstart::run(&arguments, voice, &clock)),
        Command::Train(arguments) => done(train::run(&arguments, voice)),
        Command::Export(arguments) => done(export::run(&arguments, voice)),
        Command::Exam(arguments) => done(exam::run(&arguments, voice, &clock)),
        Command::Preprocess(arguments) => preprocess::run(&arguments, voice),
        Command::Import(arguments) => import::run(&arguments, voice),
        Command::ConvertRecipe(arguments) => done(convert::run(&arguments, voice)),
        Command::Doctor(arguments) => doctor::run(&arguments, voice),
        Command::Inspect(arguments) => done(inspect::run(&arguments)),
        Command::Completions(arguments) => done(completions::run(&arguments)),
        Command::Man(arguments) => done(completions::write_manual(&arguments)),
        Command::Plan(arguments) => done(plan::run(&arguments, voice)),
        Command::Bench(arguments) => done(bench::run(&arguments, voice)),
        Command::Serve(arguments) => done(serve::run(&arguments, voice)),
    };
    finish(result, voice)
}

/// The arguments. A number may be negative wherever one is expected.
fn parsed() -> Arguments {
    let read = command().try_get_matches();
    let read = read.and_then(|matches| Arguments::from_arg_matches(&matches));
    read.unwrap_or_else(|err| match err.use_stderr() {
        // What was typed is told like any other value: without what a terminal obeys, and not at any length.
        true => {
            voice::misunderstood(&shortened(&err.to_string()), err.exit_code());
            std::process::exit(err.exit_code())
        }
        false => err.exit(),
    })
}

/// The whole command.
fn command() -> clap::Command {
    let takes_values = |own: &clap::Arg| own.get_action().takes_values();
    Arguments::command().mut_subcommands(|own| {
        own.mut_args(|own| match takes_values(&own) && !own.is_positional() {
            true => own.allow_negative_numbers(true),
            false => own,
        })
    })
}

/// The exit code of a command; an error is told.
fn finish(result: Outcome<ExitCode>, voice: Voice) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(err) => {
            if let Some(process) = launch::Process::of_job() {
                process.wait_for_the_first();
            }
            voice.fail(&shortened(&err.to_string()), err.code());
            ExitCode::from(err.code())
        }
    }
}

/// Characters of an error that are told: a file may give a name of any length.
const LONGEST_ERROR: usize = 900;

/// The same with the middle left out of lines that are too long to be read; there may be several lines,
/// each a complaint.
fn shortened(text: &str) -> String {
    let line = |line: &str| {
        let count = line.chars().count();
        if count <= LONGEST_ERROR {
            return line.to_owned();
        }
        let half = LONGEST_ERROR / 2;
        let first: String = line.chars().take(half).collect();
        let last: String = line.chars().skip(count - half).collect();
        format!("{first} … {last}")
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
        + if text.ends_with('\n') { "\n" } else { "" }
}

/// What the user typed, to be typed again in a shell.
fn command_line() -> String {
    let words: Vec<String> = std::env::args_os().skip(1).map(|word| quoted(&word)).collect();
    format!("moviola {}", words.join(" "))
}

/// A word as a shell takes it for one.
fn quoted(word: &std::ffi::OsStr) -> String {
    let word = word.to_string_lossy().into_owned();
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_=+./,:@%".contains(letter);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// Prints what was asked for, without what a terminal obeys: names of files may hold anything. A reader that has seen enough (`moviola … | head`) is no error.
fn say(text: std::fmt::Arguments<'_>) -> engine::Result<()> {
    let mut output = std::io::stdout();
    let plain = voice::harmless(&text.to_string());
    match output.write_all(plain.as_bytes()).and_then(|()| output.flush()) {
        Err(source) if source.kind() != ErrorKind::BrokenPipe => {
            Err(engine::Error::File { verb: "write", path: "the standard output".into(), source })
        }
        _ => Ok(()),
    }
}
