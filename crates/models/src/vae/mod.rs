//! Autoencoders: between pixels and the latents that a diffusion model works on.

mod blend;
mod frames;
mod grid;
pub mod kl;
pub mod ltx2_upsampler;
pub mod ltx2_video;
mod patch;
pub mod wan;

use std::ops::ControlFlow;

use burn::tensor::Tensor;
use nn::{Error, Result, Weights};

/// The normal distribution of a latent, `[B, latent, ..]` each.
#[derive(Clone, Debug)]
pub struct Moments<const D: usize> {
    /// Its mean, which is also its mode.
    pub mean: Tensor<D>,
    /// The logarithm of its variance, from -30 to 20.
    pub log_variance: Tensor<D>,
}

impl<const D: usize> Moments<D> {
    /// From `[B, 2 latent, ..]`.
    fn new(both: Tensor<D>) -> Moments<D> {
        let channels = both.dims()[1] / 2;
        let mean = both.clone().narrow(1, 0, channels);
        let log_variance = both.narrow(1, channels, channels).clamp(-30.0, 20.0);
        Moments { mean, log_variance }
    }

    /// The standard deviation.
    pub fn deviation(&self) -> Tensor<D> {
        (self.log_variance.clone() * 0.5).exp()
    }

    /// The latent that standard normal `noise` of the same shape picks.
    pub fn sample(&self, noise: Tensor<D>) -> Tensor<D> {
        self.mean.clone() + self.deviation() * noise
    }
}

/// A frame that is done.
#[derive(Clone, Debug)]
pub struct DecodedFrame {
    /// Which clip of the batch it belongs to.
    pub sample: usize,
    /// Its place in the clip.
    pub index: usize,
    /// `[H, W, channels]`, from -1 to 1.
    pub pixels: Tensor<3>,
}

/// Latents to be decoded, and who sees it.
pub struct ClipDecode<'a> {
    /// The parameters.
    pub weights: &'a Weights<'a>,
    /// `[B, C, f, h, w]`.
    pub latents: Tensor<5>,
    /// Whether in overlapping tiles.
    pub tiled: bool,
    /// Takes frames as they are decoded, sample after sample, and says whether to go on.
    pub take: &'a mut dyn FnMut(DecodedFrame) -> ControlFlow<()>,
    /// Is told the work done and the work in all.
    pub progress: &'a mut dyn FnMut(usize, usize),
}

/// An autoencoder of any family behind one object. A picture is a clip of one frame; latents are in the
/// scale that the diffusion model sees.
pub trait Vae: Send + Sync {
    /// Asks for every parameter once.
    ///
    /// # Errors
    /// One is missing or misshapen.
    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.declare_encoder(weights)?;
        self.declare_decoder(weights)
    }

    /// Asks for every parameter that encoding needs once.
    ///
    /// # Errors
    /// One is missing or misshapen.
    fn declare_encoder(&self, weights: &Weights<'_>) -> Result<()>;

    /// Asks for every parameter that decoding needs once.
    ///
    /// # Errors
    /// One is missing or misshapen.
    fn declare_decoder(&self, weights: &Weights<'_>) -> Result<()>;

    /// Channels of a latent.
    fn latent_channels(&self) -> usize;

    /// Latents `[1, C, f, h, w]` of a clip `[1, 3, F, H, W]` from -1 to 1: the mode of the posterior.
    ///
    /// # Errors
    /// The clip does not fit the model.
    fn encode_clip(&self, weights: &Weights<'_>, clip: Tensor<5>) -> Result<Tensor<5>>;

    /// Latents `[B, C, f, h, w]` as diffusers hands them out: some models' in the VAE's own scale.
    ///
    /// # Errors
    /// A parameter is missing.
    fn released(&self, _: &Weights<'_>, latents: Tensor<5>) -> Result<Tensor<5>> {
        Ok(latents)
    }

    /// The way back from [`Vae::released`]: latents in the scale that the diffusion model sees.
    ///
    /// # Errors
    /// A parameter is missing.
    fn received(&self, _: &Weights<'_>, latents: Tensor<5>) -> Result<Tensor<5>> {
        Ok(latents)
    }

    /// Decodes latents.
    ///
    /// # Errors
    /// The latents do not fit the model.
    fn decode_clips(&self, decode: ClipDecode<'_>) -> Result<()>;

    /// Whether it can decode in tiles.
    ///
    /// # Errors
    /// Its config allows no tiles.
    fn check_tiling(&self) -> Result<()> {
        Ok(())
    }
}

/// Makes latents larger, of any family behind one object. They are in the scale in which diffusers hands latents out.
pub trait LatentUpsampler: Send + Sync {
    /// Asks for every parameter once.
    ///
    /// # Errors
    /// One is missing or misshapen.
    fn declare(&self, weights: &Weights<'_>) -> Result<()>;

    /// Channels of a latent.
    fn latent_channels(&self) -> usize;

    /// By what rows and columns become more, and then fewer.
    fn ratio(&self) -> [usize; 2];

    /// Larger latents of latents `[B, C, f, h, w]`.
    ///
    /// # Errors
    /// The latents do not fit the model, or a parameter is missing or misshapen.
    fn enlarge(&self, weights: &Weights<'_>, latents: Tensor<5>) -> Result<Tensor<5>>;
}

/// What stops decoding: an error of the model, or whoever takes the frames.
enum Stop {
    Model(Error),
    Taker,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Model(error)
    }
}

/// Lets `decode` hand frames to `take` until that has had enough.
fn taken(
    take: &mut dyn FnMut(DecodedFrame) -> ControlFlow<()>,
    decode: impl FnOnce(&mut dyn FnMut(DecodedFrame) -> Result<(), Stop>) -> Result<(), Stop>,
) -> Result<()> {
    let mut take = |frame: DecodedFrame| match take(frame) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Stop::Taker),
    };
    match decode(&mut take) {
        Ok(()) | Err(Stop::Taker) => Ok(()),
        Err(Stop::Model(error)) => Err(error),
    }
}
