//! `moviola inspect`: what a path holds, or what the machine can do.

use std::fmt::Write;
use std::path::PathBuf;

use kernels::InstructionSet;

use crate::failure::Outcome;
use crate::{say, threads};

/// What to tell about.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A file or a folder.
    #[arg(required_unless_present = "machine")]
    path: Option<PathBuf>,
    /// Tell instead which instruction sets there are, which this machine has, and how fast each
    /// multiplies.
    #[arg(long, conflicts_with = "path")]
    machine: bool,
    /// Threads to measure with [default: one per core].
    #[arg(long, value_name = "N", requires = "machine")]
    threads: Option<usize>,
}

/// Tells.
///
/// # Errors
/// There is nothing at the path, or it is nothing known.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.path {
        Some(path) => Ok(say(format_args!("{}", engine::inspect(path)?))?),
        None => {
            let threads = threads::count(arguments.threads)?;
            Ok(say(format_args!("{}", machine(threads, threads::instruction_set()?)?))?)
        }
    }
}

/// The table of instruction sets, each with the rate that its own kernel reaches.
fn machine(threads: usize, chosen: InstructionSet) -> Outcome<String> {
    let plural = if threads == 1 { "" } else { "s" };
    let mut text = format!("{:<10} f32 GFLOP/s on {threads} thread{plural}\n", "set");
    for set in InstructionSet::ALL {
        let said = match set.lacking() {
            lacking if lacking.is_empty() => {
                let pool = threads::pool(threads, set)?;
                let peak = pool.install(|| kernels::measure_fma_peak(threads)) / 1e9;
                format!("{peak:.0}{}", if set == chosen { ", in use" } else { "" })
            }
            lacking => format!("not here: the processor lacks {}", lacking.join(", ")),
        };
        writeln!(text, "{set:<10} {said}").expect("a string takes all that is written");
    }
    Ok(text)
}
