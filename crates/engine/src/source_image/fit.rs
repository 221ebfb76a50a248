//! Pictures of other proportions than the clip's: the middle cut out, or black put around.

use image::{Rgb, RgbImage};

use super::SourceImage;
use crate::request::Fit;

impl SourceImage {
    /// The picture in the proportions of `[height, width]`, as far as whole pixels allow; stretching is
    /// left to the resizing that follows.
    pub(crate) fn fitted(&self, [height, width]: [usize; 2], fit: Fit) -> SourceImage {
        let [high, wide] = self.size();
        // As high as the width asks for, or as wide as the height does, whichever is within or around.
        let across = (wide * height).div_euclid(width).max(1);
        let along = (high * width).div_euclid(height).max(1);
        let is_too_wide = wide * height > high * width;
        let size = match (fit, is_too_wide) {
            (Fit::Stretch, _) => return self.clone(),
            (Fit::Crop, true) | (Fit::Pad, false) => [high, along],
            (Fit::Crop, false) | (Fit::Pad, true) => [across, wide],
        };
        match size == [high, wide] {
            true => self.clone(),
            false => SourceImage { pixels: placed(&self.pixels, size) },
        }
    }
}

/// The middle of a picture in a frame of `[height, width]`, black where it does not reach.
fn placed(pixels: &RgbImage, [height, width]: [usize; 2]) -> RgbImage {
    let start = |whole: u32, part: usize| (i64::from(whole) - part as i64).div_euclid(2);
    let [left, top] = [start(pixels.width(), width), start(pixels.height(), height)];
    RgbImage::from_fn(width as u32, height as u32, |x, y| {
        let [x, y] = [i64::from(x) + left, i64::from(y) + top].map(u32::try_from);
        match (x, y) {
            (Ok(x), Ok(y)) => pixels.get_pixel_checked(x, y).copied().unwrap_or(Rgb([0; 3])),
            _ => Rgb([0; 3]),
        }
    })
}

#[cfg(test)]
mod tests {
    use image::{Rgb, RgbImage};

    use super::SourceImage;
    use crate::request::Fit;

    fn picture(height: u32, width: u32) -> SourceImage {
        let pixels = RgbImage::from_fn(width, height, |x, y| Rgb([x as u8 + 1, y as u8 + 1, 9]));
        SourceImage { pixels }
    }

    #[test]
    fn proportions_are_kept_by_cutting_or_filling() {
        for (size, target, cropped, padded) in [
            ([10, 40], [20, 20], [10, 10], [40, 40]),
            ([40, 10], [20, 20], [10, 10], [40, 40]),
            ([12, 24], [32, 64], [12, 24], [12, 24]),
            ([9, 16], [480, 832], [9, 15], [9, 16]),
        ] {
            let own = picture(size[0] as u32, size[1] as u32);
            assert_eq!(own.fitted(target, Fit::Stretch), own);
            assert_eq!(own.fitted(target, Fit::Crop).size(), cropped, "{size:?} {target:?}");
            assert_eq!(own.fitted(target, Fit::Pad).size(), padded, "{size:?} {target:?}");
        }
        // What stays is the middle, and what is added black.
        let own = picture(2, 6);
        assert_eq!(own.fitted([2, 2], Fit::Crop).levels()[..3], [3, 1, 9]);
        let padded = own.fitted([6, 6], Fit::Pad);
        assert_eq!(padded.levels()[..3], [0; 3]);
        assert_eq!(padded.levels()[2 * 6 * 3..][..3], [1, 1, 9]);
    }
}
