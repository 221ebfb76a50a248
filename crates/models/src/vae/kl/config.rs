//! What a diffusers `AutoencoderKL` config says, checked.

use nn::{ConfigReader, Result};
use serde_json::json;

const CONFIG: &str = "the VAE's config.json";
const CLASS: &str = "AutoencoderKL";
const DOWN_BLOCK: &str = "DownEncoderBlock2D";
const UP_BLOCK: &str = "UpDecoderBlock2D";
const ACTIVATIONS: [&str; 2] = ["silu", "swish"];

/// Each level halves the picture; no picture can be halved more often.
const MOST_LEVELS: usize = 16;

/// No size of a model comes near this, and products of two such sizes do not overflow.
const LARGEST: usize = 1 << 16;

/// A config that can be built: every level has its width, every width its groups.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct KlConfig {
    /// Channels of an image that is encoded.
    pub in_channels: usize,
    /// Channels of an image that is decoded.
    pub out_channels: usize,
    /// Channels of a latent.
    pub latent_channels: usize,
    /// Channels of every level, from the pixels to the latents; not empty.
    pub widths: Vec<usize>,
    /// Residual blocks of a level of the encoder; the decoder has one more.
    pub layers_per_block: usize,
    /// Groups of every norm.
    pub groups: usize,
    /// Whether the lowest level has an attention layer.
    pub attention: bool,
    /// Whether a convolution follows the encoder.
    pub quant_convolution: bool,
    /// Whether a convolution precedes the decoder.
    pub post_quant_convolution: bool,
    /// The side of the images it was trained on; tiles have this size unless told otherwise.
    pub sample_size: usize,
    /// A diffusion model sees `(latent - shift) * scaling`.
    pub scaling_factor: f64,
    /// The shift, if there is one.
    pub shift_factor: Option<f64>,
    /// The mean of every latent channel, which some pipelines use in place of the shift.
    pub latents_mean: Option<Vec<f64>>,
    /// The deviation of every latent channel, which some pipelines use in place of the scaling.
    pub latents_std: Option<Vec<f64>>,
    /// Whether its weights must be computed with in f32 because f16 overflows.
    pub force_upcast: bool,
}

impl KlConfig {
    /// Reads the text of a `config.json`. Missing keys have diffusers' defaults.
    ///
    /// # Errors
    /// It is not such a config, contradicts itself, or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<KlConfig> {
        let mut options = ConfigReader::parse(CONFIG, text)?;
        options.class(&[CLASS])?;
        options.choice("act_fn", &ACTIVATIONS.map(|name| (name, ())))?;
        options.must_be_unquantized()?;
        let widths = options.counts("block_out_channels", &[64], 1..=LARGEST)?;
        let blocks = [
            ("down_block_types", options.repeated("down_block_types", DOWN_BLOCK, 1)?),
            ("up_block_types", options.repeated("up_block_types", UP_BLOCK, 1)?),
        ];
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let config = KlConfig {
            in_channels: size("in_channels", 3)?,
            out_channels: size("out_channels", 3)?,
            latent_channels: size("latent_channels", 4)?,
            groups: size("norm_num_groups", 32)?,
            layers_per_block: size("layers_per_block", 1)?,
            widths,
            attention: options.flag("mid_block_add_attention", true)?,
            quant_convolution: options.flag("use_quant_conv", true)?,
            post_quant_convolution: options.flag("use_post_quant_conv", true)?,
            sample_size: read_sample_size(&mut options)?,
            scaling_factor: options.number("scaling_factor", 0.18215)?,
            shift_factor: options.optional_number("shift_factor", None)?,
            latents_mean: options.numbers("latents_mean")?,
            latents_std: options.numbers("latents_std")?,
            force_upcast: options.flag("force_upcast", true)?,
        };
        options.finish()?;
        config.check(&blocks, &options)?;
        Ok(config)
    }

    /// Refuses what cannot be built: each level has a block on either side, and groups divide widths.
    fn check(&self, blocks: &[(&str, usize)], options: &ConfigReader) -> Result<()> {
        let (levels, groups) = (self.widths.len(), self.groups);
        let odd = |blocks: &usize| *blocks != levels || !(1..=MOST_LEVELS).contains(&levels);
        if let Some((key, blocks)) = blocks.iter().find(|(_, blocks)| odd(blocks)) {
            return Err(options.contradiction(format!(
                "`{key}` has {blocks} entries and `block_out_channels` {levels}; each of 1 to \
                 {MOST_LEVELS} levels needs one of both"
            )));
        }
        if let Some(width) = self.widths.iter().find(|width| !width.is_multiple_of(groups)) {
            return Err(options.contradiction(format!(
                "`block_out_channels` has {width}, which `norm_num_groups` {groups} does not divide"
            )));
        }
        if !self.scaling_factor.is_normal() {
            return Err(options.contradiction("`scaling_factor` must not be zero"));
        }
        let channels = self.latent_channels;
        let statistics = [("latents_mean", &self.latents_mean), ("latents_std", &self.latents_std)];
        let odd =
            |values: &Option<Vec<f64>>| values.as_ref().is_some_and(|it| it.len() != channels);
        match statistics.into_iter().find(|(_, values)| odd(values)) {
            None => Ok(()),
            Some((key, _)) => Err(options.contradiction(format!(
                "`{key}` must have one number for each of the {channels} latent channels"
            ))),
        }
    }

    /// Pixels per latent cell, in each direction.
    pub fn factor(&self) -> usize {
        1 << (self.widths.len() - 1)
    }
}

/// One side, or the first of height and width.
fn read_sample_size(options: &mut ConfigReader) -> Result<usize> {
    let key = "sample_size";
    let value = options.take(key).unwrap_or_else(|| json!(32));
    let side = match value.as_array().map(Vec::as_slice) {
        Some([height, width]) if width.is_u64() => height.as_u64(),
        Some(_) => None,
        None => value.as_u64(),
    };
    side.and_then(|side| usize::try_from(side).ok())
        .ok_or_else(|| options.unsupported(key, &value, "a whole number, or height and width"))
}
