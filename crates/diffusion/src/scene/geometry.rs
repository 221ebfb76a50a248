//! How a family cuts clips into latents and latents into tokens, and measures where tokens are.
//!
//! Strategies use it to make scenes of batches, the engine to make scenes of requests: what a network
//! is told about sizes and places is computed here and nowhere else.

use burn::tensor::{Device, Tensor, TensorData};
use nn::{SizeCondition, patchify};

use super::{AudioClock, Coordinates};
use crate::{Error, Result};

/// The cuts of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Latent frames, rows and columns per token.
    pub patch: [usize; 3],
    /// Frames, rows and columns of pixels per latent.
    pub factors: [usize; 3],
    /// How the VAE groups frames.
    pub grouping: Grouping,
    /// How places are measured.
    pub coordinates: Coordinates,
    /// How the sound's codec cuts time.
    pub clock: AudioClock,
    /// Whether the network is told the size of the picture.
    pub told_size: bool,
}

/// How a VAE groups frames into latent frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// It knows pictures only.
    Picture,
    /// The first frame alone, then groups of as many as the factor says.
    Causal,
    /// Groups from the first frame on.
    Even,
}

/// Latents as tokens.
#[derive(Clone, Debug)]
pub struct Tokens {
    /// `[B, N, C]`.
    pub values: Tensor<3>,
    /// Where they are, `[B, axes, N, 2]`.
    pub positions: Tensor<4>,
    /// Frames, rows and columns of tokens.
    pub grid: [usize; 3],
    /// Latent frames, rows and columns per token.
    pub patch: [usize; 3],
}

impl Geometry {
    /// Token indices for places, patches of `patch`, a causal VAE of 4 frames and 8 x 8 pixels per
    /// latent, the usual clock.
    pub fn indices(patch: [usize; 3]) -> Geometry {
        Geometry {
            patch,
            factors: [4, 8, 8],
            grouping: Grouping::Causal,
            coordinates: Coordinates::indices(),
            clock: AudioClock::usual(),
            told_size: false,
        }
    }

    /// Latent frames, rows and columns of a clip of `[frames, height, width]` pixels.
    ///
    /// # Errors
    /// Frames do not fill whole groups, or a side does not fill whole tokens; the nearest that do are
    /// named.
    pub fn latents(&self, [frames, height, width]: [usize; 3]) -> Result<[usize; 3]> {
        let side = |what, got: usize, axis: usize| {
            let step = self.factors[axis] * self.patch[axis];
            match got > 0 && got.is_multiple_of(step) {
                true => Ok(got / self.factors[axis]),
                false => {
                    let nearest = ((got + step / 2) / step).max(1) * step;
                    Err(Error::Size { what, got, step, nearest })
                }
            }
        };
        let latent_frames = self.latent_frames(frames)?;
        if !latent_frames.is_multiple_of(self.patch[0]) {
            return Err(Error::FramePatch { frames, latent_frames, patch: self.patch[0] });
        }
        Ok([latent_frames, side("height", height, 1)?, side("width", width, 2)?])
    }

    /// Latent frames of so many frames.
    ///
    /// # Errors
    /// They do not fill whole groups.
    pub fn latent_frames(&self, frames: usize) -> Result<usize> {
        let step = self.factors[0];
        let refuse = |rule: String, nearest: String| Err(Error::Frames { frames, rule, nearest });
        match self.grouping {
            Grouping::Picture if frames == 1 => Ok(1),
            Grouping::Picture => refuse("1: this model makes pictures".to_owned(), "1".to_owned()),
            Grouping::Causal if frames % step == 1 % step && frames > 0 => {
                Ok((frames - 1) / step + 1)
            }
            Grouping::Causal => {
                let below = frames.saturating_sub(1) / step * step + 1;
                let nearest = match frames {
                    0 => "1".to_owned(),
                    _ => format!("{below} or {}", below + step),
                };
                refuse(format!("1 + a multiple of {step}"), nearest)
            }
            Grouping::Even if frames > 0 && frames.is_multiple_of(step) => Ok(frames / step),
            Grouping::Even => {
                let nearest = ((frames + step / 2) / step).max(1) * step;
                refuse(format!("a multiple of {step}"), nearest.to_string())
            }
        }
    }

    /// Frames that so many latent frames stand for.
    pub fn frames(&self, latent_frames: usize) -> usize {
        match self.grouping {
            Grouping::Picture => latent_frames,
            Grouping::Causal => 1 + self.factors[0] * latent_frames.saturating_sub(1),
            Grouping::Even => self.factors[0] * latent_frames,
        }
    }

    /// The latent frame that a frame belongs to.
    pub fn latent_frame(&self, frame: usize) -> usize {
        match self.grouping {
            Grouping::Picture => frame,
            Grouping::Causal => frame.div_ceil(self.factors[0]),
            Grouping::Even => frame / self.factors[0],
        }
    }

    /// Which tokens hold a pixel that `pixels` marks, of a clip of `[frames, height, width]`.
    pub fn touched_tokens(
        &self,
        pixels: &[bool],
        [frames, height, width]: [usize; 3],
    ) -> Vec<bool> {
        let token = |axis: usize, latent: usize| latent / self.patch[axis];
        let row = |row: usize| token(1, row / self.factors[1]);
        let column = |column: usize| token(2, column / self.factors[2]);
        let (rows, columns) = (row(height - 1) + 1, column(width - 1) + 1);
        let deep = token(0, self.latent_frame(frames - 1)) + 1;
        let mut tokens = vec![false; deep * rows * columns];
        for (at, _) in pixels.iter().enumerate().filter(|(_, marked)| **marked) {
            let frame = token(0, self.latent_frame(at / (height * width)));
            let place = (frame * rows + row(at / width % height)) * columns + column(at % width);
            tokens[place] = true;
        }
        tokens
    }

    /// Frames, rows and columns of tokens of latents `[B, C, F, H, W]`.
    ///
    /// # Errors
    /// A size is not a multiple of the patch.
    pub fn grid(&self, latents: &Tensor<5>) -> Result<[usize; 3]> {
        let [_, _, frames, rows, columns] = latents.dims();
        let sizes = [frames, rows, columns];
        match (0..3).all(|axis| sizes[axis].is_multiple_of(self.patch[axis])) {
            true => Ok(std::array::from_fn(|axis| sizes[axis] / self.patch[axis])),
            false => Err(Error::Patch { latents: sizes, patch: self.patch }),
        }
    }

    /// Latents `[B, C, F, H, W]` as tokens; every sample plays at its own rate of frames a second.
    ///
    /// # Errors
    /// A size is not a multiple of the patch.
    pub fn video(&self, latents: &Tensor<5>, rates: &[f64]) -> Result<Tokens> {
        let grid = self.grid(latents)?;
        let positions = self.coordinates.positions(grid, rates, &latents.device());
        let values = patchify(latents.clone(), self.patch);
        Ok(Tokens { values, positions, grid, patch: self.patch })
    }

    /// Latents `[1, C, 1, H, W]` of a picture as tokens at the place of the single frame `frame` of a clip.
    ///
    /// # Errors
    /// A size is not a multiple of the patch.
    pub fn still(&self, latents: &Tensor<5>, frame: usize, rate: f64) -> Result<Tokens> {
        let tokens = self.video(latents, &[rate])?;
        let [_, rows, columns] = tokens.grid;
        let latent = self.latent_frame(frame) / self.patch[0];
        let (place, device) = ((frame, latent), latents.device());
        let positions = self.coordinates.of_frame([rows, columns], place, rate, &device);
        Ok(Tokens { positions, ..tokens })
    }

    /// Sound latents `[B, C, T, F]` (channels, time, frequency bins) as tokens `[B, T, C F]`.
    pub fn audio(&self, latents: &Tensor<4>) -> Tokens {
        let [batch, _, time, bins] = latents.dims();
        let patch = [1, bins, 1];
        let values = patchify(latents.clone().unsqueeze_dim::<5>(4), patch);
        let positions = self.clock.positions(time, batch, &latents.device());
        Tokens { values, positions, grid: [time, 1, 1], patch }
    }

    /// The size of the picture that latents `[B, C, F, H, W]` stand for, for families that are told it.
    pub fn size_condition(&self, latents: &Tensor<5>) -> Option<SizeCondition> {
        let [batch, _, _, rows, columns] = latents.dims();
        let [_, high, wide] = self.factors;
        let [height, width] = [rows * high, columns * wide].map(|side| side as f32);
        let device = latents.device();
        self.told_size.then(|| SizeCondition {
            resolution: repeated(&[height, width], batch, &device),
            aspect_ratio: repeated(&[height / width], batch, &device),
        })
    }
}

fn repeated(row: &[f32], batch: usize, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(row.repeat(batch), [batch, row.len()]), device)
}

#[cfg(test)]
mod tests {
    use super::{Geometry, Grouping};

    fn geometry(grouping: Grouping, factors: [usize; 3], patch: [usize; 3]) -> Geometry {
        Geometry { grouping, factors, ..Geometry::indices(patch) }
    }

    #[test]
    fn the_nearest_legal_size_is_named() {
        let picture = geometry(Grouping::Picture, [1, 8, 8], [1, 2, 2]);
        assert_eq!(picture.latents([1, 64, 32]).unwrap(), [1, 8, 4]);
        for (got, nearest) in [(65, "64"), (72, "80"), (3, "16"), (0, "16")] {
            let message = picture.latents([1, got, 64]).unwrap_err().to_string();
            assert!(message.ends_with(&format!("the nearest is {nearest}")), "{message}");
        }
        assert!(picture.latents([2, 64, 64]).is_err());
    }

    #[test]
    fn the_nearest_legal_frame_counts_are_named() {
        let causal = geometry(Grouping::Causal, [4, 8, 8], [1, 2, 2]);
        for (legal, latent) in [(1, 1), (5, 2), (9, 3), (81, 21)] {
            assert_eq!(causal.latent_frames(legal).unwrap(), latent);
            assert_eq!(causal.frames(latent), legal);
        }
        for (got, nearest) in [(0, "1"), (2, "1 or 5"), (8, "5 or 9"), (16, "13 or 17")] {
            let message = causal.latent_frames(got).unwrap_err().to_string();
            assert!(message.ends_with(&format!("the nearest is {nearest}")), "{message}");
        }
        let even = geometry(Grouping::Even, [2, 8, 8], [1, 1, 1]);
        assert_eq!((even.latent_frames(8).unwrap(), even.frames(4)), (4, 8));
        assert!(even.latent_frames(7).is_err() && even.latent_frames(0).is_err());
    }

    /// SizeCondition by frame, each belongs to the latent frame that its group becomes.
    #[test]
    fn frames_belong_to_the_latent_frame_of_their_group() {
        let places = |grouping, factor| {
            let geometry = geometry(grouping, [factor, 8, 8], [1; 3]);
            (0..9).map(|frame| geometry.latent_frame(frame)).collect::<Vec<_>>()
        };
        assert_eq!(places(Grouping::Causal, 4), [0, 1, 1, 1, 1, 2, 2, 2, 2]);
        assert_eq!(places(Grouping::Even, 2), [0, 0, 1, 1, 2, 2, 3, 3, 4]);
    }

    /// One marked pixel marks the one token that holds it, and nothing else.
    #[test]
    fn a_pixel_touches_the_token_that_holds_it() {
        let causal = geometry(Grouping::Causal, [4, 2, 2], [1, 2, 1]);
        let size = [5, 8, 4];
        for (frame, row, column, token) in [(0, 0, 0, 0), (0, 3, 3, 1), (1, 4, 1, 6), (4, 7, 2, 7)]
        {
            let mut pixels = vec![false; 5 * 8 * 4];
            pixels[(frame * 8 + row) * 4 + column] = true;
            let want: Vec<bool> = (0..8).map(|at| at == token).collect();
            assert_eq!(causal.touched_tokens(&pixels, size), want, "{frame} {row} {column}");
        }
    }

    #[test]
    fn a_patch_of_frames_must_divide_the_latent_frames() {
        let deep = geometry(Grouping::Causal, [4, 8, 8], [2, 1, 1]);
        assert!(deep.latents([5, 8, 8]).is_ok());
        let message = deep.latents([9, 8, 8]).unwrap_err().to_string();
        assert!(message.contains("9 frames are 3 latent frames"), "{message}");
    }
}
