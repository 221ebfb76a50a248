//! `moviola preprocess`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use burn::tensor::{DType, FloatDType, TensorData};
use clap::ValueEnum;
use comm::Group;
use data::aside::UNFINISHED;
use data::preprocess::{
    Buckets, DoctorReport, Encode, Media, MediaFiles, Pieces, Planned, Skipped, Summary,
    preprocess, preprocess_texts, text_id,
};
use data::store::{Bucket, Dataset, Fingerprint, LATENTS, Writer};
use engine::{EncoderSetup, FolderEncoder, machine_memory};
use folder::ModelFolder;

use crate::clips::{self, Clips};
use crate::crew::{self, Led};
use crate::failure::{Failure, Outcome};
use crate::launch::Process;
use crate::signals::{INTERRUPTED, Looking};
use crate::voice::{Voice, bytes};
use crate::{device, hub, layout, signals, threads};

/// Encode clips and captions for training.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// The model whose encoders are used: a diffusers folder, or a hub id `org/name[@revision]`
    #[arg(long, value_name = "DIR|ORG/NAME")]
    model: String,
    #[command(flatten)]
    clips: Clips,
    /// The folder of the dataset. One that is there already goes on: clips that have not changed are
    /// kept, those that are no longer listed are removed
    #[arg(long, value_name = "DIR")]
    output: PathBuf,
    /// --data is a file of captions, one a line, or a table with the column `caption`, and there are no clips:
    /// for distillation, whose student makes its own. --bucket is their size
    #[arg(long)]
    texts: bool,
    /// Encode clips of any size, even where this machine seems to have too little memory for them
    #[arg(long)]
    force: bool,
    /// Write into a dataset of which nothing is listed any more: all that is there is removed
    #[arg(long)]
    overwrite: bool,
    /// The type that latents and embeddings are stored in; bf16 takes half the space
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads, of each rank if there are several [default: one per core, shared by the ranks]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Ranks, as threads of this process, that encode at the same time; the dataset is the same
    /// [default: as many as processes were started, or 1]
    #[arg(long, value_name = "N")]
    ranks: Option<usize>,
    /// How many seconds a rank waits for another
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = crate::layout::seconds)]
    timeout: u64,
}

const EXAMPLES: &str = "Examples:
  moviola preprocess --model Wan-AI/Wan2.1-T2V-1.3B-Diffusers --data clips --output dataset \\
      --bucket 832x480x81 --bucket 480x832x81
  moviola preprocess --model goldens/pixart-tiny --data pictures.csv --output dataset \\
      --bucket 64x64x1
  mpirun -n 4 moviola preprocess --model models/wan --data clips --output dataset

Ctrl-C stops after the clip at hand; the same command goes on from there.";

/// A shard is written, and what it holds safe, when it has so many bytes.
pub(crate) const SHARD_BYTES: usize = 64 << 20;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dtype {
    F32,
    Bf16,
}

/// Checks everything, then encodes what the dataset does not have yet.
///
/// # Errors
/// Something is wrong with the arguments, the model or the dataset, or nothing can be encoded.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome<ExitCode> {
    let ranks = layout::ranks_asked(arguments.ranks)?.unwrap_or(1);
    if ranks == 1 {
        return threads::within(arguments.threads, || work(arguments, &Group::solo(), voice));
    }
    let deadline = Duration::from_secs(arguments.timeout);
    layout::run_ranks(ranks, arguments.threads, deadline, |group| {
        let voice = if group.rank() == 0 { voice } else { voice.in_the_background() };
        work(arguments, &group, voice)
    })
}

/// Every rank looks at what there is; the first one writes, and the others encode what it asks for.
fn work(arguments: &Arguments, group: &Group, voice: Voice) -> Outcome<ExitCode> {
    if group.rank() > 0 && Process::of_job().is_some() {
        // A launcher tells every process of a signal; the first one decides when to stop.
        signals::watch(voice)?;
    }
    let device = device::parse(&arguments.device)?;
    let dtype = match arguments.dtype {
        Dtype::F32 => FloatDType::F32,
        Dtype::Bf16 => FloatDType::BF16,
    };
    let model = folder::locate(&arguments.model, &hub::from_environment(voice))?;
    if arguments.texts {
        serves_texts(&model)?;
    }
    // The first rank alone writes; before that an interruption has nothing to keep.
    let looking = (group.rank() == 0).then(|| Looking::watch(voice)).transpose()?;
    let opening = (group.size() > 1).then(|| group.busy("looking at clips", crew::LONGEST));
    let mut encoder = FolderEncoder::open(&model, &EncoderSetup { device, dtype })?;
    if arguments.texts {
        drop(opening);
        return texts(arguments, (encoder, dtype), group, (looking, voice));
    }
    let listed = arguments.clips.list(&MediaFiles, voice)?;
    let sizes = encoder.sizes();
    let buckets = arguments.clips.buckets(Some(sizes), &listed)?;
    if let Some(room) = machine_memory().filter(|_| !arguments.force) {
        fits(&buckets, sizes.rules.size_step, room)?;
    }
    let report = arguments.clips.examine(&listed, &buckets, sizes.hears);
    let silent = clips::silent(&report).filter(|_| sizes.hears);
    let DoctorReport { planned, skipped } = report;
    drop(opening);
    if group.rank() > 0 {
        return arguments.clips.at_rate(&MediaFiles, |media| {
            let mut pieces = Pieces::of(media);
            crew::help(group, &planned, |clip| {
                data::preprocess::tensors_of(clip, &mut pieces, &mut encoder).ok()?.ok()
            })
        });
    }
    check_output(&arguments.output, &encoder, dtype, false)?;
    listed.tell();
    tell(&skipped, voice);
    silent.iter().for_each(|told| voice.warn(told));
    if planned.is_empty() {
        return Err(Failure::Refused(format!(
            "none of the {} clips of {} can be encoded; nothing was written",
            skipped.len(),
            arguments.clips.data.display()
        )));
    }
    arguments.spares(planned.iter().map(|own| own.id.clone()).collect())?;
    let mut led = Led::new(encoder, group, &planned)?;
    let stop = looking.map_or_else(Default::default, Looking::over);
    let summary = arguments.clips.at_rate(&MediaFiles, |media| {
        encode(&planned, (media, voice), &mut led, (&arguments.output, &stop))
    })?;
    led.finish()?;
    tell(&summary.failed, voice);
    finish(&arguments.output, &summary, skipped.len())
}

/// Bytes of a pixel of a clip that is encoded: three channels in f32, as they are read, as a tensor, scaled, and
/// as what the encoder takes.
const CLIP_BYTES: u64 = 4 * 3 * 4;

/// Bytes of a pixel of the frames that an encoder looks at together: two tensors of its first layer in f32, with as
/// many channels as published ones have. It is less than they take, so that nothing is refused that would do.
const FRAME_BYTES: u64 = 2 * 128 * 4;

/// Sizes that are tried in search of one that fits: so many parts of the whole.
const PARTS: usize = 32;

/// Refuses buckets whose clips cannot be encoded in so many bytes.
fn fits(buckets: &Buckets, step: usize, room: u64) -> Outcome {
    let needs = |own: &Bucket| {
        let pixels = own.height as u64 * own.width as u64;
        pixels.saturating_mul(own.frames as u64 * CLIP_BYTES + FRAME_BYTES)
    };
    let Some(large) = buckets.list().iter().find(|own| needs(own) > room) else { return Ok(()) };
    let side = |whole: usize, part: usize| (whole * part / PARTS / step * step).max(step);
    let mut smaller = (1..PARTS).rev().map(|part| Bucket {
        height: side(large.height, part),
        width: side(large.width, part),
        ..*large
    });
    let fitting = smaller.find(|own| needs(own) <= room);
    let fitting = fitting.map_or_else(String::new, |own| format!("; {own} would fit"));
    Err(Failure::Refused(format!(
        "--bucket {large}: a clip of that size takes at least {} to encode, and this machine has {}{fitting}; give \
         a smaller --bucket, or add --force to try",
        bytes(needs(large)),
        bytes(room)
    )))
}

/// Refuses texts alone for a model that is shown pictures of each clip: nobody could be trained on them.
fn serves_texts(model: &Path) -> Outcome {
    let description =
        families::describe(&ModelFolder::open(model)?).map_err(engine::Error::from)?;
    if !description.shows_channels() && description.image_tokens.is_none() {
        return Ok(());
    }
    Err(Failure::Refused(format!(
        "--texts: {} is shown the first picture of every clip, and texts alone have none, so that no run could be \
         trained on them; leave --texts out and give clips, or take a model of text to video",
        model.display()
    )))
}

/// Encodes captions alone.
fn texts(
    arguments: &Arguments,
    (mut encoder, dtype): (FolderEncoder, FloatDType),
    group: &Group,
    (looking, voice): (Option<Looking>, Voice),
) -> Outcome<ExitCode> {
    if arguments.force {
        return Err(Failure::refused(
            "--texts: there are no clips whose size --force is about; leave it out",
        ));
    }
    let (captions, bucket, fps) = arguments.clips.captions(encoder.sizes())?;
    if group.rank() > 0 {
        return crew::help(group, &captions, |caption| encoder.text(caption).ok());
    }
    check_output(&arguments.output, &encoder, dtype, true)?;
    arguments.spares(captions.iter().map(|own| text_id(own, (bucket, fps))).collect())?;
    let stop = looking.map_or_else(Default::default, Looking::over);
    let mut writer = Writer::open(&arguments.output, &encoder.fingerprint(), SHARD_BYTES)?;
    if !writer.has_null_text() {
        writer.put_null_text(&encoder.null_text()?)?;
    }
    let mut led = Led::new(encoder, group, &captions)?;
    let mut meter = voice.meter("encode", captions.len() as u64);
    let mut progress = |at: data::preprocess::Progress<'_>| meter.reach(at.done as u64, at.id);
    let place = (bucket, fps);
    let done = preprocess_texts(&captions, place, &mut led, &mut writer, &mut progress, &stop);
    meter.finish();
    drop(writer);
    let done = done?;
    led.finish()?;
    finish(&arguments.output, &done, 0)
}

/// Encodes into the dataset and shows how far it is.
fn encode(
    planned: &[Planned],
    (media, voice): (&dyn Media, Voice),
    encoder: &mut Led,
    (output, stop): (&Path, &AtomicBool),
) -> Outcome<Summary> {
    let mut writer = Writer::open(output, &encoder.fingerprint(), SHARD_BYTES)?;
    if !writer.has_null_text() {
        writer.put_null_text(&encoder.null_text()?)?;
    }
    let mut meter = voice.meter("encode", planned.len() as u64);
    let mut progress = |progress: data::preprocess::Progress<'_>| {
        meter.reach(progress.done as u64, progress.id);
    };
    let summary = preprocess(planned, media, encoder, &mut writer, &mut progress, stop);
    meter.finish();
    Ok(summary?)
}

/// Says which clips are left out, and why.
pub(crate) fn tell(skipped: &[Skipped], voice: Voice) {
    for Skipped { id, reason } in skipped {
        voice.warn(&format!("skipped {id}: {reason}"));
    }
}

/// Says what became of the clips.
pub(crate) fn finish(output: &Path, summary: &Summary, skipped: usize) -> Outcome<ExitCode> {
    let Summary { written, kept, removed, failed, interrupted } = summary;
    if *interrupted {
        crate::say(format_args!(
            "interrupted: {written} clips were encoded and {kept} were there already; run the same \
             command again to go on\n"
        ))?;
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let samples = Dataset::open(output)?.len();
    crate::say(format_args!(
        "{}: {samples} samples ({written} encoded now, {kept} kept, {removed} removed), {} clips \
         skipped\n",
        output.display(),
        skipped + failed.len()
    ))?;
    Ok(ExitCode::SUCCESS)
}

impl Arguments {
    /// Refuses a dataset of which nothing would be left, unless that was asked for.
    fn spares(&self, wanted: BTreeSet<String>) -> Outcome {
        let dataset = match Dataset::open(&self.output) {
            Ok(dataset) if !self.overwrite => dataset,
            _ => return Ok(()),
        };
        let stays = |at: usize| wanted.contains(&dataset.origin(at).id);
        if (0..dataset.len()).any(stays) {
            return Ok(());
        }
        Err(Failure::Refused(format!(
            "--output: {} holds {} samples, and none of them is of what {} lists, so that all would be removed; give \
             another folder, or add --overwrite to remove them",
            self.output.display(),
            dataset.len(),
            self.clips.data.display()
        )))
    }
}

/// Refuses a folder that holds something else, or a dataset of other encoders, of another type, or of clips where
/// captions alone are to come, and the other way round.
fn check_output(
    output: &Path,
    encoder: &FolderEncoder,
    dtype: FloatDType,
    is_of_texts: bool,
) -> Outcome {
    match Dataset::open(output) {
        Ok(dataset) => {
            dataset.check_encoders(&encoder.fingerprint())?;
            let holds_texts = dataset.holding(LATENTS) == 0;
            if holds_texts != is_of_texts {
                let (held, asked) = match holds_texts {
                    true => ("captions alone", "clips are asked for; add --texts"),
                    false => ("clips", "--texts asks for captions alone; leave it out"),
                };
                return Err(Failure::Refused(format!(
                    "--output: the dataset {} holds {held}, and {asked}, or give another folder",
                    output.display()
                )));
            }
            let tensors = dataset.read(0)?.tensors;
            let asked = DType::from(dtype);
            let mut floats = tensors.values().map(TensorData::dtype).filter(|own| own.is_float());
            match floats.find(|made| *made != asked) {
                Some(made) => Err(Failure::Refused(format!(
                    "the dataset {} holds {}, but --dtype asks for {}; choose the same type, or \
                     preprocess into a new folder",
                    output.display(),
                    made.name(),
                    asked.name()
                ))),
                None => Ok(()),
            }
        }
        Err(data::Error::EmptyDataset { .. }) => Ok(()),
        Err(data::Error::NoDataset { .. }) => no_other_files(output),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a folder that holds something else, or a dataset of other encoders.
pub(crate) fn check_encoders(output: &Path, encoders: &Fingerprint) -> Outcome {
    match Dataset::open(output) {
        Ok(dataset) => Ok(dataset.check_encoders(encoders)?),
        Err(data::Error::EmptyDataset { .. }) => Ok(()),
        Err(data::Error::NoDataset { .. }) => no_other_files(output),
        Err(error) => Err(error.into()),
    }
}

/// Refuses a folder with files that no dataset has.
fn no_other_files(output: &Path) -> Outcome {
    const OURS: [&str; 2] = ["shards", "writer.lock"];
    let Ok(entries) = fs::read_dir(output) else { return Ok(()) };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_ours = |name: &str| OURS.contains(&name) || name.ends_with(UNFINISHED);
    match names.into_iter().find(|name| !is_ours(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::Refused(format!(
            "{} is no dataset: it holds `{name}`; choose a new or an empty folder",
            output.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use data::preprocess::{Buckets, Rules};

    use super::fits;

    /// What is beyond memory is refused with the largest size that is not, and that one passes.
    #[test]
    fn buckets_beyond_memory_are_refused() {
        let buckets =
            |text: &str| Buckets::new(vec![text.parse().unwrap()], Rules::default()).unwrap();
        let own = buckets("832x480x81");
        assert!(fits(&own, 16, 8 << 30).is_ok(), "what people encode on a small machine");
        let refused = fits(&buckets("16384x16384x5"), 16, 8 << 30).err().unwrap().to_string();
        let named = "--bucket 16384x16384x5: a clip of that size takes at least 316.0 GiB";
        for part in [named, "this machine has 8.0 GiB; 2560x2560x5 would fit", "--force"] {
            assert!(refused.contains(part), "no `{part}` in: {refused}");
        }
        assert!(fits(&buckets("2560x2560x5"), 16, 8 << 30).is_ok());
        let none = fits(&own, 16, 1 << 10).err().unwrap().to_string();
        assert!(!none.contains("would fit"), "{none}");
    }
}
