//! The audio autoencoder of LTX-2 (diffusers' `AutoencoderKLLTX2Audio`): convolutions over spectrograms, in which no
//! spectrum looks at a later one.
//!
//! Spectrograms are `[B, channels, T, bins]`, latents `[B, latent, L, bins / 4]`; of `T` spectra the first stands
//! for itself alone. Inside, an image is `[B, T, bins, C]`. Means and deviations of the latents are tensors of the
//! checkpoint, one for each channel and bin.

use burn::tensor::Tensor;
use kernels::{Activation, Convolution};
use nn::{ConfigReader, Convolution2d, Error, Result, Weights};
use serde_json::Value;

const CONFIG: &str = "the audio VAE's config.json";
const CLASS: &str = "AutoencoderKLLTX2Audio";

/// Keys that say nothing about what is computed here.
const IGNORED: [&str; 3] = ["dropout", "resolution", "is_causal"];

const LARGEST: usize = 1 << 16;
const EPSILON: f32 = 1e-6;

/// Three spectra, the last of them its own; three bins around its own.
const CAUSAL: Convolution = Convolution { stride: 1, padding: [2, 1, 0, 1], upsample: 1 };
const POINTWISE: Convolution = Convolution { stride: 1, padding: [0; 4], upsample: 1 };
const HALVING: Convolution = Convolution { stride: 2, padding: [2, 0, 0, 1], upsample: 1 };
const DOUBLING: Convolution = Convolution { stride: 1, padding: [2, 1, 0, 1], upsample: 2 };

/// A config that can be built.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AudioVaeConfig {
    /// Width of the first level.
    pub width: usize,
    /// The width of every level, from the spectra to the latents, as a multiple.
    pub multiples: Vec<usize>,
    /// Residual blocks of a level of the encoder; the decoder has one more.
    pub layers_per_block: usize,
    /// Channels of a sound that is encoded.
    pub in_channels: usize,
    /// Channels of a sound that is decoded.
    pub out_channels: usize,
    /// Channels of a latent.
    pub latent_channels: usize,
    /// Bands of a spectrum.
    pub mel_bins: usize,
    /// Samples per second.
    pub sample_rate: u32,
    /// Samples from one spectrum to the next.
    pub hop: usize,
}

impl AudioVaeConfig {
    /// Reads the text of a `config.json`. Missing keys have diffusers' defaults.
    ///
    /// # Errors
    /// It is not such a config, contradicts itself, or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<AudioVaeConfig> {
        let mut options = ConfigReader::parse(CONFIG, text)?;
        options.class(&[CLASS])?;
        options.must_be_unquantized()?;
        options.must_be_empty("attn_resolutions")?;
        options.must_be("norm_type", &Value::from("pixel"))?;
        options.must_be("causality_axis", &Value::from("height"))?;
        options.must_be_on("double_z")?;
        options.must_be_off("mid_block_add_attention", "published models have none")?;
        options.ignore(&IGNORED);
        let multiples = options.counts("ch_mult", &[1, 2, 4], 1..=LARGEST)?;
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let config = AudioVaeConfig {
            width: size("base_channels", 128)?,
            layers_per_block: size("num_res_blocks", 2)?,
            in_channels: size("in_channels", 2)?,
            out_channels: size("output_channels", 2)?,
            latent_channels: size("latent_channels", 8)?,
            mel_bins: size("mel_bins", 64)?,
            sample_rate: options.count("sample_rate", 16_000, 1..=1 << 20)? as u32,
            hop: options.count("mel_hop_length", 160, 1..=LARGEST)?,
            multiples,
        };
        options.finish()?;
        config.check(&options)?;
        Ok(config)
    }

    /// Spectra of a latent frame, the first aside, and bands of a latent bin.
    pub fn factor(&self) -> usize {
        1 << (self.multiples.len() - 1)
    }

    /// Bins of a latent.
    pub fn latent_bins(&self) -> usize {
        self.mel_bins / self.factor()
    }

    fn check(&self, options: &ConfigReader) -> Result<()> {
        if self.multiples.len() != 3 {
            let value = Value::from(self.multiples.clone());
            return Err(options.unsupported(
                "ch_mult",
                &value,
                "lists of three: latents are four times shorter",
            ));
        }
        let statistics = self.latent_channels * self.latent_bins();
        match self.mel_bins.is_multiple_of(self.factor()) && self.width == statistics {
            true => Ok(()),
            false => Err(options.contradiction(format!(
                "`base_channels` is {}, and as many statistics are stored; `latent_channels` times a quarter of \
                 `mel_bins`, which four divides, are {statistics}",
                self.width
            ))),
        }
    }
}

/// The autoencoder; its weights are given to each call.
#[derive(Clone, Debug)]
pub struct AudioVae {
    /// What it is made of.
    pub config: AudioVaeConfig,
}

impl AudioVae {
    /// The model of a `config.json`.
    ///
    /// # Errors
    /// As [`AudioVaeConfig::from_json`].
    pub fn from_json(text: &str) -> Result<AudioVae> {
        Ok(AudioVae { config: AudioVaeConfig::from_json(text)? })
    }

    /// Asks for every parameter once.
    ///
    /// # Errors
    /// One is missing or misshapen.
    pub fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.statistics(weights)?;
        self.encoder(weights)?;
        self.decoder(weights).map(drop)
    }

    /// The modes of the posteriors of spectrograms `[B, channels, T, bins]`, as a diffusion model sees them:
    /// `[B, latent, L, bins / 4]`.
    ///
    /// # Errors
    /// The spectrogram does not fit the model, or a parameter is missing or misshapen.
    pub fn encode(&self, weights: &Weights<'_>, spectrograms: Tensor<4>) -> Result<Tensor<4>> {
        let mean = self.moments(weights, spectrograms)?.narrow(1, 0, self.config.latent_channels);
        let [mean_of, deviation] = self.statistics(weights)?;
        Ok((mean - mean_of) / deviation)
    }

    /// Means and log-variances of the latents in the VAE's own scale, `[B, 2 latent, L, bins / 4]`.
    ///
    /// # Errors
    /// As [`AudioVae::encode`].
    pub fn moments(&self, weights: &Weights<'_>, spectrograms: Tensor<4>) -> Result<Tensor<4>> {
        let wanted = [self.config.in_channels, self.config.mel_bins];
        accepts("a spectrogram", spectrograms.dims(), wanted)?;
        let image = spectrograms.permute([0, 2, 3, 1]);
        Ok(run(&self.encoder(weights)?, image)?.permute([0, 3, 1, 2]))
    }

    /// The spectrograms `[B, channels, 4 L - 3, bins]` of latents `[B, latent, L, bins / 4]` of a diffusion model.
    ///
    /// # Errors
    /// The latents do not fit the model, or a parameter is missing or misshapen.
    pub fn decode(&self, weights: &Weights<'_>, latents: Tensor<4>) -> Result<Tensor<4>> {
        let wanted = [self.config.latent_channels, self.config.latent_bins()];
        accepts("an audio latent", latents.dims(), wanted)?;
        let latents = self.restored(weights, latents)?;
        let image = latents.permute([0, 2, 3, 1]);
        Ok(run(&self.decoder(weights)?, image)?.permute([0, 3, 1, 2]))
    }

    /// Latents of a diffusion model in this VAE's own scale.
    ///
    /// # Errors
    /// The statistics are missing or misshapen.
    pub fn restored(&self, weights: &Weights<'_>, latents: Tensor<4>) -> Result<Tensor<4>> {
        let [mean, deviation] = self.statistics(weights)?;
        Ok(latents * deviation + mean)
    }

    /// Mean and deviation, `[1, latent, 1, bins / 4]` each.
    fn statistics(&self, weights: &Weights<'_>) -> Result<[Tensor<4>; 2]> {
        let shape = [1, self.config.latent_channels, 1, self.config.latent_bins()];
        let table = |name| {
            let values: Tensor<1> = weights.table(name, [self.config.width])?;
            Ok(values.reshape(shape))
        };
        Ok([table("latents_mean")?, table("latents_std")?])
    }

    fn encoder(&self, weights: &Weights<'_>) -> Result<Vec<Layer>> {
        let (weights, config) = (weights.at("encoder"), &self.config);
        let mut width = config.width;
        let mut layers = vec![causal(&weights, "conv_in", [config.in_channels, width])?];
        for (level, multiple) in config.multiples.iter().enumerate() {
            let weights = weights.at(format!("down.{level}"));
            for block in 0..config.layers_per_block {
                let next = config.width * multiple;
                layers.push(residual(&weights.at(format!("block.{block}")), [width, next])?);
                width = next;
            }
            if level + 1 < config.multiples.len() {
                let convolution = weights.at("downsample").convolution("conv", [width; 2], 3)?;
                layers.push(Layer::Convolve(convolution, HALVING));
            }
        }
        middle(&mut layers, &weights, width)?;
        layers.push(Layer::Norm);
        layers.push(causal(&weights, "conv_out", [width, 2 * config.latent_channels])?);
        Ok(layers)
    }

    fn decoder(&self, weights: &Weights<'_>) -> Result<Vec<Layer>> {
        let (weights, config) = (weights.at("decoder"), &self.config);
        let mut width = config.width * config.multiples[config.multiples.len() - 1];
        let mut layers = vec![causal(&weights, "conv_in", [config.latent_channels, width])?];
        middle(&mut layers, &weights, width)?;
        for (level, multiple) in config.multiples.iter().enumerate().rev() {
            let weights = weights.at(format!("up.{level}"));
            for block in 0..=config.layers_per_block {
                let next = config.width * multiple;
                layers.push(residual(&weights.at(format!("block.{block}")), [width, next])?);
                width = next;
            }
            if level > 0 {
                let convolution = weights.at("upsample.conv").convolution("conv", [width; 2], 3)?;
                layers.push(Layer::Double(convolution));
            }
        }
        layers.push(Layer::Norm);
        layers.push(causal(&weights, "conv_out", [width, config.out_channels])?);
        Ok(layers)
    }
}

fn accepts(what: &'static str, got: [usize; 4], [channels, bins]: [usize; 2]) -> Result<()> {
    match got[1] == channels && got[2] > 0 && got[3] == bins {
        true => Ok(()),
        false => Err(Error::Shape {
            what,
            got: format!("{got:?}"),
            want: format!("this VAE takes [batch, {channels}, frames, {bins}]"),
        }),
    }
}

/// What happens to an image `[B, T, bins, C]`.
enum Layer {
    Convolve(Convolution2d, Convolution),
    /// Everything twice, then a convolution; the first spectrum stands for itself alone.
    Double(Convolution2d),
    Norm,
    Residual(Box<([Convolution2d; 2], Option<Convolution2d>)>),
}

fn causal(weights: &Weights<'_>, name: &str, channels: [usize; 2]) -> Result<Layer> {
    Ok(Layer::Convolve(weights.at(name).convolution("conv", channels, 3)?, CAUSAL))
}

fn residual(weights: &Weights<'_>, [inputs, outputs]: [usize; 2]) -> Result<Layer> {
    let convolutions = [
        weights.at("conv1").convolution("conv", [inputs, outputs], 3)?,
        weights.at("conv2").convolution("conv", [outputs; 2], 3)?,
    ];
    let shortcut = match inputs == outputs {
        true => None,
        false => Some(weights.at("nin_shortcut").convolution("conv", [inputs, outputs], 1)?),
    };
    Ok(Layer::Residual(Box::new((convolutions, shortcut))))
}

fn middle(layers: &mut Vec<Layer>, weights: &Weights<'_>, width: usize) -> Result<()> {
    for block in ["mid.block_1", "mid.block_2"] {
        layers.push(residual(&weights.at(block), [width; 2])?);
    }
    Ok(())
}

fn norm(x: Tensor<4>) -> Tensor<4> {
    Activation::Silu.apply(kernels::rms_norm(x, None, EPSILON))
}

fn run(layers: &[Layer], image: Tensor<4>) -> Result<Tensor<4>> {
    layers.iter().try_fold(image, |x, layer| layer.apply(x))
}

impl Layer {
    fn apply(&self, x: Tensor<4>) -> Result<Tensor<4>> {
        match self {
            Layer::Convolve(parameters, convolution) => parameters.apply(x, convolution),
            Layer::Double(parameters) => {
                let doubled = parameters.apply(x, &DOUBLING)?;
                let frames = doubled.dims()[1];
                Ok(doubled.narrow(1, 1, frames - 1))
            }
            Layer::Norm => Ok(norm(x)),
            Layer::Residual(parts) => {
                let ([first, second], shortcut) = &**parts;
                let branch = first.apply(norm(x.clone()), &CAUSAL)?;
                let branch = second.apply(norm(branch), &CAUSAL)?;
                let x = match shortcut {
                    Some(shortcut) => shortcut.apply(x, &POINTWISE)?,
                    None => x,
                };
                Ok(x + branch)
            }
        }
    }
}
