//! WebP without loss: a picture, or an animation whose frames are pictures of their own.
//!
//! The crate `image` encodes single pictures. An animation is the same streams in a container of a few
//! chunks (`VP8X`, `ANIM`, one `ANMF` per frame), which is written here.

use super::sheet::encode;
use super::write::Sink;
use super::{Error, Frame, FrameRate, Place, Result, begin, failure};
use crate::aside::AsideFile;
use image::codecs::webp::WebPEncoder;
use std::io::Write;
use std::path::PathBuf;

/// The longest side that the format has.
const LONGEST: usize = 1 << 14;

/// The head of a RIFF file and of one chunk within it.
const HEAD: usize = 12;
const CHUNK: usize = 8;

/// Says in `VP8X` that frames follow.
const ANIMATED: u8 = 1 << 1;

/// Says in `ANMF` that a frame takes the place of the one before instead of being laid over it.
const REPLACING: u8 = 1 << 1;

/// Writes a WebP file.
pub(super) struct WebpSink {
    path: PathBuf,
    rate: FrameRate,
    file: AsideFile,
    /// The pictures as files of their own.
    frames: Vec<Vec<u8>>,
    /// Height and width.
    size: (usize, usize),
}

impl WebpSink {
    pub(super) fn create(place: Place<'_>, rate: FrameRate) -> Result<WebpSink> {
        let (path, file) = (place.0.to_owned(), begin(place)?);
        Ok(WebpSink { path, rate, file, frames: Vec::new(), size: (0, 0) })
    }

    /// The whole file.
    fn bytes(&self) -> Vec<u8> {
        if let [only] = &self.frames[..] {
            return only.clone();
        }
        let (height, width) = self.size;
        let mut head = vec![ANIMATED, 0, 0, 0];
        head.extend(u24(width - 1).into_iter().chain(u24(height - 1)));
        let mut body = b"WEBP".to_vec();
        body.extend(chunk(b"VP8X", &head));
        // The colour behind all frames, and how often they are shown: without end.
        body.extend(chunk(b"ANIM", &[0, 0, 0, 0, 0, 0]));
        for (at, frame) in self.frames.iter().enumerate() {
            let mut own = vec![0; 6];
            own.extend(u24(width - 1).into_iter().chain(u24(height - 1)));
            own.extend(u24(self.milliseconds(at)));
            own.push(REPLACING);
            own.extend_from_slice(&frame[HEAD..]);
            body.extend(chunk(b"ANMF", &own));
        }
        chunk(b"RIFF", &body)
    }

    /// How long a frame is shown: durations alternate so that the clip keeps its rate.
    fn milliseconds(&self, frame: usize) -> usize {
        let at = |frame: usize| (1000.0 * frame as f64 / self.rate.per_second()).round() as usize;
        at(frame + 1) - at(frame)
    }
}

impl Sink for WebpSink {
    fn push(&mut self, frame: &Frame) -> Result<()> {
        let (path, size) = (self.path.clone(), frame.size());
        let (height, width) = size;
        if height > LONGEST || width > LONGEST {
            return Err(Error::TooLarge { path, size, limit: "WebP (16384x16384)" });
        }
        self.size = size;
        let mut bytes = Vec::new();
        encode(WebPEncoder::new_lossless(&mut bytes), &frame.bytes(), height, width)
            .map_err(|reason| Error::Encode { path, reason })?;
        self.frames.push(bytes);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let bytes = self.bytes();
        let failure = failure(&self.path);
        self.file.write_all(&bytes).map_err(&failure)?;
        self.file.commit().map_err(failure)
    }
}

/// A chunk with its name and length; an odd one is filled up.
fn chunk(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CHUNK + body.len() + 1);
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(2), 0);
    bytes
}

/// The lower three bytes of a number.
fn u24(number: usize) -> [u8; 3] {
    let [a, b, c, _] = (number as u32).to_le_bytes();
    [a, b, c]
}
