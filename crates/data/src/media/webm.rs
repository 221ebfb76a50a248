//! WebM by the program `ffmpeg`: no maintained crate encodes VP9 without a library of the system.
//!
//! Frames go to ffmpeg through a pipe. It writes a file of its own, since a WebM without seeking has
//! neither a duration nor an index, and what it wrote is taken over when it has ended well. That file stands beside
//! the target, as everything does that is not finished.

use super::ffmpeg::{FFMPEG, last_line};
use super::write::Sink;
use super::{Error, Frame, FrameRate, Place, Result, Waveform, begin, failure};
use crate::aside::AsideFile;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use tempfile::NamedTempFile;

/// How coarsely frames are quantised, of 63. Hardly anyone sees a difference at 18.
const QUALITY: &str = "18";

/// Checks that WebM can be written here.
///
/// # Errors
/// The program that does it is not installed.
pub fn check_webm(path: &Path) -> Result<()> {
    let mut command = Command::new(FFMPEG);
    command.arg("-version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop).map_err(|source| not_started(path, source))
}

/// Writes a WebM file.
pub(super) struct WebmSink {
    path: PathBuf,
    rate: FrameRate,
    file: AsideFile,
    encoder: Option<Encoder>,
    sound: Option<Waveform>,
}

/// ffmpeg at work.
struct Encoder {
    child: Child,
    frames: Option<ChildStdin>,
    /// Collects what ffmpeg complains about; without it a full pipe would stop ffmpeg.
    complaints: Option<JoinHandle<String>>,
    /// What it writes. Dropping it removes it.
    made: NamedTempFile,
}

impl WebmSink {
    pub(super) fn create(place: Place<'_>, rate: FrameRate) -> Result<WebmSink> {
        let path = place.0.to_owned();
        check_webm(&path)?;
        Ok(WebmSink { file: begin(place)?, path, rate, encoder: None, sound: None })
    }
}

impl Sink for WebmSink {
    fn push(&mut self, frame: &Frame) -> Result<()> {
        if self.encoder.is_none() {
            self.encoder = Some(Encoder::start((&self.path, &self.file), frame.size(), self.rate)?);
        }
        let Some(encoder) = &mut self.encoder else { return Ok(()) };
        let Some(frames) = &mut encoder.frames else { return Ok(()) };
        match frames.write_all(&frame.bytes()) {
            Ok(()) => Ok(()),
            // It has ended early, and says why.
            Err(source) => {
                Err(encoder.end(&self.path).err().unwrap_or(failure(&self.path)(source)))
            }
        }
    }

    fn sound(&mut self, sound: &Waveform) -> Result<()> {
        self.sound = Some(sound.clone());
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let failure = failure(&self.path);
        let Some(mut encoder) = self.encoder.take() else { return Ok(()) };
        encoder.end(&self.path)?;
        let with_sound = match &self.sound {
            Some(sound) => Some(add_sound((&self.path, &self.file), encoder.made.path(), sound)?),
            None => None,
        };
        let made = with_sound.as_ref().unwrap_or(&encoder.made);
        let mut made = made.reopen().map_err(&failure)?;
        io::copy(&mut made, &mut self.file).map_err(&failure)?;
        self.file.commit().map_err(failure)
    }
}

/// The same frames with a sound, as Opus. Opus has a rate of its own, 48000 samples a second, which ffmpeg brings the
/// sound to.
fn add_sound(
    (path, file): (&Path, &AsideFile),
    frames: &Path,
    sound: &Waveform,
) -> Result<NamedTempFile> {
    let failure = failure(path);
    let mut wave = file.named_scratch().map_err(&failure)?;
    sound.wave().and_then(|bytes| wave.write_all(&bytes)).map_err(&failure)?;
    let made = file.named_scratch().map_err(&failure)?;
    let mut command = Command::new(FFMPEG);
    command.args(["-nostdin", "-v", "error", "-i"]).arg(super::ffmpeg::input(frames));
    command.arg("-i").arg(super::ffmpeg::input(wave.path()));
    command.args(["-map", "0:v", "-map", "1:a", "-c:v", "copy", "-c:a", "libopus", "-b:a", "128k"]);
    command.args(["-fflags", "+bitexact", "-flags:a", "+bitexact", "-map_metadata", "-1"]);
    command.args(["-f", "webm", "-y"]).arg(super::ffmpeg::input(made.path()));
    let output = command.output().map_err(|source| not_started(path, source))?;
    match output.status.success() {
        true => Ok(made),
        false => {
            let reason = format!("ffmpeg: {}", last_line(&String::from_utf8_lossy(&output.stderr)));
            Err(Error::Encode { path: path.to_owned(), reason })
        }
    }
}

impl Encoder {
    fn start(
        (path, file): (&Path, &AsideFile),
        (height, width): (usize, usize),
        rate: FrameRate,
    ) -> Result<Encoder> {
        let made = file.named_scratch().map_err(failure(path))?;
        let mut command = Command::new(FFMPEG);
        command.args(["-nostdin", "-v", "error", "-f", "rawvideo", "-pix_fmt", "rgb24"]);
        command.arg("-s").arg(format!("{width}x{height}"));
        command.arg("-r").arg(format!("{}/{}", rate.numerator(), rate.denominator()));
        command.args(["-i", "pipe:0", "-an", "-c:v", "libvpx-vp9", "-crf", QUALITY, "-b:v", "0"]);
        command.args(["-vf", "scale=out_color_matrix=bt709:out_range=tv", "-pix_fmt", "yuv420p"]);
        command.args(["-colorspace", "bt709", "-color_primaries", "bt709", "-color_trc", "bt709"]);
        // The same frames are the same bytes: no date, no name of a version.
        command.args(["-fflags", "+bitexact", "-flags:v", "+bitexact", "-map_metadata", "-1"]);
        command.args(["-f", "webm", "-y"]).arg(super::ffmpeg::input(made.path()));
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| not_started(path, source))?;
        let no_pipe =
            || Error::Encode { path: path.to_owned(), reason: "ffmpeg has no input".into() };
        let frames = child.stdin.take().ok_or_else(no_pipe)?;
        let mut errors = child.stderr.take().ok_or_else(no_pipe)?;
        let complaints = std::thread::spawn(move || {
            let mut text = Vec::new();
            // What cannot be read is no complaint.
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Encoder { child, frames: Some(frames), complaints: Some(complaints), made })
    }

    /// Says that no frame follows, waits, and passes its complaint on.
    fn end(&mut self, path: &Path) -> Result<()> {
        drop(self.frames.take());
        let complaints = self.complaints.take().and_then(|own| own.join().ok()).unwrap_or_default();
        let status = self.child.wait().map_err(failure(path))?;
        match status.success() {
            true => Ok(()),
            false => {
                let reason = format!("ffmpeg: {}", last_line(&complaints));
                Err(Error::Encode { path: path.to_owned(), reason })
            }
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // Who stops in the middle must not leave ffmpeg waiting; if it has ended, both do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn not_started(path: &Path, source: io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::NotFound => Error::NoEncoder { path, program: FFMPEG },
        _ => Error::Write { path, source },
    }
}
