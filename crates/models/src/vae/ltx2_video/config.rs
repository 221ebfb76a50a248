//! What a diffusers `AutoencoderKLLTX2Video` config says, checked.

use nn::{ConfigReader, Result};
use serde_json::Value;

use super::written;

const CONFIG: &str = "the video VAE's config.json";
const CLASS: &str = "AutoencoderKLLTX2Video";

/// No size of a model comes near this, and products of three such sizes do not overflow.
pub(super) const LARGEST: usize = 1 << 16;

/// What stands around a frame for a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Zeros.
    Zeros,
    /// The frame mirrored at its border.
    Reflect,
}

/// What a step between levels changes: 2 doubles or halves, 1 keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of frames.
    pub time: usize,
    /// Height and width.
    pub space: usize,
}

impl Step {
    /// How many values become one.
    pub(super) fn volume(self) -> usize {
        self.time * self.space * self.space
    }
}

/// A level of the encoder: residual blocks, then perhaps a step down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DownLevel {
    /// Channels of its residual blocks.
    pub inputs: usize,
    /// Channels after the step.
    pub outputs: usize,
    /// Residual blocks.
    pub layers: usize,
    /// The step, if there is one.
    pub step: Option<Step>,
}

/// A level of the decoder: perhaps a change of width, perhaps a step up, then residual blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpLevel {
    /// Channels that it is given.
    pub inputs: usize,
    /// Channels of its residual blocks.
    pub outputs: usize,
    /// Residual blocks.
    pub layers: usize,
    /// The step, if there is one.
    pub step: Option<Step>,
    /// What the step divides the channels by.
    pub factor: usize,
    /// Whether a shortcut leads around the step.
    pub residual: bool,
}

/// A half of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Half<L> {
    /// Its levels, in the order they are passed.
    pub levels: Vec<L>,
    /// Channels of the lowest level.
    pub width: usize,
    /// Residual blocks of the lowest level.
    pub layers: usize,
    /// Whether no frame looks at a later one.
    pub causal: bool,
    /// What stands around a frame.
    pub padding: Padding,
}

/// A config that can be built: channels of neighbouring levels fit, both halves have the same factors.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Ltx2VideoVaeConfig {
    /// Channels of a latent.
    pub latent_channels: usize,
    /// Channels of a frame that is encoded.
    pub in_channels: usize,
    /// Channels of a frame that is decoded.
    pub out_channels: usize,
    /// Pixels, in each direction, that are channels of one pixel to the network.
    pub patch: usize,
    /// Pixels to latents.
    pub encoder: Half<DownLevel>,
    /// Latents to pixels.
    pub decoder: Half<UpLevel>,
    /// Whether the decoder is told a timestep.
    pub timestep_conditioning: bool,
    /// Added to the variance in the norms of shortcuts.
    pub epsilon: f32,
    /// What standardised latents are multiplied by.
    pub scaling_factor: f64,
}

impl Ltx2VideoVaeConfig {
    /// Reads the text of a `config.json`. Missing keys have diffusers' defaults.
    ///
    /// # Errors
    /// It is not such a config, contradicts itself, or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<Ltx2VideoVaeConfig> {
        let mut options = ConfigReader::parse(CONFIG, text)?;
        options.class(&[CLASS])?;
        options.must_be_unquantized()?;
        options.must_be("patch_size_t", &Value::from(1))?;
        written::no_noise(&mut options)?;
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let latent_channels = size("latent_channels", 128)?;
        let (in_channels, out_channels) = (size("in_channels", 3)?, size("out_channels", 3)?);
        let patch = size("patch_size", 4)?;
        let mut factor = |key| options.optional_count(key, None, 1..=LARGEST);
        let stated = [factor("temporal_compression_ratio")?, factor("spatial_compression_ratio")?];
        let encoder = written::encoder(&mut options)?;
        let decoder = written::decoder(&mut options)?;
        let config = Ltx2VideoVaeConfig {
            latent_channels,
            in_channels,
            out_channels,
            patch,
            timestep_conditioning: options.flag("timestep_conditioning", false)?,
            epsilon: options.number("resnet_norm_eps", 1e-6)? as f32,
            scaling_factor: options.number("scaling_factor", 1.0)?,
            encoder: encoder.into_encoder(latent_channels),
            decoder: decoder.into_decoder(),
        };
        options.finish()?;
        config.check(&options)?;
        config.check_factors(stated, &options)?;
        Ok(config)
    }

    /// Frames per latent frame, the first aside.
    pub fn temporal_factor(&self) -> usize {
        self.encoder.levels.iter().filter_map(|level| level.step).map(|step| step.time).product()
    }

    /// Pixels per latent cell, in each direction.
    pub fn spatial_factor(&self) -> usize {
        let steps = self.encoder.levels.iter().filter_map(|level| level.step);
        self.patch * steps.map(|step| step.space).product::<usize>()
    }

    /// Refuses levels whose channels do not fit those before.
    fn check(&self, options: &ConfigReader) -> Result<()> {
        if self.scaling_factor == 0.0 {
            return Err(options.contradiction("`scaling_factor` must not be 0"));
        }
        for (at, level) in self.encoder.levels.iter().enumerate() {
            let DownLevel { inputs, outputs, step, .. } = *level;
            let fits = match step {
                None => inputs == outputs,
                Some(step) => {
                    outputs.is_multiple_of(step.volume())
                        && (inputs * step.volume()).is_multiple_of(outputs)
                }
            };
            if !fits {
                return Err(options.contradiction(format!(
                    "`block_out_channels` asks level {at} to make {outputs} channels of {inputs}, which its step \
                     of `downsample_type` cannot spread evenly"
                )));
            }
        }
        self.check_decoder(options)
    }

    fn check_decoder(&self, options: &ConfigReader) -> Result<()> {
        for (at, level) in self.decoder.levels.iter().enumerate() {
            let UpLevel { inputs, outputs, step, factor, residual, .. } = *level;
            let widens = inputs != outputs * factor;
            let volume = step.map_or(1, Step::volume);
            let fits = (factor == 1
                || (!widens && step.is_some() && volume.is_multiple_of(factor)))
                && (!residual || step.is_none() || (outputs * factor).is_multiple_of(volume));
            if !fits || outputs == 0 {
                return Err(options.contradiction(format!(
                    "`decoder_block_out_channels` and `upsample_factor` {factor} ask level {at} of the decoder to \
                     make {outputs} channels of {inputs}, which its step of `upsample_type` cannot spread evenly"
                )));
            }
            if widens && self.timestep_conditioning {
                return Err(options.contradiction(
                    "`timestep_conditioning` is on, and `decoder_block_out_channels` changes the width of a level \
                     before its step: diffusers has no such model",
                ));
            }
        }
        Ok(())
    }

    /// Refuses halves of other factors than each other's, or than the file states.
    fn check_factors(&self, stated: [Option<usize>; 2], options: &ConfigReader) -> Result<()> {
        let steps = |half: fn(&Step) -> usize| {
            let steps = self.decoder.levels.iter().filter_map(|level| level.step);
            steps.map(|step| half(&step)).product::<usize>()
        };
        let up = [steps(|step| step.time), self.patch * steps(|step| step.space)];
        let down = [self.temporal_factor(), self.spatial_factor()];
        if up != down {
            return Err(options.contradiction(format!(
                "`downsample_type` makes latents {down:?} times smaller in time and space, `upsample_type` larger \
                 by {up:?}"
            )));
        }
        let keys = ["temporal_compression_ratio", "spatial_compression_ratio"];
        for ((key, found), stated) in keys.into_iter().zip(down).zip(stated) {
            if let Some(stated) = stated.filter(|stated| *stated != found) {
                return Err(options.contradiction(format!(
                    "`{key}` is {stated}, but the levels and the patch make {found}"
                )));
            }
        }
        Ok(())
    }
}
