//! `moviola inspect`: what a path holds, or what the machine can do.

use std::fmt::Write;
use std::path::PathBuf;

use engine::{Inspection, RoundedMatrix, TensorReport};
use kernels::{InstructionSet, Operands};

use crate::failure::Outcome;
use crate::{found, say, threads};

/// What to tell about.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A file or a folder: a model, a component, a LoRA, a VAE, a dataset or a shard of it, a run or a
    /// checkpoint of it, a config, a GGUF file.
    #[arg(required_unless_present = "machine")]
    path: Option<PathBuf>,
    /// Tell instead which instruction sets there are, which this machine has, and how fast each
    /// multiplies.
    #[arg(long, conflicts_with = "path")]
    machine: bool,
    /// Tell instead what `generate --quantize int8` would round in a diffusers folder, and by how much.
    #[arg(long, requires = "path", conflicts_with = "machine")]
    quantization: bool,
    /// List every tensor with its type and shape.
    #[arg(long, requires = "path", conflicts_with_all = ["quantization", "machine"])]
    tensors: bool,
    /// Write it as JSON, with all metadata in full.
    #[arg(long, requires = "path", conflicts_with_all = ["quantization", "machine"])]
    json: bool,
    /// Threads to measure with [default: one per core].
    #[arg(long, value_name = "N", requires = "machine", conflicts_with = "path")]
    threads: Option<usize>,
}

/// Tells.
///
/// # Errors
/// There is nothing at the path, or it is nothing known.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.path {
        Some(path) if arguments.quantization => {
            let set = threads::instruction_set()?;
            let pool = threads::pool(threads::count(None)?, set)?;
            let matrices = pool.install(|| engine::quantization(path))?;
            Ok(say(format_args!("{}", quantization(&matrices)))?)
        }
        Some(path) => tell(arguments, found::inspect(path)?),
        None => {
            let threads = threads::count(arguments.threads)?;
            Ok(say(format_args!("{}", machine(threads, threads::instruction_set()?)?))?)
        }
    }
}

/// Tells what was found, in the form that was asked for.
fn tell(arguments: &Arguments, mut found: Inspection) -> Outcome {
    if arguments.json {
        if !arguments.tensors {
            found.tensors.clear();
        }
        let text = serde_json::to_string_pretty(&found).expect("what was found is JSON");
        return Ok(say(format_args!("{text}\n"))?);
    }
    say(format_args!("{found}"))?;
    if arguments.tensors {
        for TensorReport { name, dtype, shape } in &found.tensors {
            let name: String = name.chars().flat_map(char::escape_debug).collect();
            let shape = shape.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ");
            say(format_args!("{dtype:<6} {shape:>20}  {name}\n"))?;
        }
    }
    Ok(())
}

/// The table of instruction sets, each with the rates that its own kernels reach.
fn machine(threads: usize, chosen: InstructionSet) -> Outcome<String> {
    const OPERANDS: [Operands; 3] = [Operands::F32, Operands::Bf16, Operands::Int8];
    let plural = if threads == 1 { "" } else { "s" };
    let title = format!("thousand million operations a second on {threads} thread{plural}");
    let mut text = format!("{:<12}{:>8}{:>8}{:>8}   {title}\n", "set", "f32", "bf16", "int8");
    for set in InstructionSet::ALL {
        let said = match set.lacking() {
            lacking if lacking.is_empty() => {
                let pool = threads::pool(threads, set)?;
                let rate = |operands| {
                    let peak = pool.install(|| kernels::measure_peak(operands, threads));
                    // A set that does not multiply bf16 widens it.
                    peak.map_or("-".to_owned(), |peak| format!("{:.0}", peak / 1e9))
                };
                let rates = OPERANDS.map(|operands| format!("{:>8}", rate(operands))).concat();
                format!("{rates}{}", if set == chosen { "   in use" } else { "" })
            }
            lacking => format!("not here: the processor lacks {}", lacking.join(", ")),
        };
        writeln!(text, "{set:<12}{said}").expect("a string takes all that is written");
    }
    Ok(text)
}

/// The table of matrices, and what all of them take.
fn quantization(matrices: &[RoundedMatrix]) -> String {
    let mut text = format!("{:>8}  {:>14}  matrix\n", "error", "shape");
    let put = "a string takes all that is written";
    for RoundedMatrix { component, name, shape: [outputs, inputs], error, .. } in matrices {
        let shape = format!("{outputs} x {inputs}");
        writeln!(text, "{:>7.3}%  {shape:>14}  {component}: {name}", 100.0 * error).expect(put);
    }
    let sum = |of: fn(&RoundedMatrix) -> usize| matrices.iter().map(of).sum::<usize>() as f64;
    let (before, after) = (sum(|own| own.before), sum(|own| own.after));
    let worst = matrices.iter().map(|own| own.error).fold(0.0, f64::max);
    writeln!(
        text,
        "{} matrices: {:.1} MB in f32, {:.1} MB in bytes ({:.3} of it); the worst is off by {:.3}%",
        matrices.len(),
        before / 1e6,
        after / 1e6,
        after / before.max(1.0),
        100.0 * worst
    )
    .expect(put);
    text
}
