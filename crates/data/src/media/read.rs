//! Clips in memory: videos by ffmpeg, pictures by the `image` crate.

use super::ffmpeg::ClipReader;
use super::{Error, Frame, FrameRate, Result};
use image::{DynamicImage, ImageDecoder, ImageReader};
use std::path::Path;

/// Extensions that are read as a picture, without ffmpeg. A GIF is a video.
const PICTURES: [&str; 5] = ["png", "jpg", "jpeg", "webp", "bmp"];

/// Frames of one size, `[frames, height, width, 3]`, red, green and blue of 8 bits.
#[derive(Debug, Clone, PartialEq)]
pub struct Clip {
    frames: usize,
    height: usize,
    width: usize,
    /// None for a picture.
    rate: Option<FrameRate>,
    bytes: Vec<u8>,
}

impl Clip {
    /// Reads a picture or a whole video.
    ///
    /// # Errors
    ///
    /// If there is no such file, it is neither, it is damaged, or ffmpeg is needed and not
    /// installed.
    pub fn read(path: &Path) -> Result<Clip> {
        let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        match PICTURES.contains(&extension.as_str()) {
            true => Clip::picture(path),
            false => Clip::video(path),
        }
    }

    /// How many frames there are.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Height and width.
    pub fn size(&self) -> (usize, usize) {
        (self.height, self.width)
    }

    /// Frames per second; none for a picture.
    pub fn rate(&self) -> Option<FrameRate> {
        self.rate
    }

    /// All bytes, `[frames, height, width, 3]`.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// One of the frames.
    ///
    /// # Panics
    ///
    /// If there are not so many.
    pub fn frame(&self, index: usize) -> Frame {
        let length = 3 * self.height * self.width;
        let bytes = &self.bytes[index * length..(index + 1) * length];
        Frame::from_bytes(self.height, self.width, bytes).expect("a clip has whole frames")
    }

    /// A picture, turned as its camera was.
    fn picture(path: &Path) -> Result<Clip> {
        let reader = ImageReader::open(path).and_then(ImageReader::with_guessed_format);
        let reader = reader.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let decoded = reader.into_decoder().and_then(|mut decoder| {
            let orientation = decoder.orientation()?;
            let mut image = DynamicImage::from_decoder(decoder)?;
            image.apply_orientation(orientation);
            Ok(image.into_rgb8())
        });
        let image = decoded
            .map_err(|error| Error::Decode { path: path.to_owned(), reason: error.to_string() })?;
        Ok(Clip {
            frames: 1,
            height: image.height() as usize,
            width: image.width() as usize,
            rate: None,
            bytes: image.into_raw(),
        })
    }

    fn video(path: &Path) -> Result<Clip> {
        let mut reader = ClipReader::open(path)?;
        let refused =
            |reason: &str| Error::Decode { path: path.to_owned(), reason: reason.to_owned() };
        let Some((height, width, mut bytes)) = reader.next_frame()? else {
            return Err(refused("it has no frames"));
        };
        let mut frames = 1;
        while let Some((next_height, next_width, next)) = reader.next_frame()? {
            if (next_height, next_width) != (height, width) {
                return Err(refused("its frames change their size"));
            }
            bytes.extend(next);
            frames += 1;
        }
        Ok(Clip { frames, height, width, rate: Some(reader.rate()), bytes })
    }
}
