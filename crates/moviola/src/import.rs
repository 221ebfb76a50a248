//! `moviola import`.

use std::path::PathBuf;
use std::process::ExitCode;

use burn::tensor::{Device, FloatDType};
use data::import::Preprocessed;
use data::preprocess::{Encode, Progress};
use data::store::Writer;
use engine::{EncoderSetup, FolderEncoder};

use crate::failure::{Failure, Outcome};
use crate::preprocess::{SHARD_BYTES, check_encoders, finish, tell};
use crate::voice::Voice;
use crate::{hub, signals};

/// Take over a dataset that LTX-2's trainer has preprocessed.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The folder with `latents`, `conditions` and so on, of files that torch.save wrote. Nothing of them is run
    folder: PathBuf,
    /// The model whose encoders made it: a diffusers folder, or a hub id `org/name[@revision]`. Files do not say which
    /// it was, so this is believed
    #[arg(long, value_name = "DIR|ORG/NAME")]
    model: String,
    /// The folder of the dataset. One that is there already goes on
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
}

const EXAMPLES: &str = "Examples:
  moviola import clips/.precomputed --model path/to/model --output dataset
  moviola convert-recipe config.yaml --model path/to/model --data dataset --output recipe.yaml";

/// Checks everything, then takes over what the dataset does not have yet.
///
/// # Errors
/// Something is wrong with the arguments, the model or the dataset, or nothing can be taken over.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome<ExitCode> {
    let found = Preprocessed::open(&arguments.folder)?;
    let model = folder::locate(&arguments.model, &hub::from_environment(voice))?;
    let setup = EncoderSetup { device: Device::flex(), dtype: FloatDType::F32 };
    let mut encoder = FolderEncoder::open(&model, &setup)?;
    check_encoders(&arguments.output, &encoder.fingerprint())?;
    for name in &found.left_out {
        voice.warn(&format!("left out `{name}`: a dataset has no place for it"));
    }
    let mut writer = Writer::open(&arguments.output, &encoder.fingerprint(), SHARD_BYTES)?;
    let stop = signals::watch(voice)?;
    let mut meter = voice.meter("import", found.len() as u64);
    let mut progress = |at: Progress<'_>| meter.reach(at.done as u64, at.id);
    let summary = found.import(&mut encoder, &mut writer, &mut progress, &stop);
    meter.finish();
    drop(writer);
    let summary = summary?;
    tell(&summary.failed, voice);
    if summary.written + summary.kept == 0 && !summary.interrupted {
        return Err(Failure::Refused(format!(
            "none of the {} samples of {} can be taken over",
            found.len(),
            found.root().display()
        )));
    }
    finish(&arguments.output, &summary, 0)
}
