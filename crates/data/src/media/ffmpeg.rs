//! Reading any video by the programs `ffmpeg` and `ffprobe`, found by their names.
//!
//! Frames come through a pipe as PPM: raw bytes, each frame with its own size before it, so
//! that a rotated video is as large as ffmpeg makes it and nothing has to be guessed.

use super::stream::Stream;
use super::{Error, FrameRate, Result};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

pub(super) const FFMPEG: &str = "ffmpeg";

/// The frames of a video, one after the other.
pub struct ClipReader {
    path: PathBuf,
    rate: FrameRate,
    child: Child,
    frames: BufReader<ChildStdout>,
    /// Collects what ffmpeg complains about; without it a full pipe would stop ffmpeg.
    complaints: Option<JoinHandle<String>>,
}

impl ClipReader {
    /// Starts to read a video.
    ///
    /// # Errors
    ///
    /// If there is no such file, it has no video, or ffmpeg is not installed.
    pub fn open(path: &Path) -> Result<ClipReader> {
        let rate = Stream::probe(path)?.rate;
        let mut command = Command::new(FFMPEG);
        command.args(["-nostdin", "-v", "error", "-i"]).arg(input(path));
        command.args(["-map", "0:v:0", "-fps_mode", "passthrough"]);
        command.args(["-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "pipe:1"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|source| not_started(path, FFMPEG, source))?;
        let no_pipe = || decode(path, "ffmpeg has no output");
        let frames = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?);
        let mut errors = child.stderr.take().ok_or_else(no_pipe)?;
        let complaints = std::thread::spawn(move || {
            let mut text = Vec::new();
            // What cannot be read is no complaint.
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let path = path.to_owned();
        Ok(ClipReader { path, rate, child, frames, complaints: Some(complaints) })
    }

    /// Frames per second, on average.
    pub fn rate(&self) -> FrameRate {
        self.rate
    }

    /// The next frame: height, width and bytes `[height, width, 3]`. None after the last.
    ///
    /// # Errors
    ///
    /// If the video is damaged.
    pub fn next_frame(&mut self) -> Result<Option<(usize, usize, Vec<u8>)>> {
        match ppm(&mut self.frames) {
            Ok(Some(frame)) => Ok(Some(frame)),
            Ok(None) => self.end().map(|()| None),
            Err(source) => {
                self.end()?;
                Err(Error::Read { path: self.path.clone(), source })
            }
        }
    }

    /// Waits for ffmpeg and passes its complaint on.
    fn end(&mut self) -> Result<()> {
        let Some(complaints) = self.complaints.take() else { return Ok(()) };
        let complaints = complaints.join().unwrap_or_default();
        let status = self.child.wait();
        let status = status.map_err(|source| Error::Read { path: self.path.clone(), source })?;
        if status.success() { Ok(()) } else { Err(decode(&self.path, last_line(&complaints))) }
    }
}

impl Drop for ClipReader {
    fn drop(&mut self) {
        // Who stops in the middle of a video must not leave ffmpeg waiting; if it has ended
        // already, both do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path as an input of ffmpeg, which would else take `a:b` for a protocol and `-x` for an
/// option.
pub(super) fn input(path: &Path) -> OsString {
    let mut input = OsString::from("file:");
    input.push(path);
    input
}

/// One PPM picture of 8 bits: height, width and bytes. None at the end.
fn ppm(stream: &mut impl BufRead) -> std::io::Result<Option<(usize, usize, Vec<u8>)>> {
    if stream.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut header = Vec::new();
    for _ in 0..3 {
        stream.by_ref().take(64).read_until(b'\n', &mut header)?;
    }
    let header = String::from_utf8_lossy(&header);
    let words: Vec<&str> = header.split_whitespace().collect();
    let (width, height) = match words[..] {
        ["P6", width, height, "255"] => (width.parse(), height.parse()),
        _ => return Err(damaged()),
    };
    let (Ok(width), Ok(height)) = (width, height) else { return Err(damaged()) };
    let mut bytes = vec![0; 3 * width * height];
    stream.read_exact(&mut bytes)?;
    Ok(Some((height, width, bytes)))
}

fn damaged() -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, "ffmpeg sent something else than frames")
}

pub(super) fn not_started(path: &Path, program: &'static str, source: std::io::Error) -> Error {
    let path = path.to_owned();
    match source.kind() {
        std::io::ErrorKind::NotFound => Error::NoProgram { path, program },
        _ => Error::Read { path, source },
    }
}

pub(super) fn decode(path: &Path, reason: &str) -> Error {
    Error::Decode { path: path.to_owned(), reason: reason.to_owned() }
}

pub(super) fn last_line(text: &str) -> &str {
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("ffmpeg gives no reason").trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_neither_an_option_nor_a_protocol() {
        assert_eq!(input(Path::new("-y")), "file:-y");
        assert_eq!(input(Path::new("http:x")), "file:http:x");
    }

    #[test]
    fn a_broken_pipe_is_no_frame() {
        let read = |mut bytes: &[u8]| ppm(&mut bytes);
        assert_eq!(read(b"").unwrap(), None);
        assert_eq!(read(b"P6\n2 1\n255\nabcdef").unwrap(), Some((1, 2, b"abcdef".to_vec())));
        for bytes in
            [&b"P6\n2 1\n255\nabcde"[..], b"P6\n2 1\n65535\n", b"P5\n2 1\n255\nab", b"text"]
        {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
