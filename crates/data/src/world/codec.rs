//! Latents without a VAE: blocks of pixels become channels, and nothing is lost.
//!
//! A value of a latent is twice the value of a pixel, so that black is 0 and the whole has about the
//! variance that diffusion expects. Sizes that blocks do not divide are refused, never padded.

use burn::tensor::{Device, Tensor, TensorData};
use nn::{patchify, unpatchify};

use crate::clip::{CHANNELS, Clip};
use crate::error::{Error, Result};

/// A latent over a pixel. A power of two, so that there and back is exact.
const SCALE: f32 = 2.0;

/// Clips to latents and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceToDepth {
    block: [usize; 3],
}

impl Default for SpaceToDepth {
    /// Blocks of 2 frames of 8x8 pixels: 384 channels.
    fn default() -> SpaceToDepth {
        SpaceToDepth { block: [2, 8, 8] }
    }
}

impl SpaceToDepth {
    /// Blocks of `[frames, rows, columns]`.
    ///
    /// # Errors
    /// A side is 0.
    pub fn new(block: [usize; 3]) -> Result<SpaceToDepth> {
        if block.contains(&0) {
            let remedy = "every side is at least 1".to_owned();
            return Err(Error::World { what: format!("blocks of {block:?}"), remedy });
        }
        Ok(SpaceToDepth { block })
    }

    /// Frames, rows and columns of a block.
    pub fn block(&self) -> [usize; 3] {
        self.block
    }

    /// Channels of a latent.
    pub fn channels(&self) -> usize {
        CHANNELS * self.block.iter().product::<usize>()
    }

    /// What the latents depend on.
    pub fn fingerprint(&self) -> String {
        let [frames, rows, columns] = self.block;
        format!("space-to-depth {frames}x{rows}x{columns} scale {SCALE}")
    }

    /// Frames, rows and columns of the latents of a clip of `[frames, height, width]`.
    ///
    /// # Errors
    /// A side is not a multiple of the block's.
    pub fn grid(&self, size: [usize; 3]) -> Result<[usize; 3]> {
        for (axis, what) in ["frames", "height", "width"].into_iter().enumerate() {
            let (got, step) = (size[axis], self.block[axis]);
            if got == 0 || !got.is_multiple_of(step) {
                let nearest = ((got + step / 2) / step).max(1) * step;
                return Err(Error::Size { what, got, step, nearest });
            }
        }
        Ok([0, 1, 2].map(|axis| size[axis] / self.block[axis]))
    }

    /// The latents of a clip, `[1, C, f, h, w]`; channels are ordered (colour, frame, row, column).
    ///
    /// # Errors
    /// A side is not a multiple of the block's.
    pub fn encode(&self, clip: &Clip, device: &Device) -> Result<Tensor<5>> {
        let [f, h, w] = self.grid(clip.size())?;
        let pixels: Tensor<5> = clip.to_tensor(device).permute([3, 0, 1, 2]).unsqueeze();
        let tokens = patchify(pixels * SCALE, self.block);
        Ok(tokens.swap_dims(1, 2).reshape([1, self.channels(), f, h, w]))
    }

    /// The clips of latents `[B, C, f, h, w]`.
    ///
    /// # Errors
    /// The latents do not have our channels.
    pub fn decode(&self, latents: Tensor<5>) -> Result<Vec<Clip>> {
        let [batch, channels, f, h, w] = latents.dims();
        if channels != self.channels() {
            return Err(Error::LatentChannels { found: channels, wanted: self.channels() });
        }
        let tokens = latents.reshape([batch, channels, f * h * w]).swap_dims(1, 2);
        let pixels = unpatchify(tokens, [f, h, w], self.block) / SCALE;
        let pixels = pixels.permute([0, 2, 3, 4, 1]);
        (0..batch)
            .map(|at| Clip::from_tensor(pixels.clone().slice_dim(0, at..at + 1).squeeze_dim(0)))
            .collect()
    }
}

/// Waveforms to latents and back: each block of samples is one step of the latents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoundBlocks {
    /// Samples per block.
    pub block: usize,
}

impl SoundBlocks {
    /// What the latents depend on.
    pub fn fingerprint(&self) -> String {
        format!("sound-blocks {} scale {SCALE}", self.block)
    }

    /// The latents of a mono waveform, `[1, block, steps]`.
    ///
    /// # Errors
    /// The samples do not fill whole blocks.
    pub fn encode(&self, samples: &[f32], device: &Device) -> Result<Tensor<3>> {
        let (got, step) = (samples.len(), self.block.max(1));
        if got == 0 || !got.is_multiple_of(step) {
            let nearest = ((got + step / 2) / step).max(1) * step;
            return Err(Error::Size { what: "the number of samples", got, step, nearest });
        }
        let data = TensorData::new(samples.to_vec(), [1, got / step, step]);
        Ok((Tensor::from_data(data, device) * SCALE).swap_dims(1, 2))
    }

    /// The waveforms of latents `[B, block, steps]`.
    ///
    /// # Errors
    /// The latents do not have our channels.
    pub fn decode(&self, latents: Tensor<3>) -> Result<Vec<Vec<f32>>> {
        let [_, channels, steps] = latents.dims();
        if channels != self.block {
            return Err(Error::LatentChannels { found: channels, wanted: self.block });
        }
        let samples = (latents.swap_dims(1, 2) / SCALE).into_data().convert::<f32>();
        let samples: Vec<f32> =
            samples.try_to_vec().map_err(|err| Error::Values { reason: err.to_string() })?;
        Ok(samples.chunks(channels * steps).map(<[f32]>::to_vec).collect())
    }
}
