//! What `ffprobe` says of a video before any of its frames is decoded.

use super::child::{Program, SILENCE};
use super::ffmpeg::{ALLOWED, FFMPEG, decode, input, last_line, not_started};
use super::{FrameRate, Result, picture};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const FFPROBE: &str = "ffprobe";

/// No answer about one stream is longer.
const LONGEST_ANSWER: u64 = 1 << 20;

/// The first video and no other stream.
const FIRST_VIDEO: [&str; 2] = ["-select_streams", "v:0"];

const VIDEO: &str = "stream=width,height,avg_frame_rate,r_frame_rate,nb_frames,nb_read_packets\
                       :stream_side_data=rotation:stream_tags=rotate";

/// The first video of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    /// Frames per second, on average.
    pub rate: FrameRate,
    /// Height as it is shown.
    pub height: usize,
    /// Width as it is shown.
    pub width: usize,
    /// How many frames there are, if the file says so.
    pub(super) frames: Option<usize>,
}

impl Stream {
    /// Asks what the file says of itself.
    ///
    /// # Errors
    ///
    /// If there is no such file, it has no video, or ffprobe is not installed.
    pub fn probe(path: &Path) -> Result<Stream> {
        let found = first(path, &[])?;
        let stream = found.ok_or_else(|| decode(path, "it has no video stream"))?;
        let stream = stream.promote().ok_or_else(|| decode(path, "its video has no frame rate"))?;
        picture::check_size(stream.width as u64, stream.height as u64)
            .map_err(|reason| decode(path, &reason))?;
        Ok(stream)
    }

    /// How many frames there are. Where the file does not say so, its packets are counted, which
    /// reads all of it but decodes nothing.
    ///
    /// # Errors
    ///
    /// If the file is damaged.
    pub(crate) fn count(&self, path: &Path) -> Result<usize> {
        if let Some(frames) = self.frames {
            return Ok(frames);
        }
        let counted = first(path, &["-count_packets"])?.and_then(|stream| stream.nb_read_packets);
        let counted = counted.and_then(|text| text.parse().ok());
        counted.ok_or_else(|| decode(path, "its frames cannot be counted"))
    }
}

/// How many frames a video shows, whatever it says of itself: its packets but for those that its edit list leaves out.
/// All of the file is read, and nothing is decoded.
///
/// # Errors
///
/// If there is no such file, it is no video, or it has more frames than are read.
pub fn shown_frames(path: &Path) -> Result<usize> {
    let asked = [&FIRST_VIDEO[..], &["-show_entries", "packet=flags", "-of", "csv=p=0"]].concat();
    let said = said(path, &asked, 10 * SILENCE)?;
    let said = String::from_utf8_lossy(&said);
    let is_shown = |line: &&str| !line.trim().is_empty() && !line.contains('D');
    match said.lines().filter(is_shown).count() {
        0 => Err(decode(path, "it has no frames")),
        count => Ok(count),
    }
}

/// The first program that reading videos needs and that cannot be started, if there is one.
pub fn missing_reader() -> Option<&'static str> {
    let starts = |program: &str| {
        // It is killed as soon as it has started.
        Program::start(Command::new(program).arg("-version"), SILENCE).is_ok()
    };
    [FFPROBE, FFMPEG].into_iter().find(|program| !starts(program))
}

/// The first video stream of a file, if it has one.
fn first(path: &Path, more: &[&str]) -> Result<Option<RawStream>> {
    let asked = [&FIRST_VIDEO[..], more].concat();
    // Counting reads all of a file before it says anything.
    let silence = if more.is_empty() { SILENCE } else { 10 * SILENCE };
    Ok(ask(path, (&asked, VIDEO), silence)?.into_iter().next())
}

/// What a file says of its streams: of which ones, and which entries.
///
/// # Errors
/// There is no such file, or ffprobe cannot read it or is not installed.
pub(super) fn ask<T: DeserializeOwned>(
    path: &Path,
    (more, entries): (&[&str], &str),
    silence: Duration,
) -> Result<Vec<T>> {
    let said = said(path, &[more, &["-show_entries", entries, "-of", "json"]].concat(), silence)?;
    let found: Found<T> = serde_json::from_slice(&said)
        .map_err(|err| decode(path, &format!("ffprobe's answer is not readable: {err}")))?;
    Ok(found.streams)
}

/// What ffprobe answers to a question about a file.
fn said(path: &Path, question: &[&str], silence: Duration) -> Result<Vec<u8>> {
    let file = kernels::open_file(path);
    file.map_err(|source| super::Error::Read { path: path.to_owned(), source })?;
    let mut command = Command::new(FFPROBE);
    command.args(["-v", "error"]).args(ALLOWED).args(question).arg(input(path));
    let started = Program::start(&mut command, silence);
    let (mut program, answer) = started.map_err(|source| not_started(path, FFPROBE, source))?;
    let failed = |source| super::Error::Read { path: path.to_owned(), source };
    let mut said = Vec::new();
    answer.take(LONGEST_ANSWER + 1).read_to_end(&mut said).map_err(failed)?;
    if said.len() as u64 > LONGEST_ANSWER {
        return Err(decode(path, "ffprobe's answer does not end"));
    }
    let (status, complaints) = program.end().map_err(failed)?;
    match status.success() {
        true => Ok(said),
        false => Err(decode(path, last_line(&complaints))),
    }
}

#[derive(Deserialize)]
struct Found<T> {
    #[serde(default = "Vec::new")]
    streams: Vec<T>,
}

/// A stream as ffprobe writes it; what it does not know is missing or `N/A`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawStream {
    width: usize,
    height: usize,
    avg_frame_rate: String,
    r_frame_rate: String,
    nb_frames: Option<String>,
    nb_read_packets: Option<String>,
    side_data_list: Vec<SideData>,
    tags: Tags,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SideData {
    rotation: Option<f64>,
}

/// Where ffmpeg before 5 keeps the rotation.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Tags {
    rotate: Option<String>,
}

impl RawStream {
    fn promote(self) -> Option<Stream> {
        // Some containers do not know the average.
        let rate = self.avg_frame_rate.parse().or_else(|_| self.r_frame_rate.parse()).ok()?;
        let rotation = self.side_data_list.iter().find_map(|data| data.rotation);
        let rotation = rotation.or_else(|| self.tags.rotate?.parse().ok()).unwrap_or(0.0);
        let is_sideways = (rotation / 90.0).round().rem_euclid(2.0) == 1.0;
        let (height, width) = match is_sideways {
            true => (self.width, self.height),
            false => (self.height, self.width),
        };
        let frames = self.nb_frames.and_then(|text| text.parse().ok()).filter(|&frames| frames > 0);
        Some(Stream { rate, height, width, frames })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(json: &str) -> Option<Stream> {
        serde_json::from_str::<RawStream>(json).expect("a stream").promote()
    }

    #[test]
    fn sizes_are_as_shown_and_rates_are_averages() {
        let base = r#""width": 64, "height": 32, "r_frame_rate": "25/1""#;
        let cases = [
            (r#""avg_frame_rate": "8/1", "nb_frames": "3""#, (32, 64), 8.0, Some(3)),
            (r#""avg_frame_rate": "0/0", "nb_frames": "N/A""#, (32, 64), 25.0, None),
            (r#""side_data_list": [{}, {"rotation": -90}]"#, (64, 32), 25.0, None),
            (r#""side_data_list": [{"rotation": 180}]"#, (32, 64), 25.0, None),
            (r#""tags": {"rotate": "270"}, "nb_frames": "0""#, (64, 32), 25.0, None),
        ];
        for (more, size, rate, frames) in cases {
            let found = stream(&format!("{{{base}, {more}}}")).expect("a rate");
            assert_eq!((found.height, found.width), size, "{more}");
            assert_eq!((found.rate.per_second(), found.frames), (rate, frames), "{more}");
        }
        assert_eq!(stream(r#"{"width": 4, "height": 4}"#), None);
    }
}
