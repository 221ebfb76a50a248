//! Reading any video by the programs `ffmpeg` and `ffprobe`, found by their names.
//!
//! Frames come through a pipe as PPM: raw bytes, each frame with its own size before it, so
//! that a rotated video is as large as ffmpeg makes it and nothing has to be guessed.

use super::child::{Answer, Program, SILENCE};
use super::picture;
use super::stream::Stream;
use super::{Error, FrameRate, Result};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(super) const FFMPEG: &str = "ffmpeg";

/// What is opened: files, and containers that hold their video themselves. A playlist would make ffmpeg
/// read whatever it names.
pub(super) const ALLOWED: [&str; 4] = [
    "-protocol_whitelist",
    "file",
    "-format_whitelist",
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpeg,mpegts,mpegvideo,m4v,gif,flv,asf,ogg,ivf,h264,hevc,\
     obu,mxf,nut",
];

/// Every damage is an error and ends the program. One thread, so that no frame is handed out after it.
const STRICTLY: [&str; 5] = ["-xerror", "-err_detect", "explode", "-threads", "1"];

/// No clip has more frames.
const MOST_FRAMES: usize = 1_000_000;

/// The frames of a video, one after the other.
pub struct ClipReader {
    path: PathBuf,
    rate: FrameRate,
    program: Program,
    frames: BufReader<Answer>,
    /// How many frames may still come.
    left: usize,
    /// How many frames have come, if a damaged one is to be named.
    counted: Option<usize>,
    is_over: bool,
}

impl ClipReader {
    /// Starts to read a video.
    ///
    /// # Errors
    ///
    /// If there is no such file, it has no video, or ffmpeg is not installed.
    pub fn open(path: &Path) -> Result<ClipReader> {
        ClipReader::start(path, &[])
    }

    /// The same, but a damaged frame is an error that names it; ffmpeg would else make one up.
    ///
    /// # Errors
    ///
    /// As [`ClipReader::open`].
    pub fn open_strictly(path: &Path) -> Result<ClipReader> {
        let reader = ClipReader::start(path, &STRICTLY)?;
        Ok(ClipReader { counted: Some(0), ..reader })
    }

    fn start(path: &Path, more: &[&str]) -> Result<ClipReader> {
        let stream = Stream::probe(path)?;
        let most_pixels = picture::MOST_PIXELS.to_string();
        let mut command = Command::new(FFMPEG);
        command.args(["-nostdin", "-v", "error", "-max_pixels", &most_pixels]).args(ALLOWED);
        command.args(more);
        command.arg("-i").arg(input(path));
        command.args(["-map", "0:v:0", "-fps_mode", "passthrough"]);
        command.args(["-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "pipe:1"]);
        let started = Program::start(&mut command, SILENCE);
        let (program, answer) = started.map_err(|source| not_started(path, FFMPEG, source))?;
        let (path, rate) = (path.to_owned(), stream.rate);
        let frames = BufReader::new(answer);
        let left = stream.most_frames();
        Ok(ClipReader { path, rate, program, frames, left, counted: None, is_over: false })
    }

    /// Frames per second, on average.
    pub fn rate(&self) -> FrameRate {
        self.rate
    }

    /// The next frame: height, width and bytes `[height, width, 3]`. None after the last.
    ///
    /// # Errors
    ///
    /// If the video is damaged, or ffmpeg does not go on.
    pub fn next_frame(&mut self) -> Result<Option<(usize, usize, Vec<u8>)>> {
        if self.is_over {
            return Ok(None);
        }
        let read = ppm(&mut self.frames);
        self.is_over = !matches!(read, Ok(Some(_)));
        match read {
            Ok(Some(_)) if self.left == 0 => {
                self.is_over = true;
                self.program.kill();
                Err(decode(&self.path, "it has more frames than it says"))
            }
            Ok(Some(frame)) => {
                self.left -= 1;
                self.counted = self.counted.map(|counted| counted + 1);
                Ok(Some(frame))
            }
            Ok(None) => self.end().map(|()| None),
            Err(source) => Err(self.failed(source)),
        }
    }

    /// Waits for ffmpeg and passes its complaint on.
    fn end(&mut self) -> Result<()> {
        let (status, complaints) =
            self.program.end().map_err(|source| Error::Read { path: self.path.clone(), source })?;
        let complaint = last_line(&complaints);
        match (status.success(), self.counted) {
            (true, _) => Ok(()),
            (false, None) => Err(decode(&self.path, complaint)),
            (false, Some(frame)) => {
                let complaint = complaints.lines().next().unwrap_or(complaint);
                // It names its decoder by an address in memory.
                let complaint = match complaint.split_once("] ") {
                    Some((decoder, said)) if decoder.starts_with('[') => said,
                    _ => complaint,
                };
                Err(decode(&self.path, &format!("frame {frame} is damaged: {complaint}")))
            }
        }
    }

    /// Why there is no frame. What ffmpeg says of it counts more, if it has ended by itself.
    fn failed(&mut self, source: std::io::Error) -> Error {
        let own = match source.kind() {
            ErrorKind::UnexpectedEof => self.end().err(),
            _ => None,
        };
        self.program.kill();
        own.unwrap_or_else(|| Error::Read { path: self.path.clone(), source })
    }
}

impl Stream {
    /// No more frames than this are read of it.
    fn most_frames(&self) -> usize {
        // What a file says of itself may be a little off.
        let stated = self.frames.map(|frames| frames.saturating_mul(2).saturating_add(1000));
        stated.map_or(MOST_FRAMES, |stated| stated.min(MOST_FRAMES))
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
        ["P6", width, height, "255"] => (width.parse::<usize>(), height.parse::<usize>()),
        _ => return Err(damaged()),
    };
    let (Ok(width), Ok(height)) = (width, height) else { return Err(damaged()) };
    picture::check_size(width as u64, height as u64).map_err(|_| damaged())?;
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

/// Characters of a reason that are passed on.
const LONGEST_REASON: usize = 300;

pub(super) fn last_line(text: &str) -> &str {
    let line = text.lines().rfind(|line| !line.trim().is_empty());
    let line = line.unwrap_or("ffmpeg gives no reason").trim();
    if line.ends_with("Invalid argument") {
        // So ffmpeg calls what is not on the list.
        return "it is no video container that is read, such as mp4, mov, mkv, webm, avi, mpeg or gif";
    }
    // A line without an end is cut.
    let end = line.char_indices().nth(LONGEST_REASON).map_or(line.len(), |(at, _)| at);
    &line[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_neither_an_option_nor_a_protocol() {
        assert_eq!(input(Path::new("-y")), "file:-y");
        assert_eq!(input(Path::new("http:x")), "file:http:x");
    }

    const HUGE: &[u8] = b"P6\n4000000000 4000000000\n255\n";

    #[test]
    fn a_broken_pipe_is_no_frame() {
        let read = |mut bytes: &[u8]| ppm(&mut bytes);
        assert_eq!(read(b"").unwrap(), None);
        assert_eq!(read(b"P6\n2 1\n255\nabcdef").unwrap(), Some((1, 2, b"abcdef".to_vec())));
        for bytes in
            [&b"P6\n2 1\n255\nabcde"[..], b"P6\n2 1\n65535\n", b"P5\n2 1\n255\nab", b"text", HUGE]
        {
            assert!(read(bytes).is_err(), "{bytes:?}");
        }
    }
}
