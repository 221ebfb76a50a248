//! A contact sheet: all frames of a clip on one picture, in reading order.

use super::write::Sink;
use super::{Error, Frame, Place, Result, begin, failure};
use crate::aside::AsideFile;
use image::codecs::{jpeg::JpegEncoder, png::PngEncoder};
use image::{ExtendedColorType, ImageEncoder};
use std::io::Write;
use std::path::PathBuf;

/// Between two frames, in pixels.
const GAP: usize = 2;

/// The colour of what is not a frame.
const PAPER: u8 = 32;

/// Width over height that a sheet should come close to.
const SHAPE: f64 = 1.6;

/// How well a JPEG keeps its picture, of 100. Hardly anyone sees a difference at 95.
const QUALITY: u8 = 95;

/// What a sheet is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Picture {
    Png,
    Jpeg,
}

/// Writes a contact sheet, or a plain picture of a single frame.
pub(super) struct SheetSink {
    path: PathBuf,
    file: AsideFile,
    kind: Picture,
    frames: Vec<Vec<u8>>,
    /// Height and width of a frame.
    size: (usize, usize),
}

impl SheetSink {
    pub(super) fn create(place: Place<'_>, kind: Picture) -> Result<SheetSink> {
        let (path, file) = (place.0.to_owned(), begin(place)?);
        Ok(SheetSink { path, file, kind, frames: Vec::new(), size: (0, 0) })
    }

    /// The sheet's pixels, height and width.
    fn sheet(&self) -> (Vec<u8>, usize, usize) {
        let (height, width) = self.size;
        let columns = columns(self.frames.len(), self.size);
        let rows = self.frames.len().div_ceil(columns);
        let sheet_width = columns * (width + GAP) - GAP;
        let sheet_height = rows * (height + GAP) - GAP;
        let mut sheet = vec![PAPER; 3 * sheet_width * sheet_height];
        for (place, frame) in self.frames.iter().enumerate() {
            let (top, left) =
                ((place / columns) * (height + GAP), (place % columns) * (width + GAP));
            for (row, pixels) in frame.chunks(3 * width).enumerate() {
                let start = 3 * ((top + row) * sheet_width + left);
                sheet[start..start + pixels.len()].copy_from_slice(pixels);
            }
        }
        (sheet, sheet_height, sheet_width)
    }
}

impl Sink for SheetSink {
    fn push(&mut self, frame: &Frame) -> Result<()> {
        self.size = frame.size();
        self.frames.push(frame.bytes());
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let (sheet, height, width) = self.sheet();
        let refused = |reason| Error::Encode { path: self.path.clone(), reason };
        let picture = match self.kind {
            Picture::Png => png(&sheet, height, width),
            Picture::Jpeg => jpeg(&sheet, height, width),
        };
        let picture = picture.map_err(refused)?;
        let failure = failure(&self.path);
        self.file.write_all(&picture).map_err(&failure)?;
        self.file.commit().map_err(failure)
    }
}

/// How many frames stand beside each other, so that the sheet has a pleasant shape.
fn columns(frames: usize, (height, width): (usize, usize)) -> usize {
    let shape = |columns: usize| {
        let rows = frames.div_ceil(columns);
        (columns * (width + GAP)) as f64 / (rows * (height + GAP)) as f64
    };
    let unpleasant = |columns: &usize| (shape(*columns) / SHAPE).ln().abs();
    (1..=frames).min_by(|a, b| unpleasant(a).total_cmp(&unpleasant(b))).unwrap_or(1)
}

/// The bytes of a PNG file.
pub(super) fn png(
    pixels: &[u8],
    height: usize,
    width: usize,
) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    encode(PngEncoder::new(&mut bytes), pixels, height, width)?;
    Ok(bytes)
}

/// The bytes of a JPEG file.
fn jpeg(pixels: &[u8], height: usize, width: usize) -> std::result::Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    encode(JpegEncoder::new_with_quality(&mut bytes, QUALITY), pixels, height, width)?;
    Ok(bytes)
}

/// Encodes the pixels `[height, width, 3]` of a picture.
pub(super) fn encode(
    encoder: impl ImageEncoder,
    pixels: &[u8],
    height: usize,
    width: usize,
) -> std::result::Result<(), String> {
    let side = |length: usize| u32::try_from(length).map_err(|error| error.to_string());
    encoder
        .write_image(pixels, side(width)?, side(height)?, ExtendedColorType::Rgb8)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn a_sheet_is_about_as_wide_as_a_screen() {
        for (frames, size, want) in [
            (1, (480, 832), 1),
            (9, (480, 832), 3),
            (17, (480, 832), 4),
            (81, (480, 832), 9),
            (8, (32, 32), 4),
            (2, (30, 400), 1),
            (4, (832, 480), 4),
        ] {
            assert_eq!(columns(frames, size), want, "{frames} frames of {size:?}");
        }
    }
}
