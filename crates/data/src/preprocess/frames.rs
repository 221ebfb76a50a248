//! Cuts the frames of a clip to a bucket: the middle of the picture.

use image::imageops::{self, FilterType};
use image::{ImageBuffer, Rgb, RgbImage};

use super::RgbFrame;
use crate::store::Bucket;

/// The part of a frame that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Crop {
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) height: usize,
    pub(super) width: usize,
}

/// The largest part in the middle that has the proportion of the bucket, to a pixel.
pub(super) fn crop(height: usize, width: usize, bucket: &Bucket) -> Crop {
    let rounded = |a: usize, b: usize, c: usize| ((2 * a * b + c) / (2 * c)).max(1);
    let kept_height = height.min(rounded(width, bucket.height, bucket.width));
    let kept_width = width.min(rounded(height, bucket.width, bucket.height));
    Crop {
        top: (height - kept_height) / 2,
        left: (width - kept_width) / 2,
        height: kept_height,
        width: kept_width,
    }
}

/// Crops a frame and brings it to the size of a bucket.
pub(super) fn fit(frame: RgbFrame, bucket: &Bucket) -> Result<RgbImage, String> {
    let RgbFrame { height, width, pixels } = frame;
    let found = pixels.len();
    let image: Option<RgbImage> =
        ImageBuffer::<Rgb<u8>, _>::from_raw(width as u32, height as u32, pixels);
    let image = image
        .filter(|_| found == height * width * 3 && found > 0)
        .ok_or_else(|| format!("a frame of {height}x{width} has {found} values"))?;
    let crop = crop(height, width, bucket);
    let [left, top, width, height] =
        [crop.left, crop.top, crop.width, crop.height].map(|it| it as u32);
    let part = imageops::crop_imm(&image, left, top, width, height).to_image();
    if part.dimensions() == (bucket.width as u32, bucket.height as u32) {
        return Ok(part);
    }
    Ok(imageops::resize(&part, bucket.width as u32, bucket.height as u32, FilterType::CatmullRom))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Bucket = Bucket { frames: 1, height: 16, width: 32 };

    #[test]
    fn the_middle_is_kept() {
        assert_eq!(crop(100, 100, &WIDE), Crop { top: 25, left: 0, height: 50, width: 100 });
        assert_eq!(crop(32, 100, &WIDE), Crop { top: 0, left: 18, height: 32, width: 64 });
        assert_eq!(crop(33, 66, &WIDE), Crop { top: 0, left: 0, height: 33, width: 66 });
    }

    /// Left half black, right half white, with a border of grey that the crop removes.
    #[test]
    fn a_frame_is_cut_then_scaled() {
        let (height, width) = (64, 64);
        let pixels = (0..height * width * 3).map(|at| {
            let (row, column) = (at / 3 / width, at / 3 % width);
            if !(16..48).contains(&row) {
                128
            } else if column < 32 {
                0
            } else {
                255
            }
        });
        let frame = RgbFrame { height, width, pixels: pixels.collect() };
        let image = fit(frame, &WIDE).unwrap();
        for (column, _, pixel) in image.enumerate_pixels() {
            let expected = if column < 16 { 0 } else { 255 };
            let is_edge = (14..18).contains(&column);
            assert!(is_edge || pixel.0 == [expected; 3], "{column} {pixel:?}");
        }
    }

    #[test]
    fn a_frame_of_the_right_size_stays_as_it_is() {
        let pixels: Vec<u8> = (0..16 * 32 * 3).map(|at| (at * 7 % 256) as u8).collect();
        let frame = RgbFrame { height: 16, width: 32, pixels: pixels.clone() };
        assert_eq!(fit(frame, &WIDE).unwrap().into_raw(), pixels);
        assert!(fit(RgbFrame { height: 4, width: 4, pixels }, &WIDE).is_err());
    }
}
