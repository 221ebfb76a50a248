//! `moviola doctor`.

use std::fmt::Write;
use std::process::ExitCode;

use data::preprocess::{Decoded, DoctorReport, Media, MediaFiles};
use engine::ClipSizes;

use crate::clips::Clips;
use crate::failure::Outcome;
use crate::hub;

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
pub(crate) fn run(arguments: &Arguments) -> Outcome<ExitCode> {
    let sizes = match &arguments.model {
        Some(model) => Some(ClipSizes::of(&folder::locate(model, &hub::from_environment())?)?),
        None => None,
    };
    let buckets = arguments.clips.buckets(sizes)?;
    let media: &dyn Media = if arguments.decode { &Decoded(&MediaFiles) } else { &MediaFiles };
    let report = arguments.clips.examine(media, &buckets)?;
    crate::say(format_args!("{}", describe(&report)))?;
    Ok(if report.skipped.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(SKIPPED) })
}

fn describe(report: &DoctorReport) -> String {
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
    text
}
