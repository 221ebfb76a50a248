//! Pictures that users give: read, turned upright, made RGB, resized as the reference does it.
//!
//! The reference works with Pillow on 8 bits per channel, so a resized picture is one of 8 bits too,
//! and the numbers here are Pillow's to the last level.

mod clip;
mod fit;
mod resize;

use std::io::{BufRead, BufReader, Seek};
use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use image::{DynamicImage, ImageDecoder, ImageReader, Rgb, RgbImage};

pub use self::clip::ClipPreprocessor;
pub use self::resize::Filter;
use crate::error::{Error, Result};

/// A picture of a user, 8 bits for each of red, green and blue.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceImage {
    pixels: RgbImage,
}

impl SourceImage {
    /// Reads a PNG, JPEG or WebP file, whatever it is called: upright by its EXIF orientation,
    /// transparency left out, 16 bits cut to the upper 8.
    ///
    /// # Errors
    /// The file cannot be read or holds no such picture.
    pub fn read(path: &Path) -> Result<SourceImage> {
        if path.is_dir() {
            let reason = "it is a folder; give a PNG, JPEG or WebP file".to_owned();
            return Err(Error::Media { path: path.to_owned(), reason });
        }
        let file = kernels::open_file(path).map_err(|source| Error::read(path, source))?;
        let decoded = SourceImage::decode(BufReader::new(file));
        decoded.map_err(|reason| Error::Media { path: path.to_owned(), reason })
    }

    /// A frame of a clip, of this height and width.
    pub(crate) fn from_bytes((height, width): (usize, usize), bytes: Vec<u8>) -> SourceImage {
        let pixels = RgbImage::from_raw(width as u32, height as u32, bytes);
        SourceImage { pixels: pixels.expect("a frame has three bytes per pixel") }
    }

    /// A frame of a clip.
    pub(crate) fn from_frame(frame: &data::media::Frame) -> SourceImage {
        SourceImage::from_bytes(frame.size(), frame.bytes())
    }

    fn decode(source: impl BufRead + Seek) -> Result<SourceImage, String> {
        const KINDS: &str = "PNG, JPEG or WebP";
        let reader = ImageReader::new(source).with_guessed_format();
        let reader = reader.map_err(|err| err.to_string())?;
        if reader.format().is_none() {
            return Err(format!("not a picture; give a {KINDS} file"));
        }
        let broken = |err: String| format!("cannot be read as a {KINDS} picture: {err}");
        let mut decoder = data::media::picture::decoder(reader).map_err(broken)?;
        // A damaged tag is no reason to refuse a picture.
        let orientation = decoder.orientation().ok();
        let image = DynamicImage::from_decoder(decoder);
        let mut image = image.map_err(|err| broken(err.to_string()))?;
        if let Some(orientation) = orientation {
            image.apply_orientation(orientation);
        }
        Ok(SourceImage { pixels: rgb(image) })
    }

    /// Height and width.
    pub fn size(&self) -> [usize; 2] {
        [self.pixels.height() as usize, self.pixels.width() as usize]
    }

    /// The levels, row by row, three per pixel.
    pub fn levels(&self) -> &[u8] {
        self.pixels.as_raw()
    }

    /// The picture stretched to `[height, width]`, as Pillow does it.
    pub fn resized(&self, size: [usize; 2], filter: Filter) -> SourceImage {
        SourceImage { pixels: resize::resize(&self.pixels, size, filter) }
    }

    /// What an image-to-video model is conditioned with, `[1, 3, height, width]` from -1 to 1: the
    /// whole picture, stretched.
    pub fn conditioning(&self, size: [usize; 2], filter: Filter, device: &Device) -> Tensor<4> {
        let resized = self.resized(size, filter);
        planes(&resized.pixels, device, |_, level| 2.0 * (f32::from(level) / 255.0) - 1.0)
    }
}

/// Levels by `value(channel, level)`, `[1, 3, height, width]`.
fn planes(
    pixels: &RgbImage,
    device: &Device,
    value: impl Fn(usize, u8) -> f32 + Copy,
) -> Tensor<4> {
    let [height, width] = [pixels.height() as usize, pixels.width() as usize];
    let channel = |channel: usize| pixels.pixels().map(move |pixel| value(channel, pixel[channel]));
    let values: Vec<f32> = (0..3).flat_map(channel).collect();
    Tensor::from_data(TensorData::new(values, [1, 3, height, width]), device)
}

/// Transparency is left out rather than blended; 16 bits lose their lower half rather than being
/// rounded, as Pillow has it.
fn rgb(image: DynamicImage) -> RgbImage {
    let high = |level: u16| (level >> 8) as u8;
    match image {
        DynamicImage::ImageLuma16(image) => map(&image, |[y]: [u16; 1]| [high(y); 3]),
        DynamicImage::ImageLumaA16(image) => map(&image, |[y, _]: [u16; 2]| [high(y); 3]),
        DynamicImage::ImageRgb16(image) => map(&image, |levels: [u16; 3]| levels.map(high)),
        DynamicImage::ImageRgba16(image) => {
            map(&image, |[r, g, b, _]: [u16; 4]| [r, g, b].map(high))
        }
        other => other.to_rgb8(),
    }
}

fn map<P, const N: usize>(
    image: &image::ImageBuffer<P, Vec<u16>>,
    convert: impl Fn([u16; N]) -> [u8; 3],
) -> RgbImage
where
    P: image::Pixel<Subpixel = u16>,
{
    RgbImage::from_fn(image.width(), image.height(), |x, y| {
        let levels = image.get_pixel(x, y).channels();
        Rgb(convert(levels.try_into().expect("as many levels as the kind of pixel has")))
    })
}

#[cfg(test)]
mod tests {
    use image::{DynamicImage, ImageBuffer, Luma, Rgba};

    use super::rgb;

    #[test]
    fn sixteen_bits_keep_their_upper_half() {
        let gray = ImageBuffer::from_raw(2, 1, vec![0x12ff_u16, 0xff00]).expect("two pixels");
        let gray = rgb(DynamicImage::ImageLuma16(ImageBuffer::<Luma<u16>, _>::clone(&gray)));
        assert_eq!(gray.into_raw(), [0x12, 0x12, 0x12, 0xff, 0xff, 0xff]);
        let colour = vec![0x0180_u16, 0x02ff, 0x0300, 0x0000];
        let colour = ImageBuffer::<Rgba<u16>, _>::from_raw(1, 1, colour).expect("one pixel");
        assert_eq!(rgb(DynamicImage::ImageRgba16(colour)).into_raw(), [1, 2, 3]);
    }
}
