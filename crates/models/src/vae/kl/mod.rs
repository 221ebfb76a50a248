//! The image autoencoder of latent diffusion (Rombach et al. 2022, diffusers' `AutoencoderKL`):
//! convolutions with a little attention at the lowest level, trained with a KL penalty.
//!
//! Images and latents go in and out as `[B, C, H, W]`; inside, everything is channels-last. Samples
//! are processed one by one, so memory does not grow with the batch and a sample's result does not
//! depend on its company.

mod blocks;
mod config;
mod decoder;
mod encoder;
mod tiling;

use burn::tensor::{DType, Tensor};
use nn::{Error, Result, Weights};

use self::blocks::Network;
pub use self::config::KlConfig;
use self::decoder::decoder;
use self::encoder::encoder;
pub use self::tiling::Tiling;
use self::tiling::{Grid, Scale};
use super::{ClipDecode, DecodedFrame, Moments, Vae};

/// The autoencoder; its weights are given to each call.
#[derive(Clone, Debug)]
pub struct AutoencoderKl {
    /// What it is made of.
    pub config: KlConfig,
}

impl AutoencoderKl {
    /// The model of a config.
    pub fn new(config: KlConfig) -> AutoencoderKl {
        AutoencoderKl { config }
    }

    /// Pixels per latent cell, in each direction.
    pub fn factor(&self) -> usize {
        self.config.factor()
    }

    /// Images `[B, out, H, W]` of latents `[B, latent, h, w]`, which are in the VAE's own scaling: a
    /// diffusion model's are divided by the config's `scaling_factor` first.
    ///
    /// `progress` is told the layers done and the layers in all.
    ///
    /// # Errors
    /// The latents do not fit the model, or a parameter is missing or misshapen.
    pub fn decode(
        &self,
        weights: &Weights<'_>,
        latents: Tensor<4>,
        tiling: Option<&Tiling>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Tensor<4>> {
        let channels = self.config.latent_channels;
        accepts("a latent", latents.dims(), channels, 1)?;
        let grid = grid(&latents, Scale { input: 1, output: self.factor() }, tiling)?;
        let half = Half { network: decoder(&self.config), outputs: self.config.out_channels };
        half.run(weights, latents, &grid, progress)
    }

    /// The moments `[B, latent, h, w]` of the latents of images `[B, in, H, W]`, from -1 to 1.
    ///
    /// Pixels beyond the last whole latent cell, on the right and below, have no latent of their
    /// own. `progress` is told the layers done and the layers in all.
    ///
    /// # Errors
    /// The images do not fit the model, or a parameter is missing or misshapen.
    pub fn encode(
        &self,
        weights: &Weights<'_>,
        images: Tensor<4>,
        tiling: Option<&Tiling>,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Moments<4>> {
        let factor = self.factor();
        accepts("an image", images.dims(), self.config.in_channels, factor)?;
        let grid = grid(&images, Scale { input: factor, output: 1 }, tiling)?;
        let outputs = 2 * self.config.latent_channels;
        let half = Half { network: encoder(&self.config), outputs };
        half.run(weights, images, &grid, progress).map(Moments::new)
    }
}

impl Vae for AutoencoderKl {
    fn declare_encoder(&self, weights: &Weights<'_>) -> Result<()> {
        encoder(&self.config).declare(weights)
    }

    fn declare_decoder(&self, weights: &Weights<'_>) -> Result<()> {
        decoder(&self.config).declare(weights)
    }

    fn latent_channels(&self) -> usize {
        self.config.latent_channels
    }

    fn encode_clip(&self, weights: &Weights<'_>, clip: Tensor<5>) -> Result<Tensor<5>> {
        let picture = clip.squeeze_dim::<4>(2);
        let latents = self.encode(weights, picture, None, &mut |_, _| {})?.mean;
        Ok((latents * self.config.scaling_factor).unsqueeze_dim(2))
    }

    fn decode_clips(&self, decode: ClipDecode<'_>) -> Result<()> {
        let ClipDecode { weights, latents, tiled, take, progress } = decode;
        let tiling = tiled.then(|| Tiling::of(&self.config));
        let samples = latents.dims()[0];
        for sample in 0..samples {
            let latent = latents.clone().slice_dim(0, sample..sample + 1).squeeze_dim::<4>(2);
            let mut tell = |done: usize, all: usize| progress(sample * all + done, samples * all);
            let latent = latent / self.config.scaling_factor;
            let image = self.decode(weights, latent, tiling.as_ref(), &mut tell)?;
            let pixels = image.squeeze_dim::<3>(0).permute([1, 2, 0]);
            if take(DecodedFrame { sample, index: 0, pixels }).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn check_tiling(&self) -> Result<()> {
        Tiling::of(&self.config).check(self.factor())
    }
}

/// One direction of the autoencoder.
struct Half {
    network: Network,
    /// Channels of the result.
    outputs: usize,
}

impl Half {
    fn run(
        &self,
        weights: &Weights<'_>,
        x: Tensor<4>,
        grid: &Grid,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Tensor<4>> {
        let total = x.dims()[0] * grid.tiles() * self.network.depth();
        let mut done = 0;
        grid.run(&x.cast(DType::F32), self.outputs, |tile| {
            self.network.run(weights, tile, || {
                done += 1;
                progress(done, total);
            })
        })
    }
}

fn grid(x: &Tensor<4>, scale: Scale, tiling: Option<&Tiling>) -> Result<Grid> {
    let [_, _, height, width] = x.dims();
    Grid::new([height, width], scale, tiling)
}

fn accepts(what: &'static str, got: [usize; 4], channels: usize, least: usize) -> Result<()> {
    let [_, given, height, width] = got;
    if given == channels && height >= least && width >= least {
        return Ok(());
    }
    Err(Error::Shape {
        what,
        got: format!("{got:?}"),
        want: format!(
            "this VAE takes [batch, {channels}, height, width] with sides of at least {least}"
        ),
    })
}
