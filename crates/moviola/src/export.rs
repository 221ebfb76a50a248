//! `moviola export`.

use std::path::PathBuf;

use burn::tensor::Device;
use clap::ValueEnum;
use recipe::{Dialect, Student, Which};

use crate::failure::{Failure, Outcome};
use crate::hub;

/// Turn a run's checkpoint into a diffusers folder, a LoRA or one file.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The folder of a run, or one checkpoint of it
    run: PathBuf,
    /// Where it goes; nothing is overwritten
    #[arg(long, value_name = "PATH")]
    output: PathBuf,
    /// What to write [default: a LoRA if one was trained, else a folder]
    #[arg(long = "as", value_enum)]
    kind: Option<KindName>,
    /// The running average instead of the last step
    #[arg(long)]
    ema: bool,
    /// How the layers of a LoRA are called [default: diffusers]
    #[arg(long, value_enum)]
    dialect: Option<DialectName>,
}

const EXAMPLES: &str = "Examples:
  moviola export runs/wan --ema --output wan-tuned
  moviola export runs/style --output style.safetensors --dialect comfyui
  moviola export runs/wan/checkpoints/checkpoint-00001000 --as file --output wan.safetensors";

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum KindName {
    /// A diffusers folder, a LoRA merged into it
    Folder,
    /// The LoRA alone
    Lora,
    /// The whole transformer as one safetensors file
    File,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DialectName {
    Diffusers,
    Comfyui,
}

/// Reads a checkpoint and writes what was asked for.
///
/// # Errors
/// There is no such checkpoint, it does not hold what was asked for, or something is in the way.
pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let which = if arguments.ema { Which::Average } else { Which::Live };
    let student = Student::open(&arguments.run, which, &Device::flex(), &hub::from_environment())?;
    let own = if student.lora().is_some() { KindName::Lora } else { KindName::Folder };
    let path = &arguments.output;
    let kind = arguments.kind.unwrap_or(own);
    if kind != KindName::Lora && arguments.dialect.is_some() {
        let reason = "--dialect is how a LoRA calls its layers, and none is written; leave it out";
        return Err(Failure::refused(reason));
    }
    match kind {
        KindName::Folder => student.write_folder(path)?,
        KindName::File => student.write_file(path)?,
        KindName::Lora => {
            let dialect = match arguments.dialect {
                Some(DialectName::Diffusers) | None => Dialect::Diffusers,
                Some(DialectName::Comfyui) => Dialect::ComfyUi,
            };
            student.write_lora(path, dialect)?;
        }
    }
    Ok(crate::say(format_args!("{}\n", path.display()))?)
}
