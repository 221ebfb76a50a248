//! How a shape covers pixels: the share of each pixel that lies within the outline.
//!
//! Every shape is convex and symmetric from left to right, so that a line through it is one span.
//! A pixel is cut into a few lines; along a line the share is exact, and the topmost and the lowest
//! line count only as far as they lie within. Nothing but additions, products and square roots is
//! used, so that a clip has the same bits on every machine.

use super::moving_shape::Shape;

/// Lines per row of pixels.
const LINES: usize = 8;

/// A shape at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outline {
    /// What it is.
    pub(super) shape: Shape,
    /// The centre of its box, `[column, row]` in pixels; the first pixel reaches from 0 to 1.
    pub(super) centre: [f64; 2],
    /// Width and height of its box in pixels.
    pub(super) size: f64,
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The first row.
    pub(super) top: usize,
    /// The first column.
    pub(super) left: usize,
    /// How many rows.
    pub(super) height: usize,
    /// How many columns.
    pub(super) width: usize,
}

/// The share of each pixel of the window that the shape covers, `[height, width]`, from 0 to 1.
pub(super) fn coverage(outline: &Outline, window: Window) -> Vec<f32> {
    let mut shares = vec![0.0; window.height * window.width];
    let half = outline.size / 2.0;
    let (upper, lower) = (outline.centre[1] - half, outline.centre[1] + half);
    let rows = shares.chunks_mut(window.width.max(1)).enumerate();
    for (row, shares) in rows {
        for line in 0..LINES {
            let top = (window.top + row) as f64 + line as f64 / LINES as f64;
            let (start, end) = (top.max(upper), (top + 1.0 / LINES as f64).min(lower));
            if start < end {
                // Where in the box the middle of the line is: -1 at the top, 1 at the bottom.
                let place = ((start + end) / 2.0 - outline.centre[1]) / half;
                let reach = half * half_width(outline.shape, place);
                let span = [outline.centre[0] - reach, outline.centre[0] + reach];
                add_span(shares, span.map(|column| column - window.left as f64), end - start);
            }
        }
    }
    shares
}

/// Half the width of the shape at a height from -1 (top) to 1 (bottom), in halves of its box.
fn half_width(shape: Shape, place: f64) -> f64 {
    match shape {
        Shape::Circle => (1.0 - place * place).max(0.0).sqrt(),
        Shape::Square => 1.0,
        Shape::Triangle => (1.0 + place) / 2.0,
    }
}

/// Adds a line of the given height that covers the columns of a span.
fn add_span(shares: &mut [f32], [start, end]: [f64; 2], height: f64) {
    let start = start.max(0.0);
    let end = end.min(shares.len() as f64);
    if start >= end {
        return;
    }
    let columns = start as usize..(end.ceil() as usize).min(shares.len());
    for column in columns {
        let covered = end.min(column as f64 + 1.0) - start.max(column as f64);
        shares[column] += (covered.max(0.0) * height) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: Window = Window { top: 0, left: 0, height: 24, width: 31 };

    fn area(shape: Shape, size: f64, centre: [f64; 2]) -> f64 {
        let shares = coverage(&Outline { shape, centre, size }, WHOLE);
        assert!(shares.iter().all(|share| (0.0..=1.0 + 1e-6).contains(share)));
        shares.iter().map(|share| f64::from(*share)).sum()
    }

    #[test]
    fn the_shares_add_up_to_the_area() {
        for (size, centre) in [(10.0, [12.3, 11.7]), (7.3, [8.01, 5.5]), (16.0, [15.5, 12.0])] {
            let square: f64 = size * size;
            assert!((area(Shape::Square, size, centre) - square).abs() < 1e-4);
            assert!((area(Shape::Triangle, size, centre) - square / 2.0).abs() < 0.2);
            let circle = square * std::f64::consts::FRAC_PI_4;
            assert!((area(Shape::Circle, size, centre) - circle).abs() < 0.2);
        }
    }

    #[test]
    fn a_window_is_a_part_of_the_whole() {
        let outline = Outline { shape: Shape::Triangle, centre: [13.2, 9.9], size: 11.0 };
        let whole = coverage(&outline, WHOLE);
        let window = Window { top: 5, left: 9, height: 8, width: 12 };
        let part = coverage(&outline, window);
        for row in 0..window.height {
            for column in 0..window.width {
                let of_whole = whole[(row + window.top) * WHOLE.width + column + window.left];
                assert!((part[row * window.width + column] - of_whole).abs() < 1e-5);
            }
        }
    }

    /// The point of the triangle is at the top, in the middle.
    #[test]
    fn a_triangle_points_up() {
        let outline = Outline { shape: Shape::Triangle, centre: [10.0, 10.0], size: 10.0 };
        let shares = coverage(&outline, WHOLE);
        let row = |row: usize| shares[row * WHOLE.width..][..WHOLE.width].iter().sum::<f32>();
        assert!((row(5) - 0.5).abs() < 1e-5 && (row(14) - 9.5).abs() < 1e-4);
        assert_eq!((row(4), row(15)), (0.0, 0.0));
    }

    /// What lies outside of the picture is cut off, on every side.
    #[test]
    fn a_shape_may_stick_out() {
        for centre in [[0.0, 12.0], [31.0, 12.0], [15.0, 0.0], [15.0, 24.0]] {
            assert!((area(Shape::Square, 10.0, centre) - 50.0).abs() < 1e-4);
        }
    }
}
