//! Frames as numbers: `frames`, f32 `[F, H, W, 3]` from 0 to 1, in a safetensors file.

use super::write::Sink;
use super::{Frame, FrameRate, Place, Result, begin, failure};
use crate::aside::AsideFile;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;

/// Room for the header, which needs the number of frames and so is written last. Readers skip
/// the spaces that fill it.
const HEADER_BYTES: usize = 248;

/// Writes a safetensors file.
pub(super) struct TensorSink {
    path: PathBuf,
    file: AsideFile,
    rate: FrameRate,
    frames: usize,
    /// Height and width.
    size: (usize, usize),
}

impl TensorSink {
    pub(super) fn create(place: Place<'_>, rate: FrameRate) -> Result<TensorSink> {
        let path = place.0;
        let mut file = begin(place)?;
        file.write_all(&[0; 8 + HEADER_BYTES]).map_err(failure(path))?;
        Ok(TensorSink { path: path.to_owned(), file, rate, frames: 0, size: (0, 0) })
    }

    fn header(&self) -> Vec<u8> {
        let (height, width) = self.size;
        let end = 4 * 3 * self.frames as u64 * height as u64 * width as u64;
        let header = json!({
            "__metadata__": { "fps": self.rate.to_string() },
            "frames": {
                "dtype": "F32",
                "shape": [self.frames, height, width, 3],
                "data_offsets": [0, end],
            },
        });
        format!("{:<HEADER_BYTES$}", header.to_string()).into_bytes()
    }
}

impl Sink for TensorSink {
    fn push(&mut self, frame: &Frame) -> Result<()> {
        self.size = frame.size();
        self.frames += 1;
        let bytes: Vec<u8> = frame.values().iter().flat_map(|value| value.to_le_bytes()).collect();
        self.file.write_all(&bytes).map_err(failure(&self.path))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let header = self.header();
        let failure = failure(&self.path);
        self.file.overwrite(0, &(header.len() as u64).to_le_bytes()).map_err(&failure)?;
        self.file.overwrite(8, &header).map_err(&failure)?;
        self.file.commit().map_err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aside::Existing;

    /// The longest numbers that can be leave the header as long as it was promised to be.
    #[test]
    fn the_header_never_outgrows_its_room() {
        let folder = tempfile::tempdir().unwrap();
        let rate = FrameRate::new(u32::MAX, u32::MAX - 1).unwrap();
        let path = folder.path().join("x.safetensors");
        let mut sink = TensorSink::create((&path, Existing::Refuse), rate).unwrap();
        (sink.frames, sink.size) = (u32::MAX as usize, (1 << 14, 1 << 14));
        assert_eq!(sink.header().len(), HEADER_BYTES);
    }
}
