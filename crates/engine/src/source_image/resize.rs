//! Resizing by convolution, to the bit as Pillow's `Image.resize` does it.
//!
//! Pillow resizes along one direction and then along the other, and rounds to 8 bits after each. The
//! weights of a pass are made in f64, divided by their sum, and held as integers of 22 fractional
//! bits; a sum starts at one half and is cut. When a picture shrinks, the filter widens with it, so
//! that every source pixel counts. The order of the passes is that of Pillow 13, found by trying:
//! older ones always begin across, which differs by a level here and there where [`down_first`] holds.

use std::f64::consts::PI;

use image::RgbImage;

/// A way to weigh the neighbours of a pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filter {
    /// A triangle of half-width 1.
    Bilinear,
    /// Keys's cubic of half-width 2, with -1/2 as its parameter.
    Bicubic,
    /// A sinc of half-width 3 under a wider one.
    Lanczos,
}

impl Filter {
    /// From where on it is zero.
    fn reach(self) -> f64 {
        match self {
            Filter::Bilinear => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    /// Its value at a distance.
    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            _ if x >= self.reach() => 0.0,
            Filter::Bilinear => 1.0 - x,
            Filter::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Filter::Bicubic => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            Filter::Lanczos => sinc(x) * sinc(x / 3.0),
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { libm::sin(x * PI) / (x * PI) }
}

/// Fractional bits of a weight: what 32 leave beside 8 of a level and 2 of overshoot.
const BITS: u32 = 22;

/// The source pixels of one target pixel: the first, and the weight of each from there on.
struct Window {
    first: usize,
    weights: Vec<i32>,
}

/// The windows that map `from` pixels onto `to`.
fn windows(from: usize, to: usize, filter: Filter) -> Vec<Window> {
    let scale = from as f64 / to as f64;
    let widening = scale.max(1.0);
    let reach = filter.reach() * widening;
    let window = |target: usize| {
        let center = (target as f64 + 0.5) * scale;
        // The casts cut towards zero and stop at it.
        let first = (center - reach + 0.5) as usize;
        let end = ((center + reach + 0.5) as usize).min(from);
        let inverse = 1.0 / widening;
        let weigh = |source: usize| filter.weight((source as f64 - center + 0.5) * inverse);
        let weights: Vec<f64> = (first..end).map(weigh).collect();
        let total: f64 = weights.iter().sum();
        let fixed = |weight: &f64| (weight / total * f64::from(1 << BITS)).round() as i32;
        Window { first, weights: weights.iter().map(fixed).collect() }
    };
    (0..to).map(window).collect()
}

/// `image` stretched to `[height, width]`.
pub(super) fn resize(image: &RgbImage, [height, width]: [usize; 2], filter: Filter) -> RgbImage {
    let [rows, columns] = [image.height() as usize, image.width() as usize];
    let across = |levels: Vec<u8>| match columns == width {
        true => levels,
        false => across(&levels, columns, &windows(columns, width, filter)),
    };
    let down = |levels: Vec<u8>, columns: usize| match rows == height {
        true => levels,
        false => down(&levels, columns, &windows(rows, height, filter)),
    };
    let levels = image.as_raw().clone();
    let levels = match down_first([rows, columns], [height, width]) {
        true => across(down(levels, columns)),
        false => down(across(levels), width),
    };
    let image = RgbImage::from_raw(width as u32, height as u32, levels);
    image.expect("three levels for each pixel of the new size")
}

/// Whether the height shrinks by more than twice what the width shrinks by.
fn down_first([rows, columns]: [usize; 2], [height, width]: [usize; 2]) -> bool {
    height < rows && rows + 2 * width > height + 2 * columns
}

/// Every row of `columns` pixels through the windows.
fn across(levels: &[u8], columns: usize, windows: &[Window]) -> Vec<u8> {
    let rows = levels.chunks_exact(3 * columns);
    rows.flat_map(|row| {
        windows.iter().flat_map(move |window| {
            let pixels = row[3 * window.first..].chunks_exact(3);
            let mut sums = [1 << (BITS - 1); 3];
            for (weight, pixel) in window.weights.iter().zip(pixels) {
                for (sum, level) in sums.iter_mut().zip(pixel) {
                    *sum += weight * i32::from(*level);
                }
            }
            sums.map(level)
        })
    })
    .collect()
}

/// Every column of a picture `width` pixels wide through the windows.
fn down(levels: &[u8], width: usize, windows: &[Window]) -> Vec<u8> {
    let mut sums = vec![0; 3 * width];
    let mut out = Vec::with_capacity(windows.len() * 3 * width);
    for window in windows {
        sums.fill(1 << (BITS - 1));
        let rows = levels[3 * width * window.first..].chunks_exact(3 * width);
        for (weight, row) in window.weights.iter().zip(rows) {
            for (sum, level) in sums.iter_mut().zip(row) {
                *sum += weight * i32::from(*level);
            }
        }
        out.extend(sums.iter().map(|&sum| level(sum)));
    }
    out
}

/// A sum without its fractional bits.
fn level(sum: i32) -> u8 {
    (sum >> BITS).clamp(0, 255) as u8
}

#[cfg(test)]
mod tests {
    use image::RgbImage;

    use super::{Filter, resize};

    const FILTERS: [Filter; 3] = [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos];

    #[test]
    fn the_same_size_is_the_same_picture() {
        let image = RgbImage::from_fn(5, 7, |x, y| image::Rgb([(x * 40) as u8, y as u8, 9]));
        for filter in FILTERS {
            assert_eq!(resize(&image, [7, 5], filter), image);
        }
    }

    #[test]
    fn one_colour_stays_that_colour() {
        let image = RgbImage::from_pixel(13, 6, image::Rgb([0, 255, 77]));
        for filter in FILTERS {
            for size in [[1, 1], [3, 29], [50, 2]] {
                let [height, width] = size.map(|size| size as u32);
                let expected = RgbImage::from_pixel(width, height, image::Rgb([0, 255, 77]));
                assert_eq!(resize(&image, size, filter), expected, "{filter:?} {size:?}");
            }
        }
    }
}
