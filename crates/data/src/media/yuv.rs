//! Colours as H.264 stores them: BT.709 in limited range, chroma at half the resolution.

use super::Frame;
use openh264::formats::YUVSource;

/// How much red, green and blue count towards luma in BT.709.
const LUMA: [f32; 3] = [0.2126, 0.7152, 0.0722];

/// Encoders refuse smaller pictures.
const SMALLEST: usize = 16;

/// A frame in planes Y `[height, width]`, Cb and Cr `[height / 2, width / 2]`.
pub(super) struct Yuv {
    height: usize,
    width: usize,
    luma: Vec<u8>,
    blue: Vec<u8>,
    red: Vec<u8>,
}

impl Yuv {
    /// A size that H.264 has for a frame of this height and width: even, and at least 16.
    pub(super) fn size((height, width): (usize, usize)) -> (usize, usize) {
        let coded = |length: usize| length.next_multiple_of(2).max(SMALLEST);
        (coded(height), coded(width))
    }

    /// What the frame lacks to an allowed size repeats its right and lower edge.
    pub(super) fn new(frame: &Frame) -> Yuv {
        let (height, width) = Yuv::size(frame.size());
        let mut yuv = Yuv {
            height,
            width,
            luma: Vec::with_capacity(height * width),
            blue: Vec::with_capacity(height * width / 4),
            red: Vec::with_capacity(height * width / 4),
        };
        for row in 0..height {
            yuv.luma
                .extend((0..width).map(|column| level(219.0 * luma(frame.at(row, column)), 16)));
        }
        for row in (0..height).step_by(2) {
            for column in (0..width).step_by(2) {
                let [red, green, blue] = mean(frame, row, column);
                let luma = luma([red, green, blue]);
                yuv.blue.push(level(224.0 * (blue - luma) / (2.0 - 2.0 * LUMA[2]), 128));
                yuv.red.push(level(224.0 * (red - luma) / (2.0 - 2.0 * LUMA[0]), 128));
            }
        }
        yuv
    }
}

impl YUVSource for Yuv {
    fn dimensions(&self) -> (usize, usize) {
        (self.width, self.height)
    }

    fn strides(&self) -> (usize, usize, usize) {
        (self.width, self.width / 2, self.width / 2)
    }

    fn y(&self) -> &[u8] {
        &self.luma
    }

    fn u(&self) -> &[u8] {
        &self.blue
    }

    fn v(&self) -> &[u8] {
        &self.red
    }
}

fn luma(colour: [f32; 3]) -> f32 {
    colour.iter().zip(LUMA).map(|(channel, weight)| channel * weight).sum()
}

/// The mean colour of the two by two pixels that share their chroma.
fn mean(frame: &Frame, row: usize, column: usize) -> [f32; 3] {
    let pixels = [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(y, x)| frame.at(row + y, column + x));
    [0, 1, 2].map(|channel| pixels.iter().map(|pixel| pixel[channel]).sum::<f32>() / 4.0)
}

fn level(distance: f32, zero: u8) -> u8 {
    (distance + f32::from(zero)).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corners of the RGB cube, as BT.709 defines them for eight bits.
    #[test]
    fn known_colours_have_their_levels() {
        for (colour, want) in [
            ([0.0, 0.0, 0.0], [16, 128, 128]),
            ([1.0, 1.0, 1.0], [235, 128, 128]),
            ([1.0, 0.0, 0.0], [63, 102, 240]),
            ([0.0, 1.0, 0.0], [173, 42, 26]),
            ([0.0, 0.0, 1.0], [32, 240, 118]),
        ] {
            let yuv = Yuv::new(&Frame::new(16, 16, colour.repeat(256)).unwrap());
            assert_eq!([yuv.luma[0], yuv.blue[0], yuv.red[0]], want, "{colour:?}");
            assert_eq!((yuv.luma.len(), yuv.blue.len(), yuv.red.len()), (256, 64, 64));
        }
    }

    #[test]
    fn odd_and_small_frames_repeat_their_edges() {
        assert_eq!(Yuv::size((33, 7)), (34, 16));
        assert_eq!(Yuv::size((480, 832)), (480, 832));
        let column = |x: usize| [x as f32 / 18.0; 3];
        let row: Vec<f32> = (0..19).flat_map(column).collect();
        let yuv = Yuv::new(&Frame::new(17, 19, row.repeat(17)).unwrap());
        assert_eq!(yuv.dimensions(), (20, 18));
        assert_eq!(yuv.luma[18..22], [235, 235, 16, 28]);
        assert_eq!(yuv.luma[17 * 20..], yuv.luma[..20]);
    }
}
