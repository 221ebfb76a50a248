//! The sound in a video, decoded by the program `ffmpeg` at the rate and with the channels that it has.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use super::child::{Answer, Program, SILENCE};
use super::ffmpeg::{ALLOWED, FFMPEG, decode, input, last_line, not_started};
use super::stream::ask;
use super::{Error, Result};

const ENTRIES: &str = "stream=codec_type,sample_rate,channels,start_time";

/// More is no sound that anyone made.
const MOST_RATE: u32 = 1 << 20;
const MOST_CHANNELS: usize = 64;

/// Bytes of a sample.
const WIDE: usize = 4;

/// Samples that are handed on at once, of all channels.
const PIECE: usize = 1 << 16;

/// The first sound of a video.
#[derive(Clone, Debug, PartialEq)]
pub struct SoundTrack {
    /// Samples per second.
    pub sample_rate: u32,
    /// How many samples there are for every moment.
    pub channels: usize,
    /// Seconds from the first frame of the video to the first sample; below 0 if the sound comes first.
    pub delay: f64,
}

impl SoundTrack {
    /// Asks what a file says of its sound; none if it has no sound.
    ///
    /// # Errors
    ///
    /// If there is no such file, it cannot be read, or ffprobe is not installed.
    pub fn probe(path: &Path) -> Result<Option<SoundTrack>> {
        let streams: Vec<Said> = ask(path, (&[], ENTRIES), SILENCE)?;
        let first = |kind: &str| streams.iter().find(|own| own.codec_type == kind);
        let Some(sound) = first("audio") else { return Ok(None) };
        let start = |own: Option<&Said>| own.and_then(Said::start).unwrap_or(0.0);
        let rate = sound.sample_rate.parse().ok().filter(|rate| (1..=MOST_RATE).contains(rate));
        match rate.filter(|_| (1..=MOST_CHANNELS).contains(&sound.channels)) {
            Some(sample_rate) => {
                let delay = start(Some(sound)) - start(first("video"));
                Ok(Some(SoundTrack { sample_rate, channels: sound.channels, delay }))
            }
            None => {
                let (rate, channels) = (&sound.sample_rate, sound.channels);
                Err(decode(path, &format!("its sound has {channels} channels at {rate} a second")))
            }
        }
    }

    /// Its samples, those of one moment beside each other, some moments at a time.
    ///
    /// # Errors
    ///
    /// If ffmpeg does not start.
    pub fn samples(&self, path: &Path) -> Result<impl Iterator<Item = Result<Vec<f32>>> + use<>> {
        let mut command = Command::new(FFMPEG);
        command.args(["-nostdin", "-v", "error"]).args(ALLOWED).arg("-i").arg(input(path));
        command.args(["-map", "0:a:0", "-f", "f32le", "-c:a", "pcm_f32le"]);
        // A track may change within a file; what was said of it holds.
        command.args(["-ar", &self.sample_rate.to_string(), "-ac", &self.channels.to_string()]);
        let started = Program::start(command.arg("pipe:1"), SILENCE);
        let (program, answer) = started.map_err(|source| not_started(path, FFMPEG, source))?;
        let (path, moment) = (path.to_owned(), WIDE * self.channels);
        Ok(Samples { path, program, answer, moment, is_over: false })
    }
}

/// A stream as ffprobe writes it; what it does not know is missing or `N/A`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    codec_type: String,
    sample_rate: String,
    channels: usize,
    start_time: String,
}

impl Said {
    fn start(&self) -> Option<f64> {
        self.start_time.parse().ok().filter(|own: &f64| own.is_finite())
    }
}

struct Samples {
    path: PathBuf,
    program: Program,
    answer: Answer,
    /// Bytes of one moment.
    moment: usize,
    is_over: bool,
}

impl Samples {
    /// The next whole moments; none at the end.
    fn read(&mut self) -> Result<Option<Vec<f32>>> {
        let failed = |source| Error::Read { path: self.path.clone(), source };
        let mut bytes = Vec::new();
        let most = (PIECE * WIDE).next_multiple_of(self.moment) as u64;
        self.answer.by_ref().take(most).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.is_empty() {
            let (status, complaints) = self.program.end().map_err(failed)?;
            return match status.success() {
                true => Ok(None),
                false => Err(decode(&self.path, last_line(&complaints))),
            };
        }
        let whole = bytes.len() / self.moment * self.moment;
        let samples = bytes[..whole].chunks_exact(WIDE);
        let samples = samples.map(|own| f32::from_le_bytes([own[0], own[1], own[2], own[3]]));
        // What is not a number is silence; a decoder that is given damage makes such.
        Ok(Some(samples.map(|own| if own.is_finite() { own } else { 0.0 }).collect()))
    }
}

impl Iterator for Samples {
    type Item = Result<Vec<f32>>;

    fn next(&mut self) -> Option<Result<Vec<f32>>> {
        if self.is_over {
            return None;
        }
        let read = self.read().transpose();
        self.is_over = !matches!(read, Some(Ok(_)));
        read
    }
}
