//! Animated GIFs: one palette for the whole clip, so frames wait on the disk until all are known.

use super::palette::{Palette, PaletteMaker};
use super::write::Sink;
use super::{Error, Frame, FrameRate, Place, Result, begin, failure};
use crate::aside::AsideFile;
use gif::{Encoder, EncodingError, Repeat};
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::PathBuf;

/// Browsers play frames that are shorter, in hundredths of a second, far too slowly.
const SHORTEST: u64 = 2;

/// By how much a pattern of four by four pixels moves colours before they are rounded, in
/// sixteenths; it trades bands for a fine grain that stays in place.
const GRAIN: [[i16; 4]; 4] = [[0, 8, 2, 10], [12, 4, 14, 6], [3, 11, 1, 9], [15, 7, 13, 5]];

/// The height of that pattern, about half the distance of two colours of the palette.
const GRAIN_HEIGHT: i16 = 12;

/// Writes a GIF.
pub(super) struct GifSink {
    path: PathBuf,
    rate: FrameRate,
    file: AsideFile,
    waiting: BufWriter<File>,
    palette: PaletteMaker,
    /// Height and width.
    size: (usize, usize),
    frames: usize,
}

impl GifSink {
    pub(super) fn create(place: Place<'_>, rate: FrameRate) -> Result<GifSink> {
        let path = place.0;
        let file = begin(place)?;
        Ok(GifSink {
            path: path.to_owned(),
            rate,
            waiting: BufWriter::new(file.scratch().map_err(failure(path))?),
            file,
            palette: PaletteMaker::new(),
            size: (0, 0),
            frames: 0,
        })
    }

    /// How long a frame is shown, in hundredths of a second. Delays alternate so that the clip
    /// keeps its rate, up to 50 frames per second.
    fn delay(&self, frame: usize) -> u16 {
        let length = self.rate.hundredths(frame + 1) - self.rate.hundredths(frame);
        u16::try_from(length.max(SHORTEST)).unwrap_or(u16::MAX)
    }

    fn write_all(&mut self, width: u16, height: u16) -> std::result::Result<(), EncodingError> {
        self.waiting.flush()?;
        let mut waiting = BufReader::new(self.waiting.get_ref());
        waiting.rewind()?;
        let mut palette = std::mem::replace(&mut self.palette, PaletteMaker::new()).finish();
        let delays: Vec<u16> = (0..self.frames).map(|frame| self.delay(frame)).collect();
        let mut encoder = Encoder::new(&mut self.file, width, height, &palette.bytes())?;
        encoder.set_repeat(Repeat::Infinite)?;
        let mut bytes = vec![0; 3 * self.size.0 * self.size.1];
        for delay in delays {
            waiting.read_exact(&mut bytes)?;
            let buffer = Cow::Owned(indices(&bytes, self.size.1, &mut palette));
            let frame = gif::Frame { delay, width, height, buffer, ..Default::default() };
            encoder.write_frame(&frame)?;
        }
        Ok(())
    }
}

impl Sink for GifSink {
    fn push(&mut self, frame: &Frame) -> Result<()> {
        let bytes = frame.bytes();
        self.palette.see(bytemuck::cast_slice(&bytes));
        self.size = frame.size();
        self.frames += 1;
        self.waiting.write_all(&bytes).map_err(failure(&self.path))
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        let (path, size) = (self.path.clone(), self.size);
        let (Ok(height), Ok(width)) = (u16::try_from(size.0), u16::try_from(size.1)) else {
            return Err(Error::TooLarge { path, size, limit: "GIF (65535x65535)" });
        };
        match self.write_all(width, height) {
            Ok(()) => self.file.commit().map_err(failure(&path)),
            Err(EncodingError::Io(source)) => Err(Error::Write { path, source }),
            Err(error) => Err(Error::Encode { path, reason: error.to_string() }),
        }
    }
}

/// The palette's colour of every pixel.
fn indices(bytes: &[u8], width: usize, palette: &mut Palette) -> Vec<u8> {
    let pixels: &[[u8; 3]] = bytemuck::cast_slice(bytes);
    if palette.is_exact() {
        return pixels.iter().map(|pixel| palette.index(*pixel)).collect();
    }
    let grained = |(place, pixel): (usize, &[u8; 3])| {
        let (row, column) = (place / width, place % width);
        let grain = (GRAIN[row % 4][column % 4] * 2 - 15) * GRAIN_HEIGHT / 32;
        palette.index(pixel.map(|channel| (i16::from(channel) + grain).clamp(0, 255) as u8))
    };
    pixels.iter().enumerate().map(grained).collect()
}
