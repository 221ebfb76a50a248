//! The video autoencoder of Wan 2.1 and 2.2 (diffusers' `AutoencoderKLWan`): causal convolutions
//! over time and space with a little attention inside each frame of the lowest level.
//!
//! A latent frame stands for four frames, the first for one alone. No frame looks at a later one,
//! so a clip streams through: each layer keeps the last two frames it saw, and decoded frames are
//! handed out as they come. Clips and latents are `[B, C, F, H, W]`, decoded frames `[H, W, C]`;
//! inside, every frame is a tensor of its own, channels last.

mod config;
mod decoder;
mod encoder;
mod layers;
mod network;
mod resample;
mod shortcut;
mod tiling;

use burn::tensor::{Tensor, TensorData};
use nn::{Error, Result, Weights};

pub use self::config::WanVaeConfig;
use self::decoder::decoder;
use self::encoder::encoder;
pub use self::tiling::Tiling;
use self::tiling::{of_latents, of_pixels};
pub use super::DecodedFrame;
use super::frames::{FrameTensor, clips, frame};
use super::patch::{patchify, unpatchify};
use super::{ClipDecode, Moments, Vae, taken};

/// Frames that are given to the encoder at a time.
const ENCODED_TOGETHER: usize = 4;

/// The autoencoder; its weights are given to each call.
#[derive(Clone, Debug)]
pub struct AutoencoderKlWan {
    /// What it is made of.
    pub config: WanVaeConfig,
}

impl AutoencoderKlWan {
    /// The model of a config.
    pub fn new(config: WanVaeConfig) -> AutoencoderKlWan {
        AutoencoderKlWan { config }
    }

    /// How many frames `latent_frames` latent frames stand for.
    pub fn frames(&self, latent_frames: usize) -> usize {
        1 + self.config.temporal_factor() * (latent_frames - 1)
    }

    /// Latents of this VAE as a diffusion model sees them: of mean 0 and deviation 1 per channel.
    pub fn standardised(&self, latents: Tensor<5>) -> Tensor<5> {
        let [mean, deviation] = self.statistics(&latents);
        (latents - mean) / deviation
    }

    /// Latents of a diffusion model in this VAE's own scale.
    pub fn restored(&self, latents: Tensor<5>) -> Tensor<5> {
        let [mean, deviation] = self.statistics(&latents);
        latents * deviation + mean
    }

    /// Mean and deviation, `[1, latent, 1, 1, 1]` each.
    fn statistics(&self, like: &Tensor<5>) -> [Tensor<5>; 2] {
        [&self.config.latents_mean, &self.config.latents_std].map(|values| {
            let values: Vec<f32> = values.iter().map(|&value| value as f32).collect();
            let shape = [1, values.len(), 1, 1, 1];
            Tensor::from_data(TensorData::new(values, shape), &like.device())
        })
    }

    /// Decodes latents `[B, latent, f, h, w]` in the VAE's own scale, handing each frame to `take`
    /// in order, sample after sample, as soon as it is done; in tiles, after the last tile.
    ///
    /// `progress` is told the frames done, of all samples and tiles, and those in all.
    ///
    /// # Errors
    /// The latents do not fit the model, a parameter is missing or misshapen, or `take` fails.
    pub fn decode<E: From<Error>>(
        &self,
        weights: &Weights<'_>,
        latents: Tensor<5>,
        tiling: Option<&Tiling>,
        take: &mut dyn FnMut(DecodedFrame) -> Result<(), E>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(), E> {
        let [batch, _, count, height, width] = self.accepts_latents(latents.dims())?;
        let grid = of_latents([height, width], &self.config, tiling)?;
        let total = batch * grid.tiles() * self.frames(count);
        let mut done = 0;
        let mut tell = |frames: usize| {
            done += frames;
            progress(done, total);
        };
        for sample in 0..batch {
            let frames: Vec<FrameTensor> =
                (0..count).map(|index| frame(&latents, sample, index)).collect();
            let mut index = 0;
            let mut emit = |frames: Vec<FrameTensor>| {
                frames.into_iter().try_for_each(|frame| {
                    let pixels = unpatchify(frame, self.config.patch).clamp(-1.0, 1.0);
                    index += 1;
                    take(DecodedFrame { sample, index: index - 1, pixels })
                })
            };
            if grid.tiles() > 1 {
                let frames =
                    grid.run(&frames, |tile| self.decode_tile(weights, tile, &mut tell))?;
                emit(frames)?;
                continue;
            }
            decoder(&self.config, weights)?.push(frames, &mut |frames| {
                let count = frames.len();
                emit(frames)?;
                tell(count);
                Ok::<_, E>(())
            })?;
        }
        Ok(())
    }

    /// All frames of a tile `[h, w, latent]`, the patch still in the channels.
    fn decode_tile(
        &self,
        weights: &Weights<'_>,
        tile: Vec<FrameTensor>,
        tell: &mut dyn FnMut(usize),
    ) -> Result<Vec<FrameTensor>> {
        let mut all = Vec::new();
        decoder(&self.config, weights)?.push(tile, &mut |frames| {
            tell(frames.len());
            all.extend(frames);
            Ok::<_, Error>(())
        })?;
        Ok(all)
    }

    /// [`AutoencoderKlWan::decode`] into one tensor `[B, channels, F, H, W]`.
    ///
    /// # Errors
    /// The latents do not fit the model, or a parameter is missing or misshapen.
    pub fn decode_all(
        &self,
        weights: &Weights<'_>,
        latents: Tensor<5>,
        tiling: Option<&Tiling>,
    ) -> Result<Tensor<5>> {
        let batch = latents.dims()[0];
        let mut frames = Vec::new();
        let mut take = |frame: DecodedFrame| {
            frames.push(frame.pixels);
            Ok::<_, Error>(())
        };
        self.decode(weights, latents, tiling, &mut take, &mut |_, _| {})?;
        Ok(clips(frames, batch))
    }

    /// The moments `[B, latent, f, h, w]` of the latents of clips `[B, channels, F, H, W]`, from -1
    /// to 1, of `1 + 4 k` frames.
    ///
    /// `progress` is told the latent frames done, of all samples and tiles, and those in all.
    ///
    /// # Errors
    /// The clips do not fit the model, or a parameter is missing or misshapen.
    pub fn encode(
        &self,
        weights: &Weights<'_>,
        clips: Tensor<5>,
        tiling: Option<&Tiling>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Moments<5>> {
        let [batch, _, count, height, width] = self.accepts_clips(clips.dims())?;
        let grid = of_pixels([height, width], &self.config, tiling)?;
        let latent_frames = 1 + (count - 1) / self.config.temporal_factor();
        let total = batch * grid.tiles() * latent_frames;
        let mut done = 0;
        let mut tell = |frames: usize| {
            done += frames;
            progress(done, total);
        };
        let mut all = Vec::with_capacity(batch * latent_frames);
        for sample in 0..batch {
            let patched = |index: usize| patchify(frame(&clips, sample, index), self.config.patch);
            let frames: Vec<FrameTensor> = (0..count).map(patched).collect();
            all.extend(grid.run(&frames, |tile| self.encode_tile(weights, &tile, &mut tell))?);
        }
        Ok(Moments::new(super::frames::clips(all, batch)))
    }

    /// The moments of all latent frames of a tile.
    fn encode_tile(
        &self,
        weights: &Weights<'_>,
        tile: &[FrameTensor],
        tell: &mut dyn FnMut(usize),
    ) -> Result<Vec<FrameTensor>> {
        let mut all = Vec::new();
        let mut network = encoder(&self.config, weights)?;
        for frames in tile.chunks(ENCODED_TOGETHER) {
            network.push(frames.to_vec(), &mut |frames| {
                tell(frames.len());
                all.extend(frames);
                Ok::<_, Error>(())
            })?;
        }
        Ok(all)
    }

    fn accepts_latents(&self, got: [usize; 5]) -> Result<[usize; 5]> {
        let channels = self.config.latent_channels;
        let [_, given, frames, height, width] = got;
        if given == channels && frames > 0 && height > 0 && width > 0 {
            return Ok(got);
        }
        Err(Error::Shape {
            what: "a latent",
            got: format!("{got:?}"),
            want: format!(
                "this VAE takes [batch, {channels}, frames, height, width], each at least 1"
            ),
        })
    }

    fn accepts_clips(&self, got: [usize; 5]) -> Result<[usize; 5]> {
        let [_, given, frames, height, width] = got;
        let channels = self.config.in_channels / (self.config.patch * self.config.patch);
        let factor = self.config.spatial_factor();
        // Means over pixels need whole squares; without them, what is left over has no latent.
        let grain = if self.config.residual { factor } else { 1 };
        let fits = |side: usize| side >= factor && side.is_multiple_of(grain);
        let refused =
            |want: String| Err(Error::Shape { what: "a clip", got: format!("{got:?}"), want });
        if given != channels || !fits(height) || !fits(width) {
            let sides = match grain {
                1 => format!("of at least {factor}"),
                _ => format!("that are multiples of {grain}"),
            };
            return refused(format!(
                "this VAE takes [batch, {channels}, frames, height, width] with sides {sides}"
            ));
        }
        let step = self.config.temporal_factor();
        if frames % step == 1 {
            return Ok(got);
        }
        let below = frames.saturating_sub(1) / step * step + 1;
        refused(match frames {
            0 => "a clip has at least 1 frame".to_owned(),
            _ => format!("a clip has 1 + {step} k frames: take {below} or {}", below + step),
        })
    }
}

impl Vae for AutoencoderKlWan {
    fn declare_encoder(&self, weights: &Weights<'_>) -> Result<()> {
        encoder(&self.config, weights).map(drop)
    }

    fn declare_decoder(&self, weights: &Weights<'_>) -> Result<()> {
        decoder(&self.config, weights).map(drop)
    }

    fn latent_channels(&self) -> usize {
        self.config.latent_channels
    }

    fn encode_clip(&self, weights: &Weights<'_>, clip: Tensor<5>) -> Result<Tensor<5>> {
        Ok(self.standardised(self.encode(weights, clip, None, &mut |_, _| {})?.mean))
    }

    fn decode_clips(&self, decode: ClipDecode<'_>) -> Result<()> {
        let ClipDecode { weights, latents, tiled, take, progress } = decode;
        let tiling = tiled.then(Tiling::default);
        let latents = self.restored(latents);
        taken(take, |take| self.decode(weights, latents, tiling.as_ref(), take, progress))
    }
}
