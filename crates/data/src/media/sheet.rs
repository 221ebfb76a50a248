//! A contact sheet: all frames of a clip on one picture, in reading order.

use super::write::Sink;
use super::{Error, Frame, Result, begin, failure};
use crate::aside::AsideFile;
use image::{ExtendedColorType, ImageEncoder, codecs::png::PngEncoder};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Between two frames, in pixels.
const GAP: usize = 2;

/// The colour of what is not a frame.
const PAPER: u8 = 32;

/// Width over height that a sheet should come close to.
const SHAPE: f64 = 1.6;

/// Writes a contact sheet, or a plain picture of a single frame.
pub(super) struct SheetSink {
    path: PathBuf,
    file: AsideFile,
    frames: Vec<Vec<u8>>,
    /// Height and width of a frame.
    size: (usize, usize),
}

impl SheetSink {
    pub(super) fn create(path: &Path) -> Result<SheetSink> {
        let file = begin(path)?;
        Ok(SheetSink { path: path.to_owned(), file, frames: Vec::new(), size: (0, 0) })
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
        let png = png(&sheet, height, width).map_err(refused)?;
        let failure = failure(&self.path);
        self.file.write_all(&png).map_err(&failure)?;
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
    let side = |length: usize| u32::try_from(length).map_err(|error| error.to_string());
    let mut bytes = Vec::new();
    PngEncoder::new(&mut bytes)
        .write_image(pixels, side(width)?, side(height)?, ExtendedColorType::Rgb8)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
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
