//! The video autoencoder of LTX-2 (diffusers' `AutoencoderKLLTX2Video`): convolutions over time and space, and
//! steps that turn blocks of frames and pixels into channels.
//!
//! A latent frame stands for several frames, the first for one alone. The encoder looks at no later frame; the
//! decoder does in the published models, so a clip, or a tile of it in time, is decoded whole. Clips and latents
//! are `[B, C, F, H, W]`, decoded frames `[H, W, C]`; inside, every frame is a tensor of its own, channels last.
//!
//! Means and deviations of the latents are tensors of the checkpoint, so whoever standardises needs the weights.

mod config;
mod convolution;
mod layers;
mod network;
mod tiling;
mod written;

use burn::tensor::Tensor;
use nn::{Error, Result, Weights};

pub use self::config::{DownLevel, Half, Ltx2VideoVaeConfig, Padding, Step, UpLevel};
use self::network::{decoder, encoder};
use self::tiling::Splice;
pub use self::tiling::Tiling;
use super::frames::{FrameTensor, clips, frame};
use super::patch::{patchify, unpatchify};
use super::{ClipDecode, DecodedFrame, Moments, Vae, taken};

/// The autoencoder; its weights are given to each call.
#[derive(Clone, Debug)]
pub struct AutoencoderKlLtx2Video {
    /// What it is made of.
    pub config: Ltx2VideoVaeConfig,
}

/// How latents are decoded.
#[derive(Clone, Copy, Debug, Default)]
pub struct Decoding {
    /// In tiles, or at once.
    pub tiling: Option<Tiling>,
    /// What a decoder that is told a timestep is told: how noisy the latents are, from 0 to 1.
    pub timestep: f64,
}

impl AutoencoderKlLtx2Video {
    /// The model of a config.
    pub fn new(config: Ltx2VideoVaeConfig) -> AutoencoderKlLtx2Video {
        AutoencoderKlLtx2Video { config }
    }

    /// How many frames `latent_frames` latent frames stand for.
    pub fn frames(&self, latent_frames: usize) -> usize {
        1 + self.config.temporal_factor() * (latent_frames - 1)
    }

    /// Latents of this VAE as a diffusion model sees them.
    ///
    /// # Errors
    /// The statistics are missing or misshapen.
    pub fn standardised(&self, weights: &Weights<'_>, latents: Tensor<5>) -> Result<Tensor<5>> {
        let [mean, deviation] = self.statistics(weights)?;
        Ok((latents - mean) * self.config.scaling_factor / deviation)
    }

    /// Latents of a diffusion model in this VAE's own scale.
    ///
    /// # Errors
    /// The statistics are missing or misshapen.
    pub fn restored(&self, weights: &Weights<'_>, latents: Tensor<5>) -> Result<Tensor<5>> {
        let [mean, deviation] = self.statistics(weights)?;
        Ok(latents * deviation / self.config.scaling_factor + mean)
    }

    /// Mean and deviation of every latent channel, `[1, latent, 1, 1, 1]` each.
    fn statistics(&self, weights: &Weights<'_>) -> Result<[Tensor<5>; 2]> {
        let channels = self.config.latent_channels;
        let table = |name| {
            let values: Tensor<1> = weights.table(name, [channels])?;
            Ok(values.reshape([1, channels, 1, 1, 1]))
        };
        Ok([table("latents_mean")?, table("latents_std")?])
    }

    /// Decodes latents `[B, latent, f, h, w]` in the VAE's own scale, handing each frame to `take` in order, sample
    /// after sample, a tile in time at once.
    ///
    /// `progress` is told the layers done, of all samples and tiles, and those in all.
    ///
    /// # Errors
    /// The latents do not fit the model, a parameter is missing or misshapen, or `take` fails.
    pub fn decode<E: From<Error>>(
        &self,
        weights: &Weights<'_>,
        latents: Tensor<5>,
        decoding: &Decoding,
        take: &mut dyn FnMut(DecodedFrame) -> Result<(), E>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<(), E> {
        let tiling = decoding.tiling.as_ref();
        let strips = weights.pixel_attention().strip.is_some();
        let [batch, _, count, height, width] = self.accepts_latents(latents.dims(), strips)?;
        tiling.map_or(Ok(()), |tiling| tiling.check(&self.config))?;
        let scale = [1, self.config.spatial_factor()];
        let grid = Tiling::grid(tiling, &self.config, [height, width], scale);
        let spans = Tiling::spans(tiling, &self.config, count);
        let network = decoder(&self.config, weights, decoding.timestep)?;
        let total = batch * grid.tiles() * spans.len() * network.len();
        let mut done = 0;
        let mut tell = || {
            done += 1;
            progress(done, total);
        };
        for sample in 0..batch {
            let (mut splice, mut index) = (Splice::default(), 0);
            for (at, span) in spans.iter().enumerate() {
                let tile: Vec<FrameTensor> =
                    span.clone().map(|index| frame(&latents, sample, index)).collect();
                let mut made = grid.run(&tile, |tile| {
                    let frames = network.run(tile, &mut tell)?.into_iter();
                    Ok(frames.map(|frame| unpatchify(frame, self.config.patch)).collect())
                })?;
                made.drain(..usize::from(at > 0));
                let shared = self.shared(&spans, at) * self.config.temporal_factor();
                for frame in splice.push(made, shared) {
                    let pixels = frame.clamp(-1.0, 1.0);
                    take(DecodedFrame { sample, index, pixels })?;
                    index += 1;
                }
            }
        }
        Ok(())
    }

    /// Latent frames that a tile in time shares with the next one, the first of that one aside.
    fn shared(&self, spans: &[std::ops::Range<usize>], at: usize) -> usize {
        spans.get(at + 1).map_or(0, |next| spans[at].end - next.start - 1)
    }

    /// [`AutoencoderKlLtx2Video::decode`] into one tensor `[B, channels, F, H, W]`.
    ///
    /// # Errors
    /// The latents do not fit the model, or a parameter is missing or misshapen.
    pub fn decode_all(
        &self,
        weights: &Weights<'_>,
        latents: Tensor<5>,
        decoding: &Decoding,
    ) -> Result<Tensor<5>> {
        let batch = latents.dims()[0];
        let mut frames = Vec::new();
        let mut take = |frame: DecodedFrame| {
            frames.push(frame.pixels);
            Ok::<_, Error>(())
        };
        self.decode(weights, latents, decoding, &mut take, &mut |_, _| {})?;
        Ok(clips(frames, batch))
    }

    /// The moments `[B, latent, f, h, w]` of the latents of clips `[B, channels, F, H, W]`, from -1 to 1.
    ///
    /// `progress` is told the layers done, of all samples and tiles, and those in all.
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
        tiling.map_or(Ok(()), |tiling| tiling.check(&self.config))?;
        let factor = self.config.spatial_factor();
        let scale = [factor / self.config.patch, 1];
        let grid = Tiling::grid(tiling, &self.config, [height / factor, width / factor], scale);
        let time = self.config.temporal_factor();
        let spans = Tiling::spans(tiling, &self.config, 1 + (count - 1) / time);
        let network = encoder(&self.config, weights)?;
        let total = batch * grid.tiles() * spans.len() * network.len();
        let mut done = 0;
        let mut tell = || {
            done += 1;
            progress(done, total);
        };
        let patched =
            |sample: usize, index: usize| patchify(frame(&clips, sample, index), self.config.patch);
        let mut all = Vec::new();
        for sample in 0..batch {
            let mut splice = Splice::default();
            for (at, span) in spans.iter().enumerate() {
                let frames = span.start * time..(span.end - 1) * time + 1;
                let tile: Vec<FrameTensor> = frames.map(|index| patched(sample, index)).collect();
                let mut made = grid.run(&tile, |tile| network.run(tile, &mut tell))?;
                made.drain(..usize::from(at > 0));
                all.extend(splice.push(made, self.shared(&spans, at)));
            }
        }
        Ok(self.moments(super::frames::clips(all, batch)))
    }

    /// From `[B, latent + 1, f, h, w]`: all channels share one variance.
    fn moments(&self, both: Tensor<5>) -> Moments<5> {
        let channels = self.config.latent_channels;
        let mean = both.clone().narrow(1, 0, channels);
        let log_variance = both.narrow(1, channels, 1).clamp(-30.0, 20.0);
        Moments { mean, log_variance: log_variance.repeat_dim(1, channels) }
    }

    fn accepts_latents(&self, got: [usize; 5], strips: bool) -> Result<[usize; 5]> {
        let channels = self.config.latent_channels;
        let [_, given, frames, height, width] = got;
        // A strip may be one row high: it sees its neighbours'.
        let least = if self.config.decoder.padding == Padding::Reflect { 2 } else { 1 };
        let tall = if strips { height > 0 } else { height >= least };
        if given == channels && frames > 0 && tall && width >= least {
            return Ok(got);
        }
        Err(Error::Shape {
            what: "a latent",
            got: format!("{got:?}"),
            want: format!(
                "this VAE takes [batch, {channels}, frames, height, width], height and width at least {least}"
            ),
        })
    }

    fn accepts_clips(&self, got: [usize; 5]) -> Result<[usize; 5]> {
        let [_, given, frames, height, width] = got;
        let (channels, factor) = (self.config.in_channels, self.config.spatial_factor());
        let least = match self.config.encoder.padding {
            Padding::Reflect => 2 * factor,
            Padding::Zeros => factor,
        };
        let fits = |side: usize| side >= least && side.is_multiple_of(factor);
        let refused =
            |want: String| Err(Error::Shape { what: "a clip", got: format!("{got:?}"), want });
        if given != channels || !fits(height) || !fits(width) {
            return refused(format!(
                "this VAE takes [batch, {channels}, frames, height, width] with sides that are multiples of \
                 {factor}, at least {least}"
            ));
        }
        let step = self.config.temporal_factor();
        if frames > 0 && (frames - 1).is_multiple_of(step) {
            return Ok(got);
        }
        let below = frames.saturating_sub(1) / step * step + 1;
        refused(match frames {
            0 => "a clip has at least 1 frame".to_owned(),
            _ => format!("a clip has 1 + {step} k frames: take {below} or {}", below + step),
        })
    }
}

impl Vae for AutoencoderKlLtx2Video {
    fn declare_encoder(&self, weights: &Weights<'_>) -> Result<()> {
        self.statistics(weights)?;
        encoder(&self.config, weights).map(drop)
    }

    fn declare_decoder(&self, weights: &Weights<'_>) -> Result<()> {
        self.statistics(weights)?;
        decoder(&self.config, weights, 0.0).map(drop)
    }

    fn latent_channels(&self) -> usize {
        self.config.latent_channels
    }

    fn encode_clip(&self, weights: &Weights<'_>, clip: Tensor<5>) -> Result<Tensor<5>> {
        let mean = self.encode(weights, clip, None, &mut |_, _| {})?.mean;
        self.standardised(weights, mean)
    }

    fn released(&self, weights: &Weights<'_>, latents: Tensor<5>) -> Result<Tensor<5>> {
        self.restored(weights, latents)
    }

    fn received(&self, weights: &Weights<'_>, latents: Tensor<5>) -> Result<Tensor<5>> {
        self.standardised(weights, latents)
    }

    /// A decoder that is told a timestep is told 0, and no noise is added: diffusers' defaults.
    fn decode_clips(&self, decode: ClipDecode<'_>) -> Result<()> {
        let ClipDecode { weights, latents, tiled, take, progress } = decode;
        let decoding = Decoding { tiling: tiled.then(Tiling::default), timestep: 0.0 };
        let latents = self.restored(weights, latents)?;
        taken(take, |take| self.decode(weights, latents, &decoding, take, progress))
    }
}
