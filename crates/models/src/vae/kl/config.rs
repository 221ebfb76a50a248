//! What a diffusers `AutoencoderKL` config says, checked.

use nn::{Error, Result};
use serde::Deserialize;

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
    /// Reads the text of a `config.json`. Keys that do not matter are passed over, missing ones
    /// have diffusers' defaults.
    ///
    /// # Errors
    /// It is not such a config, contradicts itself, or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<KlConfig> {
        let raw: Raw = serde_json::from_str(text).map_err(|err| contradiction(err.to_string()))?;
        raw.supported()?;
        raw.consistent()?;
        Ok(raw.promote())
    }

    /// Pixels per latent cell, in each direction.
    pub fn factor(&self) -> usize {
        1 << (self.widths.len() - 1)
    }
}

/// The file, key by key.
#[derive(Deserialize)]
#[serde(default)]
struct Raw {
    #[serde(rename = "_class_name")]
    class: String,
    in_channels: usize,
    out_channels: usize,
    down_block_types: Vec<String>,
    up_block_types: Vec<String>,
    block_out_channels: Vec<usize>,
    layers_per_block: usize,
    act_fn: String,
    latent_channels: usize,
    norm_num_groups: usize,
    sample_size: Size,
    scaling_factor: f64,
    shift_factor: Option<f64>,
    latents_mean: Option<Vec<f64>>,
    latents_std: Option<Vec<f64>>,
    force_upcast: bool,
    use_quant_conv: bool,
    use_post_quant_conv: bool,
    mid_block_add_attention: bool,
}

/// One side, or height and width.
#[derive(Deserialize)]
#[serde(untagged)]
enum Size {
    Square(usize),
    Sides([usize; 2]),
}

impl Default for Raw {
    fn default() -> Raw {
        Raw {
            class: CLASS.to_owned(),
            in_channels: 3,
            out_channels: 3,
            down_block_types: vec![DOWN_BLOCK.to_owned()],
            up_block_types: vec![UP_BLOCK.to_owned()],
            block_out_channels: vec![64],
            layers_per_block: 1,
            act_fn: ACTIVATIONS[0].to_owned(),
            latent_channels: 4,
            norm_num_groups: 32,
            sample_size: Size::Square(32),
            scaling_factor: 0.18215,
            shift_factor: None,
            latents_mean: None,
            latents_std: None,
            force_upcast: true,
            use_quant_conv: true,
            use_post_quant_conv: true,
            mid_block_add_attention: true,
        }
    }
}

impl Raw {
    /// Refuses what this implementation does not do.
    fn supported(&self) -> Result<()> {
        one_of("_class_name", &self.class, &[CLASS])?;
        one_of("act_fn", &self.act_fn, &ACTIVATIONS)?;
        for block in &self.down_block_types {
            one_of("down_block_types", block, &[DOWN_BLOCK])?;
        }
        for block in &self.up_block_types {
            one_of("up_block_types", block, &[UP_BLOCK])?;
        }
        Ok(())
    }

    /// Refuses what cannot be built.
    fn consistent(&self) -> Result<()> {
        let levels = self.block_out_channels.len();
        let blocks = [
            ("down_block_types", &self.down_block_types),
            ("up_block_types", &self.up_block_types),
        ];
        for (key, types) in blocks {
            if types.len() != levels || !(1..=MOST_LEVELS).contains(&levels) {
                let got = types.len();
                return Err(contradiction(format!(
                    "`{key}` has {got} entries and `block_out_channels` {levels}; each of 1 to \
                     {MOST_LEVELS} levels needs one of both"
                )));
            }
        }
        let groups = self.norm_num_groups;
        let mut widths = self.block_out_channels.iter();
        if let Some(width) =
            widths.find(|&&width| width == 0 || width.checked_rem(groups) != Some(0))
        {
            return Err(contradiction(format!(
                "`block_out_channels` has {width}, which `norm_num_groups` {groups} does not divide"
            )));
        }
        self.positive()?;
        for (key, values) in
            [("latents_mean", &self.latents_mean), ("latents_std", &self.latents_std)]
        {
            let channels = self.latent_channels;
            if values.as_ref().is_some_and(|values| values.len() != channels) {
                return Err(contradiction(format!(
                    "`{key}` must have one number for each of the {channels} latent channels"
                )));
            }
        }
        Ok(())
    }

    fn positive(&self) -> Result<()> {
        let counts = [
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("latent_channels", self.latent_channels),
            ("layers_per_block", self.layers_per_block),
        ];
        let widths = self.block_out_channels.iter().map(|width| ("block_out_channels", *width));
        let mut counts = counts.into_iter().chain(widths);
        if let Some((key, count)) = counts.find(|(_, count)| !(1..=LARGEST).contains(count)) {
            return Err(contradiction(format!("`{key}` is {count}, but must be 1 to {LARGEST}")));
        }
        match self.scaling_factor.is_normal() {
            true => Ok(()),
            false => Err(contradiction("`scaling_factor` must not be zero".to_owned())),
        }
    }

    fn promote(self) -> KlConfig {
        let (Size::Square(sample_size) | Size::Sides([sample_size, _])) = self.sample_size;
        KlConfig {
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            latent_channels: self.latent_channels,
            widths: self.block_out_channels,
            layers_per_block: self.layers_per_block,
            groups: self.norm_num_groups,
            attention: self.mid_block_add_attention,
            quant_convolution: self.use_quant_conv,
            post_quant_convolution: self.use_post_quant_conv,
            sample_size,
            scaling_factor: self.scaling_factor,
            shift_factor: self.shift_factor,
            latents_mean: self.latents_mean,
            latents_std: self.latents_std,
            force_upcast: self.force_upcast,
        }
    }
}

fn contradiction(reason: String) -> Error {
    Error::Config { config: CONFIG.to_owned(), reason }
}

fn one_of(key: &str, value: &str, supported: &[&str]) -> Result<()> {
    if supported.contains(&value) {
        return Ok(());
    }
    Err(Error::Unsupported {
        config: CONFIG.to_owned(),
        key: key.to_owned(),
        value: format!("`{value}`"),
        supported: supported.join(", "),
    })
}
