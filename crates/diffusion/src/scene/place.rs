//! Where tokens are: in space and time for video, in time for sound.

use burn::tensor::{Device, Tensor, TensorData};

/// How a family measures the places of video tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coordinates {
    /// What the first axis counts.
    pub time: Time,
    /// The extent of one token along frames, rows and columns, in the family's units.
    pub scale: [f64; 3],
    /// The extent of all rows, and of all columns, however many there are, instead of their scale.
    pub span: Option<f64>,
}

/// What the time axis of a family counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// There is none: rows and columns only.
    Absent,
    /// Units of the scale, from 0.
    Frames,
    /// Seconds of a causal codec, whose first latent frame holds one picture and every later one as
    /// many as the scale says.
    CausalSeconds,
}

impl Coordinates {
    /// Indices of tokens: frame, row, column.
    pub fn indices() -> Coordinates {
        Coordinates { time: Time::Frames, scale: [1.0; 3], span: None }
    }

    /// Positions `[B, axes, T, 2]` of a grid of `[frames, rows, columns]` tokens, for one frame rate
    /// per sample: where each token begins and ends.
    pub fn positions(&self, grid: [usize; 3], rates: &[f64], device: &Device) -> Tensor<4> {
        let tokens = grid.iter().product();
        let first = usize::from(self.time == Time::Absent);
        let mut values = Vec::with_capacity(rates.len() * (3 - first) * tokens * 2);
        for rate in rates {
            for axis in first..3 {
                let inner: usize = grid[axis + 1..].iter().product();
                for token in 0..tokens {
                    let index = token / inner % grid[axis];
                    let at = |index| self.at(axis, (index, grid[axis]), *rate);
                    values.extend([index, index + 1].map(at));
                }
            }
        }
        Tensor::from_data(TensorData::new(values, [rates.len(), 3 - first, tokens, 2]), device)
    }

    /// The same of a grid of `[rows, columns]` tokens that show the single frame `frame`, in the latent frame `latent`.
    pub fn of_frame(
        &self,
        [rows, columns]: [usize; 2],
        (frame, latent): (usize, usize),
        rate: f64,
        device: &Device,
    ) -> Tensor<4> {
        let positions = self.positions([1, rows, columns], &[rate], device);
        let time: [f32; 2] = match self.time {
            Time::Absent => return positions,
            Time::Frames => [latent, latent + 1].map(|at| (at as f64 * self.scale[0]) as f32),
            // The division is f32's, as the reference does it.
            Time::CausalSeconds => [frame, frame + 1].map(|at| at as f32 / rate as f32),
        };
        let tokens = rows * columns;
        let time = TensorData::new(time.repeat(tokens), [1, 1, tokens, 2]);
        let places = positions.slice_dim(1, 1..3);
        Tensor::cat(vec![Tensor::from_data(time, device), places], 1)
    }

    fn at(&self, axis: usize, (index, count): (usize, usize), rate: f64) -> f32 {
        let scale = match self.span.filter(|_| axis > 0) {
            Some(span) => span / count as f64,
            None => self.scale[axis],
        };
        let place = index as f64 * scale;
        match self.time {
            Time::CausalSeconds if axis == 0 => {
                // The division is f32's, as the reference does it.
                (place + 1.0 - self.scale[0]).max(0.0) as f32 / rate as f32
            }
            _ => place as f32,
        }
    }
}

/// How an audio codec cuts time: samples per second, samples per spectrogram frame, frames per
/// latent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AudioClock {
    /// Samples per second.
    pub rate: u32,
    /// Samples per frame of the spectrogram.
    pub hop: u32,
    /// Frames of the spectrogram per latent; the codec is causal, so the first latent holds one.
    pub factor: u32,
}

impl AudioClock {
    /// LTX-2's, the only one that is published: 25 latents a second.
    pub fn usual() -> AudioClock {
        AudioClock { rate: 16_000, hop: 160, factor: 4 }
    }

    /// Latents per second.
    pub fn latents_per_second(&self) -> f64 {
        f64::from(self.rate) / f64::from(self.hop) / f64::from(self.factor)
    }

    /// How many latents a sound of so many seconds has: of two equally near numbers the even one.
    pub fn steps(&self, seconds: f64) -> f64 {
        (seconds * self.latents_per_second()).round_ties_even()
    }

    /// Positions `[batch, 1, latents, 2]` in seconds.
    pub fn positions(&self, latents: usize, batch: usize, device: &Device) -> Tensor<4> {
        let factor = f64::from(self.factor);
        let second = |index: usize| {
            let frame = (factor * index as f64 + 1.0 - factor).max(0.0);
            (frame * f64::from(self.hop) / f64::from(self.rate)) as f32
        };
        let one = (0..latents).flat_map(|index| [second(index), second(index + 1)]);
        let values = TensorData::new(one.collect::<Vec<_>>(), [1, 1, latents, 2]);
        Tensor::<4>::from_data(values, device).expand([batch, 1, latents, 2])
    }
}

/// Moves the places of a reference onto its target's: `positions` `[B, 3, R, 2]` of a reference whose
/// pictures are `space` times smaller and which has `time` times fewer of them.
///
/// `target` are the target's positions; the end of its first token is the length of one picture.
pub fn align_reference(
    positions: Tensor<4>,
    target: &Tensor<4>,
    space: usize,
    time: usize,
) -> Tensor<4> {
    let [batch, axes, tokens, _] = positions.dims();
    let mut seconds = positions.clone().narrow(1, 0, 1);
    if time != 1 {
        let picture = target.clone().slice([0..batch, 0..1, 0..1, 1..2]);
        seconds = (seconds - picture * (time as f64 - 1.0)).clamp_min(0.0);
    }
    let plane = positions.slice([0..batch, 1..axes, 0..tokens, 0..2]) * space as f64;
    Tensor::cat(vec![seconds, plane], 1)
}

#[cfg(test)]
mod tests {
    use super::{Coordinates, Time};
    use burn::tensor::Device;

    /// A picture of frame 9 at 12 frames a second lasts for that frame, whatever group the codec puts it into.
    #[test]
    fn a_single_frame_has_the_place_of_that_frame() {
        let values = |time| {
            let coordinates = Coordinates { time, scale: [8.0, 32.0, 32.0], span: None };
            let places = coordinates.of_frame([1, 2], (9, 2), 12.0, &Device::flex());
            places.into_data().iter::<f32>().collect::<Vec<_>>()
        };
        let plane = [0.0, 32.0, 0.0, 32.0, 0.0, 32.0, 32.0, 64.0];
        let seconds = [9.0 / 12.0, 10.0 / 12.0];
        assert_eq!(values(Time::CausalSeconds), [&seconds.repeat(2)[..], &plane].concat());
        assert_eq!(values(Time::Frames), [&[16.0, 24.0].repeat(2)[..], &plane].concat());
        assert_eq!(values(Time::Absent), plane);
    }
}
