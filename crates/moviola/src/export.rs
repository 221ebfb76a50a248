//! `moviola export`.

use std::path::{Path, PathBuf};

use burn::tensor::{Device, FloatDType};
use clap::ValueEnum;
use data::aside;
use kernels::BlockType;
use nn::GgufType;
use recipe::{Dialect, ExpertConfig, Student, Which};

use crate::failure::{Failure, Outcome};
use crate::hub;
use crate::signals::Writing;
use crate::voice::Voice;

/// Turn a run's checkpoint into a diffusers folder, a LoRA or one file.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The folder of a run, or one checkpoint of it
    run: PathBuf,
    /// Where it goes; nothing is overwritten
    #[arg(long, short, value_name = "PATH")]
    output: PathBuf,
    /// What to write [default: a LoRA if one was trained, else a folder]
    #[arg(long = "as", value_enum)]
    kind: Option<KindName>,
    /// The running average instead of the last step; of several the one of this decay, or the first
    #[arg(long, value_name = "DECAY", num_args = 0..=1)]
    ema: Option<Option<f64>>,
    /// How layers are called [default: diffusers; of a GGUF comfyui, where a model has such names]
    #[arg(long, value_enum)]
    dialect: Option<DialectName>,
    /// The role whose network is written: student, or critic where there is one
    #[arg(long, value_name = "ROLE", default_value = "student")]
    role: String,
    /// One of two experts that learnt in the run [default: both; where files are written, with -high and -low
    /// before their ending]
    #[arg(long, value_enum)]
    expert: Option<ExpertName>,
    /// The type it is written in; of a GGUF that of its matrices [default: as it was trained: what learnt in f32,
    /// the rest as stored; of a GGUF q8_0]
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
}

const EXAMPLES: &str = "Examples:
  moviola export runs/wan --ema --dtype bf16 --output wan-tuned
  moviola export runs/style --output style.safetensors --dialect comfyui
  moviola export runs/wan/checkpoints/checkpoint-00001000 --as file --output wan.safetensors
  moviola export runs/wan --as gguf --dtype q4_k --output wan-q4_k.gguf";

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum KindName {
    /// A diffusers folder, a LoRA merged into it
    Folder,
    /// The LoRA alone
    Lora,
    /// The whole transformer as one safetensors file, a LoRA merged into it
    File,
    /// The same as one GGUF file, for stable-diffusion.cpp and ComfyUI-GGUF
    Gguf,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum DialectName {
    /// As diffusers calls them
    Diffusers,
    /// As the model's own code does, which ComfyUI reads
    Comfyui,
    /// The same, as kohya's trainers write it
    Kohya,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ExpertName {
    /// Of high noise levels: `transformer`, and `generate --lora`
    High,
    /// Of low noise levels: `transformer_2`, and `generate --lora-2`
    Low,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dtype {
    F32,
    Bf16,
    F16,
    /// Blocks of 32 bytes with a scale (GGUF)
    #[value(name = "q8_0")]
    Q8_0,
    /// Blocks of 256 times four bits (GGUF)
    #[value(name = "q4_k")]
    Q4K,
}

impl Dtype {
    /// As it is called in a GGUF.
    fn in_gguf(self) -> GgufType {
        match self {
            Dtype::F32 => GgufType::F32,
            Dtype::Bf16 => GgufType::Bf16,
            Dtype::F16 => GgufType::F16,
            Dtype::Q8_0 => GgufType::Blocks(BlockType::Q8_0),
            Dtype::Q4K => GgufType::Blocks(BlockType::Q4K),
        }
    }

    /// As a file of safetensors has it.
    fn in_safetensors(self) -> Outcome<FloatDType> {
        match self {
            Dtype::F32 => Ok(FloatDType::F32),
            Dtype::Bf16 => Ok(FloatDType::BF16),
            Dtype::F16 => Ok(FloatDType::F16),
            Dtype::Q8_0 | Dtype::Q4K => Err(Failure::refused(
                "--dtype: q8_0 and q4_k are blocks, which only a GGUF holds; add --as gguf",
            )),
        }
    }
}

/// Refuses a name that is one of another kind than what is written under it.
fn agrees(path: &Path, kind: KindName) -> Outcome {
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    let is_called = match extension.to_str() {
        Some("gguf") => KindName::Gguf,
        Some("safetensors") => KindName::File,
        _ => return Ok(()),
    };
    let (own, called, is_so) = match kind {
        KindName::Gguf => ("a GGUF", "gguf", is_called == KindName::Gguf),
        KindName::File => ("safetensors (--as file)", "safetensors", is_called == KindName::File),
        KindName::Lora => {
            ("a LoRA in safetensors (--as lora)", "safetensors", is_called == KindName::File)
        }
        KindName::Folder => ("a folder (--as folder)", "", false),
    };
    if is_so {
        return Ok(());
    }
    let other = if is_called == KindName::Gguf { "gguf" } else { "file" };
    Err(Failure::Refused(format!(
        "--output {}: that is the name of a {}, and what is written is {own}; call it {}, or say --as {other}",
        path.display(),
        if is_called == KindName::Gguf { "GGUF" } else { "file of safetensors" },
        path.with_extension(called).display(),
    )))
}

/// Reads a checkpoint and writes what was asked for.
///
/// # Errors
/// There is no such checkpoint, it does not hold what was asked for, or something is in the way.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome {
    let writing = Writing::watch_at_once(voice)?;
    writing.expect([arguments.output.clone()]);
    let which = match arguments.ema {
        None => Which::Live,
        Some(None) => Which::Average,
        Some(Some(decay)) => Which::Decay(decay),
    };
    let (device, hub) = (Device::flex(), hub::from_environment(voice));
    let student = Student::open_role(&arguments.run, &arguments.role, which, &device, &hub)?;
    let student = match arguments.expert {
        None => student,
        Some(ExpertName::High) => student.only(ExpertConfig::High)?,
        Some(ExpertName::Low) => student.only(ExpertConfig::Low)?,
    };
    let own = if student.lora().is_some() { KindName::Lora } else { KindName::Folder };
    let path = &arguments.output;
    let kind = arguments.kind.unwrap_or(own);
    agrees(path, kind)?;
    let said = arguments.dialect.map(|dialect| match dialect {
        DialectName::Diffusers => Dialect::Diffusers,
        DialectName::Comfyui => Dialect::ComfyUi,
        DialectName::Kohya => Dialect::Kohya,
    });
    let student = match arguments.dtype.filter(|_| kind != KindName::Gguf) {
        None => student,
        Some(dtype) => student.in_type(dtype.in_safetensors()?),
    };
    let dialect = said.unwrap_or(Dialect::Diffusers);
    let paths = match kind {
        KindName::Folder => vec![path.clone()],
        KindName::File | KindName::Lora | KindName::Gguf => student.files(path),
    };
    let is_stdout = aside::is_stdout(path);
    if is_stdout && (kind == KindName::Folder || paths.len() > 1) {
        let reason =
            "one file can go to the standard output; add --as file (and --expert), or give a name";
        return Err(Failure::Refused(format!("--output -: {reason}")));
    }
    writing.expect(paths.clone());
    match kind {
        KindName::Gguf => {
            let dtype = arguments.dtype.unwrap_or(Dtype::Q8_0);
            student.write_gguf(path, said, dtype.in_gguf())?;
        }
        KindName::Folder if dialect != Dialect::Diffusers => {
            return Err(Failure::refused(
                "--dialect: a diffusers folder has diffusers' names; leave it out, or add --as file",
            ));
        }
        KindName::Folder => student.write_folder(path)?,
        KindName::File => student.write_file(path, dialect)?,
        KindName::Lora => student.write_lora(path, dialect)?,
    }
    // On the standard output is the file itself.
    for path in paths.into_iter().filter(|_| !is_stdout) {
        writing.wrote(&path);
        crate::say(format_args!("{}\n", path.display()))?;
    }
    Ok(())
}
