//! Clips in memory: videos by ffmpeg, pictures by the `image` crate.

use super::ffmpeg::ClipReader;
use super::{Error, Frame, FrameRate, Result, picture};
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, ImageResult};
use std::io::BufReader;
use std::path::Path;

/// No clip in memory takes more bytes: 300 frames of 1920x1080, or 80 of 3840x2160.
const MOST_BYTES: usize = 2 << 30;

/// Extensions that are read as a picture, without ffmpeg. A GIF is a video.
const PICTURES: [&str; 5] = ["png", "jpg", "jpeg", "webp", "bmp"];

/// Frames of one size, `[frames, height, width, 3]`, red, green and blue of 8 bits.
#[derive(Debug, Clone, PartialEq)]
pub struct DecodedClip {
    frames: usize,
    height: usize,
    width: usize,
    /// None for a picture.
    rate: Option<FrameRate>,
    bytes: Vec<u8>,
}

impl DecodedClip {
    /// Reads a picture, a whole video, or the pictures of a folder in order of name.
    ///
    /// # Errors
    ///
    /// If there is no such file, it is neither, it is damaged, or ffmpeg is needed and not
    /// installed.
    pub fn read(path: &Path) -> Result<DecodedClip> {
        DecodedClip::read_first(path, usize::MAX)
    }

    /// The same without what follows the first `most` frames, which is not looked at.
    ///
    /// # Errors
    ///
    /// As [`DecodedClip::read`].
    pub fn read_first(path: &Path, most: usize) -> Result<DecodedClip> {
        match is_picture(path) {
            _ if path.is_dir() => DecodedClip::folder(path, most),
            true => DecodedClip::picture(path),
            false => DecodedClip::video(path, most),
        }
    }

    /// The pictures of a folder, which plays at no known rate.
    fn folder(path: &Path, most: usize) -> Result<DecodedClip> {
        let failed = |source| Error::Read { path: path.to_owned(), source };
        let entries = std::fs::read_dir(path).map_err(failed)?;
        let mut pictures: Vec<_> =
            entries.flatten().map(|entry| entry.path()).filter(|path| is_picture(path)).collect();
        pictures.sort();
        let refused =
            |reason: &str| Error::Decode { path: path.to_owned(), reason: reason.to_owned() };
        let Some((first, rest)) = pictures.split_first() else {
            return Err(refused("the folder holds no pictures"));
        };
        let mut clip = DecodedClip::picture(first)?;
        for path in rest.iter().take(most.saturating_sub(1)) {
            let next = DecodedClip::picture(path)?;
            if next.size() != clip.size() {
                return Err(refused("its pictures differ in size"));
            }
            clip.append(&next.bytes).map_err(|reason| refused(&reason))?;
        }
        Ok(clip)
    }

    /// Takes one more frame, if there is room for it.
    fn append(&mut self, frame: &[u8]) -> std::result::Result<(), String> {
        if self.bytes.len() + frame.len() > MOST_BYTES {
            let frames = self.frames;
            return Err(format!(
                "it has more than {frames} frames of {}x{}, which take more than {} GB; cut it or \
                 scale it down",
                self.width,
                self.height,
                MOST_BYTES >> 30
            ));
        }
        let full = |_| "there is no memory for its frames; cut it or scale it down".to_owned();
        self.bytes.try_reserve(frame.len()).map_err(full)?;
        self.bytes.extend(frame);
        self.frames += 1;
        Ok(())
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

    /// The bytes of each frame. Room is given back as they are taken, so that they are not there twice.
    pub fn into_frames(mut self) -> Vec<Vec<u8>> {
        let length = 3 * self.height * self.width;
        let mut frames: Vec<Vec<u8>> = Vec::with_capacity(self.frames);
        while self.bytes.len() >= length && length > 0 {
            frames.push(self.bytes.split_off(self.bytes.len() - length));
            self.bytes.shrink_to_fit();
        }
        frames.reverse();
        frames
    }

    /// A picture, turned as its camera was.
    fn picture(path: &Path) -> Result<DecodedClip> {
        let image = decode_picture(path, |mut decoder| {
            let orientation = decoder.orientation()?;
            let mut image = DynamicImage::from_decoder(decoder)?;
            image.apply_orientation(orientation);
            Ok(image.into_rgb8())
        })?;
        Ok(DecodedClip {
            frames: 1,
            height: image.height() as usize,
            width: image.width() as usize,
            rate: None,
            bytes: image.into_raw(),
        })
    }

    fn video(path: &Path, most: usize) -> Result<DecodedClip> {
        let mut reader = ClipReader::open(path)?;
        let refused =
            |reason: &str| Error::Decode { path: path.to_owned(), reason: reason.to_owned() };
        let Some((height, width, bytes)) = reader.next_frame()? else {
            return Err(refused("it has no frames"));
        };
        let mut clip = DecodedClip { frames: 1, height, width, rate: Some(reader.rate()), bytes };
        while clip.frames < most
            && let Some((next_height, next_width, next)) = reader.next_frame()?
        {
            if (next_height, next_width) != (height, width) {
                return Err(refused("its frames change their size"));
            }
            clip.append(&next).map_err(|reason| refused(&reason))?;
        }
        Ok(clip)
    }
}

/// Whether a file is read as a picture, by its extension.
pub fn is_picture(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
    PICTURES.contains(&extension.as_str())
}

/// Height and width of a picture as it is shown; its pixels are not decoded.
///
/// # Errors
///
/// If there is no such file, or it is no picture.
pub fn picture_size(path: &Path) -> Result<(usize, usize)> {
    let (height, width) = decode_picture(path, |mut decoder| {
        let (width, height) = decoder.dimensions();
        Ok(match decoder.orientation()? {
            Orientation::Rotate90
            | Orientation::Rotate270
            | Orientation::Rotate90FlipH
            | Orientation::Rotate270FlipH => (width, height),
            _ => (height, width),
        })
    })?;
    Ok((height as usize, width as usize))
}

/// Opens a picture and lets `decode` make something of it.
fn decode_picture<T>(
    path: &Path,
    decode: impl FnOnce(Box<dyn ImageDecoder + '_>) -> ImageResult<T>,
) -> Result<T> {
    let file =
        kernels::open_file(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let mut reader = ImageReader::new(BufReader::new(file));
    // What is in it counts more than what it is called.
    if let Ok(format) = ImageFormat::from_path(path) {
        reader.set_format(format);
    }
    let reader = reader.with_guessed_format();
    let reader = reader.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let decoder = picture::decoder(reader);
    let decoded = decoder.and_then(|own| decode(Box::new(own)).map_err(|error| error.to_string()));
    decoded.map_err(|reason| Error::Decode { path: path.to_owned(), reason })
}
