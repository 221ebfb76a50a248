//! One picture of a clip.

use super::{Error, Result};

/// A picture `[height, width, 3]`: red, green and blue from 0 to 1, as a screen shows them.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    height: usize,
    width: usize,
    values: Vec<f32>,
}

impl Frame {
    /// From `height * width * 3` values, which are cut to 0 and 1.
    ///
    /// # Errors
    ///
    /// If there are no pixels, or not as many as the size says.
    pub fn new(height: usize, width: usize, mut values: Vec<f32>) -> Result<Frame> {
        check(height, width, values.len())?;
        values.iter_mut().for_each(|value| *value = value.clamp(0.0, 1.0));
        Ok(Frame { height, width, values })
    }

    /// From `height * width * 3` bytes.
    ///
    /// # Errors
    ///
    /// If there are no pixels, or not as many as the size says.
    pub fn from_bytes(height: usize, width: usize, bytes: &[u8]) -> Result<Frame> {
        check(height, width, bytes.len())?;
        let values = bytes.iter().map(|byte| f32::from(*byte) / 255.0).collect();
        Ok(Frame { height, width, values })
    }

    /// Height and width.
    pub fn size(&self) -> (usize, usize) {
        (self.height, self.width)
    }

    /// The values `[height, width, 3]`.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The bytes `[height, width, 3]`, rounded half to even, as numpy and diffusers do.
    pub fn bytes(&self) -> Vec<u8> {
        self.values.iter().map(|value| (value * 255.0).round_ties_even() as u8).collect()
    }

    /// The bytes of a PNG file of it.
    ///
    /// # Errors
    ///
    /// If it is larger than such a file can be.
    pub fn png(&self) -> Result<Vec<u8>> {
        let encoded = super::sheet::png(&self.bytes(), self.height, self.width);
        encoded.map_err(|reason| Error::Encode { path: "a picture".into(), reason })
    }

    /// A picture whose sides are so many times shorter: means of squares.
    ///
    /// # Errors
    ///
    /// None that a frame can have.
    pub fn shrunk(&self, by: usize) -> Result<Frame> {
        let (height, width) = self.size();
        let (tall, wide) = ((height / by.max(1)).max(1), (width / by.max(1)).max(1));
        let (high, broad) = (height / tall, width / wide);
        let mean = |at: usize| {
            let (row, column, channel) = (at / 3 / wide, at / 3 % wide, at % 3);
            let own = |row: usize, column: usize| self.values[3 * (row * width + column) + channel];
            let rows = row * high..(row + 1) * high;
            let sum: f32 = rows
                .map(|row| {
                    (column * broad..(column + 1) * broad).map(|at| own(row, at)).sum::<f32>()
                })
                .sum();
            sum / (high * broad) as f32
        };
        Frame::new(tall, wide, (0..3 * tall * wide).map(mean).collect())
    }

    /// The colour at a row and a column; beyond an edge, that of the edge.
    pub(super) fn at(&self, row: usize, column: usize) -> [f32; 3] {
        let (row, column) = (row.min(self.height - 1), column.min(self.width - 1));
        let start = 3 * (row * self.width + column);
        [self.values[start], self.values[start + 1], self.values[start + 2]]
    }
}

fn check(height: usize, width: usize, found: usize) -> Result<()> {
    let is_full =
        found > 0 && height.checked_mul(width).and_then(|n| n.checked_mul(3)) == Some(found);
    if is_full { Ok(()) } else { Err(Error::Values { height, width, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_halves_round_to_even() {
        let bytes: Vec<u8> = (0..=254).chain([255; 3]).collect();
        assert_eq!(Frame::from_bytes(2, 43, &bytes).unwrap().bytes(), bytes);
        let values = vec![0.5 / 255.0, 1.5 / 255.0, 2.5 / 255.0, -1.0, 2.0, f32::NAN];
        assert_eq!(Frame::new(1, 2, values).unwrap().bytes(), [0, 2, 2, 0, 255, 0]);
    }

    #[test]
    fn a_frame_has_as_many_values_as_its_size_says() {
        for (height, width, count) in [(0, 4, 0), (2, 2, 11), (2, 2, 13), (usize::MAX, 3, 9)] {
            let message = Frame::new(height, width, vec![0.0; count]).unwrap_err().to_string();
            assert!(message.ends_with(&format!("not {count}")), "{message}");
        }
    }

    #[test]
    fn squares_become_their_means() {
        let values = (0..4 * 4 * 3).map(|at| if at / 3 % 2 == 0 { 0.0 } else { 1.0 }).collect();
        let small = Frame::new(4, 4, values).unwrap().shrunk(2).unwrap();
        assert_eq!(small.size(), (2, 2));
        assert!(small.values().iter().all(|value| (value - 0.5).abs() < 1e-6));
        let narrow = Frame::new(2, 1000, vec![1.0; 6000]).unwrap();
        assert_eq!(narrow.shrunk(4).unwrap().size(), (1, 250));
    }
}
