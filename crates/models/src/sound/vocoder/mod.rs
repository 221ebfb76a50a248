//! Vocoders of LTX-2: from log-mel spectrograms to waveforms.
//!
//! LTX-2's is a HiFi-GAN (`LTX2Vocoder`); LTX-2.3's is a BigVGAN whose waveform a second one extends to three times the
//! sample rate (`LTX2VocoderWithBWE`). Both run in f32 whatever their weights are stored in.

mod config;
mod layers;

use std::f64::consts::PI;

use burn::tensor::{Int, Tensor, TensorData};
use kernels::Activation;
use nn::{Error, Result, Weights};

pub use self::config::{Act, Bound, ExtensionConfig, GeneratorConfig, Stage, VocoderConfig};
use self::layers::{Conv, ConvShape, Longer, Signal, Snake, interpolated, leaky, padded};

/// The slope of the last rectification, whatever the config says.
const LAST_SLOPE: f64 = 0.01;

/// The least that a band holds before its logarithm is taken.
const FLOOR: f32 = 1e-5;

/// A vocoder; its weights are given to each call.
#[derive(Clone, Debug)]
pub struct Vocoder {
    /// What it is made of.
    pub config: VocoderConfig,
}

impl Vocoder {
    /// The model of a `config.json`.
    ///
    /// # Errors
    /// As [`VocoderConfig::from_json`].
    pub fn from_json(text: &str) -> Result<Vocoder> {
        Ok(Vocoder { config: VocoderConfig::from_json(text)? })
    }

    /// Channels times bins of the spectrograms that it takes.
    pub fn in_channels(&self) -> usize {
        self.config.generator.in_channels
    }

    /// Channels of its waveforms.
    pub fn channels(&self) -> usize {
        self.config.generator.out_channels
    }

    /// Samples per second of its waveforms.
    pub fn sample_rate(&self) -> u32 {
        self.config.sample_rate
    }

    /// Asks for every parameter once.
    ///
    /// # Errors
    /// One is missing or misshapen.
    pub fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        let Some(extension) = &self.config.extension else {
            return Generator::new(&self.config.generator, weights).map(drop);
        };
        Generator::new(&self.config.generator, &weights.at("vocoder"))?;
        Generator::new(&extension.generator, &weights.at("bwe_generator"))?;
        Bases::new(extension, weights).map(drop)
    }

    /// Waveforms `[B, channels, samples]` of spectrograms `[B, channels, T, bins]`.
    ///
    /// # Errors
    /// The spectrograms do not fit the model, or a parameter is missing or misshapen.
    pub fn apply(&self, weights: &Weights<'_>, spectrograms: Tensor<4>) -> Result<Tensor<3>> {
        let [_, channels, frames, bins] = spectrograms.dims();
        if channels * bins != self.in_channels() || frames == 0 {
            return Err(Error::Shape {
                what: "a spectrogram",
                got: format!("{:?}", spectrograms.dims()),
                want: format!(
                    "this vocoder takes [batch, channels, frames, bins], channels times bins being {}",
                    self.in_channels()
                ),
            });
        }
        let generator = &self.config.generator;
        let waves = match &self.config.extension {
            None => Generator::new(generator, weights)?.apply(features(spectrograms)),
            Some(extension) => {
                let narrow = Generator::new(generator, &weights.at("vocoder"))?;
                extended(extension, weights, narrow.apply(features(spectrograms)))?
            }
        };
        Ok(waves.swap_dims(1, 2))
    }
}

/// `[B, channels, T, bins]` as `[B, T, channels bins]`.
fn features(spectrograms: Tensor<4>) -> Signal {
    let [batch, channels, frames, bins] = spectrograms.dims();
    spectrograms.permute([0, 2, 1, 3]).reshape([batch, frames, channels * bins])
}

/// A waveform of `ratio` times the rate: the same, interpolated, plus what the second generator makes of its spectra.
fn extended(extension: &ExtensionConfig, weights: &Weights<'_>, narrow: Signal) -> Result<Signal> {
    let samples = narrow.dims()[1];
    let wanted = samples.div_ceil(extension.hop) * extension.hop;
    let narrow = padded(narrow, [0, wanted - samples]);
    let bases = Bases::new(extension, weights)?;
    let generator = Generator::new(&extension.generator, &weights.at("bwe_generator"))?;
    let added = generator.apply(features(bases.spectrograms(narrow.clone(), extension)));
    let ratio = extension.ratio;
    let (filter, width) = hann_sinc(ratio);
    let wide = interpolated(narrow, &filter, ratio, [width, 2 * width * ratio]);
    Ok((wide + added).clamp(-1.0, 1.0).narrow(1, 0, samples * ratio))
}

/// The filter between the rates, and its width in samples of the lower one.
fn hann_sinc(ratio: usize) -> (Vec<f32>, usize) {
    let (rolloff, crossings) = (0.99_f64, 6.0_f64);
    let width = (crossings / rolloff).ceil() as usize;
    let tap = |at: usize| {
        let time = (at as f64 / ratio as f64 - width as f64) * rolloff;
        let window = (time.clamp(-crossings, crossings) * PI / crossings / 2.0).cos().powi(2);
        let sinc = if time == 0.0 { 1.0 } else { (PI * time).sin() / (PI * time) };
        (sinc * window * rolloff / ratio as f64) as f32
    };
    ((0..=2 * width * ratio).map(tap).collect(), width)
}

/// What turns a waveform into spectra, as the checkpoint has it.
struct Bases {
    /// Cosines, then sines, under the window: `[2 frequencies, filter]`.
    fourier: Tensor<2>,
    /// `[bins, frequencies]`.
    mel: Tensor<2>,
}

impl Bases {
    fn new(extension: &ExtensionConfig, weights: &Weights<'_>) -> Result<Bases> {
        let weights = weights.at("mel_stft");
        let frequencies = extension.filter / 2 + 1;
        let shape = [2 * frequencies, 1, extension.filter];
        let fourier: Tensor<3> = weights.at("stft_fn").table("forward_basis", shape)?;
        // Checkpoints hold the way back too, which nobody goes.
        weights.at("stft_fn").table("inverse_basis", shape)?;
        let mel = weights.table("mel_basis", [extension.bins, frequencies])?;
        Ok(Bases { fourier: fourier.squeeze_dim(1), mel })
    }

    /// The log-mel spectrograms `[B, C, T, bins]` of waveforms `[B, samples, C]`, of which no spectrum sees a later
    /// sample.
    fn spectrograms(&self, waves: Signal, extension: &ExtensionConfig) -> Tensor<4> {
        let ExtensionConfig { filter, hop, window, .. } = *extension;
        let [batch, _, channels] = waves.dims();
        let waves = padded(waves, [window - hop, 0]);
        let length = waves.dims()[1];
        let frames = length.saturating_sub(filter) / hop + 1;
        let waves = padded(waves, [0, filter.saturating_sub(length)]);
        let places: Vec<i64> =
            (0..frames * filter).map(|at| (at / filter * hop + at % filter) as i64).collect();
        let count = places.len();
        let places: Tensor<1, Int> =
            Tensor::from_data(TensorData::new(places, [count]), &waves.device());
        let cut = waves.swap_dims(1, 2).select(2, places);
        let cut = cut.reshape([batch * channels * frames, filter]);
        let parts = kernels::linear(cut, self.fourier.clone(), None, Activation::Identity);
        let half = parts.dims()[1] / 2;
        let [real, imaginary] = [0, half].map(|start| parts.clone().narrow(1, start, half));
        let magnitudes = (real.clone() * real + imaginary.clone() * imaginary).sqrt();
        let mel = kernels::linear(magnitudes, self.mel.clone(), None, Activation::Identity);
        let bins = mel.dims()[1];
        mel.clamp_min(FLOOR).log().reshape([batch, channels, frames, bins])
    }
}

/// One generator, with its weights.
struct Generator {
    first: Conv,
    stages: Vec<(Longer, Vec<Vec<Pair>>)>,
    last_act: Option<Snake>,
    last: Conv,
    /// Of the rectifications before each stage, where there are any.
    slope: Option<f64>,
    bound: Bound,
}

/// Two convolutions, each after an activation; without snakes, after a rectification of this slope.
struct Pair {
    snakes: [Option<Snake>; 2],
    convolutions: [Conv; 2],
    slope: f64,
}

impl Generator {
    fn new(config: &GeneratorConfig, weights: &Weights<'_>) -> Result<Generator> {
        let shape = |channels, bias| ConvShape { channels, taps: 7, dilation: 1, bias };
        let first = shape([config.in_channels, config.width], true);
        let mut width = config.width;
        let mut stages = Vec::new();
        for (at, stage) in config.stages.iter().enumerate() {
            let upsampler = weights.at(format!("upsamplers.{at}"));
            let longer = Longer::new(&upsampler, [width, width / 2], [stage.factor, stage.kernel])?;
            width /= 2;
            let count = config.blocks.len();
            let block = |index: usize| {
                let weights = weights.at(format!("resnets.{}", at * count + index));
                pairs(config, &weights, &config.blocks[index], width)
            };
            stages.push((longer, (0..count).map(block).collect::<Result<Vec<_>>>()?));
        }
        let last_act = match config.act {
            Act::Leaky => None,
            _ => Some(Snake::new(&weights.at("act_out"), width, true, Some(config.taps))?),
        };
        Ok(Generator {
            first: Conv::new(&weights.at("conv_in"), first)?,
            stages,
            last_act,
            last: Conv::new(
                &weights.at("conv_out"),
                shape([width, config.out_channels], config.final_bias),
            )?,
            slope: (config.act == Act::Leaky).then_some(config.slope),
            bound: config.bound,
        })
    }

    /// `[B, T, features]` to `[B, samples, channels]`.
    fn apply(&self, features: Signal) -> Signal {
        let mut x = self.first.apply(features);
        for (longer, blocks) in &self.stages {
            if let Some(slope) = self.slope {
                x = leaky(x, slope);
            }
            x = longer.apply(x);
            let made = blocks
                .iter()
                .map(|pairs| pairs.iter().fold(x.clone(), |x, pair| x.clone() + pair.apply(x)));
            let sum = made.reduce(|sum, one| sum + one).expect("a config has blocks");
            x = sum / blocks.len() as f32;
        }
        x = match &self.last_act {
            Some(snake) => snake.apply(x),
            None => leaky(x, LAST_SLOPE),
        };
        let wave = self.last.apply(x);
        match self.bound {
            Bound::Tanh => wave.tanh(),
            Bound::Clamp => wave.clamp(-1.0, 1.0),
            Bound::None => wave,
        }
    }
}

/// The layers of one residual block.
fn pairs(
    config: &GeneratorConfig,
    weights: &Weights<'_>,
    (taps, dilations): &(usize, Vec<usize>),
    width: usize,
) -> Result<Vec<Pair>> {
    let filter = config.antialias.then_some(config.taps);
    let snake = |name: String| match config.act {
        Act::Leaky => Ok(None),
        act => Snake::new(&weights.at(name), width, act == Act::SnakeBeta, filter).map(Some),
    };
    let pair = |(at, &dilation): (usize, &usize)| {
        let shape = ConvShape { channels: [width; 2], taps: *taps, dilation, bias: true };
        Ok(Pair {
            snakes: [snake(format!("acts1.{at}"))?, snake(format!("acts2.{at}"))?],
            convolutions: [
                Conv::new(&weights.at(format!("convs1.{at}")), shape)?,
                Conv::new(&weights.at(format!("convs2.{at}")), ConvShape { dilation: 1, ..shape })?,
            ],
            slope: config.slope,
        })
    };
    dilations.iter().enumerate().map(pair).collect()
}

impl Pair {
    fn apply(&self, x: Signal) -> Signal {
        (0..2).fold(x, |x, at| {
            let x = match &self.snakes[at] {
                Some(snake) => snake.apply(x),
                None => leaky(x, self.slope),
            };
            self.convolutions[at].apply(x)
        })
    }
}
