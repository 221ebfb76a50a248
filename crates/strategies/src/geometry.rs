//! How a family cuts latents into tokens and measures where they are.

use burn::tensor::{Device, Tensor, TensorData};
use diffusion::{AudioClock, Coordinates};
use nn::{Frame, patchify};
use train::{Error, Result, VideoLatents};

/// What a strategy must know about a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geometry {
    /// Latent frames, rows and columns per token.
    pub patch: [usize; 3],
    /// Pixels per latent row and column.
    pub pixels: [usize; 2],
    /// How places are measured.
    pub coordinates: Coordinates,
    /// How the sound's codec cuts time.
    pub clock: AudioClock,
    /// Whether the network is told the size of the picture.
    pub told_size: bool,
}

impl Geometry {
    /// Token indices for places, patches of `patch`, a codec of 8 pixels per latent, LTX-2's clock.
    pub fn indices(patch: [usize; 3]) -> Geometry {
        let coordinates = Coordinates::indices();
        let clock = AudioClock::ltx2();
        Geometry { patch, pixels: [8, 8], coordinates, clock, told_size: false }
    }

    /// The grid of tokens of latents `[B, C, F, H, W]`.
    ///
    /// # Errors
    /// A size is not a multiple of the patch.
    pub(crate) fn grid(&self, source: &str, latents: &Tensor<5>) -> Result<[usize; 3]> {
        let [_, _, frames, rows, columns] = latents.dims();
        let sizes = [frames, rows, columns];
        match (0..3).find(|axis| !sizes[*axis].is_multiple_of(self.patch[*axis])) {
            None => Ok(std::array::from_fn(|axis| sizes[axis] / self.patch[axis])),
            Some(_) => Err(Error::Shape {
                what: format!("source `{source}`"),
                got: format!("{sizes:?} latents"),
                want: format!("the model takes patches of {:?}", self.patch),
            }),
        }
    }

    /// Tokens `[B, N, C]` and their places `[B, axes, N, 2]`; every sample plays at its own rate.
    ///
    /// # Errors
    /// A size is not a multiple of the patch.
    pub(crate) fn video(
        &self,
        source: &str,
        latents: &VideoLatents,
    ) -> Result<(Tensor<3>, Tensor<4>, [usize; 3])> {
        let grid = self.grid(source, &latents.values)?;
        let device = latents.values.device();
        let positions = self.coordinates.positions(grid, &latents.rates, &device);
        Ok((patchify(latents.values.clone(), self.patch), positions, grid))
    }

    /// Tokens `[B, T, C F]` of sound latents `[B, C, T, F]`, and their places.
    pub(crate) fn audio(&self, latents: &Tensor<4>) -> (Tensor<3>, Tensor<4>) {
        let [batch, channels, time, bins] = latents.dims();
        let tokens = latents.clone().permute([0, 2, 1, 3]).reshape([batch, time, channels * bins]);
        let positions = self.clock.positions(time, batch, &latents.device());
        (tokens, positions)
    }

    /// The size of the picture, for families that are told it.
    pub(crate) fn frame(&self, latents: &Tensor<5>) -> Option<Frame> {
        let [batch, _, _, rows, columns] = latents.dims();
        let [height, width] = [rows * self.pixels[0], columns * self.pixels[1]].map(|x| x as f32);
        let device = latents.device();
        self.told_size.then(|| Frame {
            resolution: repeated(&[height, width], batch, &device),
            aspect_ratio: repeated(&[height / width], batch, &device),
        })
    }
}

fn repeated(row: &[f32], batch: usize, device: &Device) -> Tensor<2> {
    Tensor::from_data(TensorData::new(row.repeat(batch), [batch, row.len()]), device)
}
