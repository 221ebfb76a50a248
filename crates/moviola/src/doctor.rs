//! `moviola doctor`.

use std::fmt::Write;
use std::process::ExitCode;

use data::preprocess::{Decoded, DoctorReport, Media, MediaFiles, Planned, Probe};
use engine::ClipSizes;

use crate::clips::{self, Clips};
use crate::failure::{Failure, Outcome};
use crate::hub;
use crate::voice::Voice;

/// Tell which clips of a dataset would be skipped, and why.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(flatten)]
    clips: Clips,
    /// The model that the clips are for: a diffusers folder, or a hub id. Buckets must then suit it
    #[arg(long, value_name = "DIR|ORG/NAME")]
    model: Option<String>,
    /// Read every clip to its end: slow, but finds those that are damaged further on
    #[arg(long)]
    decode: bool,
    /// Propose buckets for these clips, for `--bucket`
    #[arg(long)]
    suggest_buckets: bool,
}

const EXAMPLES: &str = "Examples:
  moviola doctor --data clips --bucket 832x480x81 --bucket 480x832x81
  moviola doctor --data clips.csv --model Wan-AI/Wan2.1-T2V-1.3B-Diffusers --decode

The exit code is 0 if nothing would be skipped, 1 if something would, and 2 for bad arguments.";

/// The exit code where something would be skipped.
const SKIPPED: u8 = 1;

/// Looks at every clip and says what it found.
///
/// # Errors
/// The arguments are wrong; clips that are wrong are what it finds.
pub(crate) fn run(arguments: &Arguments, voice: Voice) -> Outcome<ExitCode> {
    let sizes = match &arguments.model {
        Some(model) => Some(ClipSizes::of(&folder::locate(model, &hub::from_environment(voice))?)?),
        None => None,
    };
    let media: &dyn Media = if arguments.decode { &Decoded(&MediaFiles) } else { &MediaFiles };
    let listed = arguments.clips.list(media, voice)?;
    listed.tell();
    if arguments.suggest_buckets {
        let suggested = arguments.clips.suggested(sizes, &listed)?;
        if suggested.is_empty() {
            let reason = "no clip can be read and is large enough for any bucket";
            return Err(Failure::Refused(format!("--suggest-buckets: {reason}")));
        }
        let flags: Vec<String> = suggested.iter().map(|own| format!("--bucket {own}")).collect();
        crate::say(format_args!("suggested: {}\n", flags.join(" ")))?;
    }
    let buckets = match arguments.suggest_buckets {
        true => arguments.clips.or_suggested(sizes, &listed)?,
        false => arguments.clips.buckets(sizes, &listed)?,
    };
    let hears = sizes.is_some_and(|sizes| sizes.hears);
    let report = arguments.clips.examine(&listed, &buckets, hears);
    crate::say(format_args!("{}", describe(&report, voice)))?;
    if let Some(silent) = clips::silent(&report).filter(|_| hears) {
        crate::say(format_args!("{silent}\n"))?;
    }
    let rates = rates(&report, arguments.clips.fps(), sizes.and_then(|sizes| sizes.frame_rate));
    crate::say(format_args!("{rates}"))?;
    Ok(if report.skipped.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(SKIPPED) })
}

fn describe(report: &DoctorReport, voice: Voice) -> String {
    let mut text = String::new();
    for skipped in &report.skipped {
        let _ = writeln!(text, "skipped {}: {}", skipped.id, skipped.reason);
    }
    let (planned, skipped) = (report.planned.len(), report.skipped.len());
    let _ = writeln!(text, "{planned} of {} clips would be encoded", planned + skipped);
    for (bucket, count) in report.buckets() {
        let _ = writeln!(text, "  {:<16} {count}", bucket.to_string());
    }
    for (bucket, count) in report.reference_buckets() {
        let _ = writeln!(text, "  {:<16} {count} (references)", bucket.to_string());
    }
    text.push_str(&crops(report, voice));
    text
}

/// What each clip loses; of many only those that lose most, unless more is asked for.
fn crops(report: &DoctorReport, voice: Voice) -> String {
    const MANY: usize = 40;
    let mut clips: Vec<&Planned> = report.planned.iter().collect();
    let hidden = match clips.len() > MANY && !voice.is_verbose() {
        true => {
            clips.sort_by(|a, b| b.cropped().total_cmp(&a.cropped()));
            clips.split_off(MANY).len()
        }
        false => 0,
    };
    let mut text = String::new();
    for clip in clips {
        let Probe { frames, height, width, fps } = clip.source;
        let (used, rate) = (clip.bucket.frames, (fps * 1e3).round() / 1e3);
        let time = match (frames, clip.first) {
            (1, _) => String::new(),
            (_, 0) => format!(", the first {used} of its {frames} frames at {rate}"),
            (_, first) => format!(", {used} of its {frames} frames at {rate}, from {first} on"),
        };
        let _ = writeln!(
            text,
            "  {}: {width}x{height} to {}, {:.1} % cropped{time}",
            clip.id,
            clip.bucket,
            100.0 * clip.cropped()
        );
    }
    if hidden > 0 {
        let _ = writeln!(text, "  and {hidden} that lose less; --verbose lists all");
    }
    text
}

/// Rates that are mixed, or others than the model's.
fn rates(report: &DoctorReport, asked: Option<f64>, model: Option<f64>) -> String {
    let rates = report.rates();
    let list = rates.iter().map(|(rate, count)| format!("{rate} a second ({count})"));
    let list = list.collect::<Vec<_>>().join(", ");
    let way = |fps: f64| format!("add --fps {fps} to bring all to one rate");
    let slowest = rates.keys().next().copied().unwrap_or_default() as f64;
    match (rates.len(), asked, model) {
        (0, _, _) | (_, Some(_), _) => String::new(),
        (1, None, Some(model)) if slowest != model.round() => format!(
            "frame rates: {list}, but the model makes {model} a second: clips will move at another \
             speed; {}\n",
            way(model)
        ),
        (1, _, _) => String::new(),
        (_, None, model) => {
            format!("frame rates are mixed: {list}; {}\n", way(model.unwrap_or(slowest)))
        }
    }
}
