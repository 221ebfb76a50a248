//! What a diffusers `AutoencoderKLWan` config says, checked.

use nn::{Error, Result};
use serde::Deserialize;

const CONFIG: &str = "the VAE's config.json";
const CLASS: &str = "AutoencoderKLWan";

/// Latent channels of Wan 2.1, and what their means and deviations are unless the file says so.
const MEANS: [f64; 16] = [
    -0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517,
    -0.3632, -0.1922, -0.9497, 0.2503, -0.2921,
];
const DEVIATIONS: [f64; 16] = [
    2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579,
    1.6382, 1.1253, 2.8251, 1.9160,
];

/// A config that can be built: every level has its width, every channel its mean.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WanVaeConfig {
    /// Width of the encoder's first level.
    pub encoder_width: usize,
    /// Width of the decoder's last level.
    pub decoder_width: usize,
    /// Channels of a latent.
    pub latent_channels: usize,
    /// The width of every level, from the pixels to the latents, as a multiple; not empty.
    pub multiples: Vec<usize>,
    /// Residual blocks of a level of the encoder; the decoder has one more.
    pub layers_per_block: usize,
    /// Whether the way from each level to the next halves the number of frames.
    pub halves_time: Vec<bool>,
    /// Whether levels have shortcuts around them, as in Wan 2.2.
    pub residual: bool,
    /// Channels that the encoder sees: those of a frame times the patch.
    pub in_channels: usize,
    /// Channels that the decoder gives: those of a frame times the patch.
    pub out_channels: usize,
    /// Pixels, in each direction, that are channels of one pixel to the network; at least 1.
    pub patch: usize,
    /// The mean of every latent channel. A diffusion model sees `(latent - mean) / deviation`.
    pub latents_mean: Vec<f64>,
    /// The deviation of every latent channel, not zero.
    pub latents_std: Vec<f64>,
}

impl WanVaeConfig {
    /// Reads the text of a `config.json`. Keys that do not matter are passed over, missing ones
    /// have diffusers' defaults.
    ///
    /// # Errors
    /// It is not such a config, contradicts itself, or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<WanVaeConfig> {
        let raw: Raw = serde_json::from_str(text).map_err(|err| contradiction(err.to_string()))?;
        raw.supported()?;
        raw.positive()?;
        raw.consistent()?;
        let config = raw.promote();
        if config.residual {
            config.shortcuts()?;
        }
        Ok(config)
    }

    /// Pixels per latent cell, in each direction.
    pub fn spatial_factor(&self) -> usize {
        self.patch << (self.multiples.len() - 1)
    }

    /// Frames per latent frame, the first aside.
    pub fn temporal_factor(&self) -> usize {
        1 << self.halves_time.iter().filter(|&&halves| halves).count()
    }

    /// The channels from level to level of the encoder, the first level's input first.
    pub(super) fn encoder_widths(&self) -> Vec<usize> {
        let multiples = std::iter::once(&1).chain(&self.multiples);
        multiples.map(|multiple| multiple * self.encoder_width).collect()
    }

    /// The channels from level to level of the decoder, the first level's input first.
    pub(super) fn decoder_widths(&self) -> Vec<usize> {
        let multiples = self.multiples.last().into_iter().chain(self.multiples.iter().rev());
        multiples.map(|multiple| multiple * self.decoder_width).collect()
    }

    /// Refuses levels whose shortcut cannot spread its channels evenly.
    fn shortcuts(&self) -> Result<()> {
        let levels = self.multiples.len();
        let factor = |level: usize| match self.halves_time.get(level) {
            Some(true) => 8,
            Some(false) => 4,
            None => 1,
        };
        let widths = self.encoder_widths();
        let down = (0..levels)
            .find(|&level| !(widths[level] * factor(level)).is_multiple_of(widths[level + 1]));
        let widths = self.decoder_widths();
        let up = (0..levels - 1).find(|&level| {
            !(widths[level + 1] * factor(levels - 2 - level)).is_multiple_of(widths[level])
        });
        match (down, up) {
            (None, None) => Ok(()),
            _ => Err(contradiction(format!(
                "`dim_mult` {:?} leaves a level whose shortcut cannot average or repeat its channels evenly",
                self.multiples
            ))),
        }
    }
}

/// The file, key by key.
#[derive(Deserialize)]
#[serde(default)]
struct Raw {
    #[serde(rename = "_class_name")]
    class: String,
    base_dim: usize,
    decoder_base_dim: Option<usize>,
    z_dim: usize,
    dim_mult: Vec<usize>,
    num_res_blocks: usize,
    attn_scales: Vec<f64>,
    temperal_downsample: Vec<bool>,
    latents_mean: Vec<f64>,
    latents_std: Vec<f64>,
    is_residual: bool,
    in_channels: usize,
    out_channels: usize,
    patch_size: Option<usize>,
    scale_factor_temporal: Option<usize>,
    scale_factor_spatial: Option<usize>,
}

impl Default for Raw {
    fn default() -> Raw {
        Raw {
            class: CLASS.to_owned(),
            base_dim: 96,
            decoder_base_dim: None,
            z_dim: 16,
            dim_mult: vec![1, 2, 4, 4],
            num_res_blocks: 2,
            attn_scales: Vec::new(),
            temperal_downsample: vec![false, true, true],
            latents_mean: MEANS.to_vec(),
            latents_std: DEVIATIONS.to_vec(),
            is_residual: false,
            in_channels: 3,
            out_channels: 3,
            patch_size: None,
            scale_factor_temporal: Some(4),
            scale_factor_spatial: Some(8),
        }
    }
}

impl Raw {
    fn patch(&self) -> usize {
        self.patch_size.unwrap_or(1)
    }

    /// Refuses what this implementation does not do.
    fn supported(&self) -> Result<()> {
        let refuse = |key: &str, value: String, supported: &str| {
            let (config, key, supported) = (CONFIG.into(), key.into(), supported.into());
            Err(Error::Unsupported { config, key, value, supported })
        };
        if self.class != CLASS {
            return refuse("_class_name", format!("`{}`", self.class), CLASS);
        }
        if !self.attn_scales.is_empty() {
            return refuse("attn_scales", format!("{:?}", self.attn_scales), "an empty list");
        }
        // The encoder takes four frames at a time, whatever the config says.
        if self.temperal_downsample.iter().filter(|&&halves| halves).count() != 2 {
            let value = format!("{:?}", self.temperal_downsample);
            return refuse("temperal_downsample", value, "a list with exactly two true entries");
        }
        Ok(())
    }

    /// Refuses sizes of nothing.
    fn positive(&self) -> Result<()> {
        let counts = [
            ("base_dim", self.base_dim),
            ("decoder_base_dim", self.decoder_base_dim.unwrap_or(1)),
            ("z_dim", self.z_dim),
            ("dim_mult", self.dim_mult.iter().copied().min().unwrap_or(0)),
            ("num_res_blocks", self.num_res_blocks),
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("patch_size", self.patch()),
        ];
        match counts.iter().find(|(_, count)| *count == 0) {
            Some((key, _)) => Err(contradiction(format!("`{key}` is 0, but must be at least 1"))),
            None => Ok(()),
        }
    }

    /// Refuses what cannot be built.
    fn consistent(&self) -> Result<()> {
        let levels = self.dim_mult.len();
        let steps = self.temperal_downsample.len();
        if steps + 1 != levels {
            return Err(contradiction(format!(
                "`temperal_downsample` has {steps} entries and `dim_mult` {levels}; between two levels is one step"
            )));
        }
        let area = self.patch() * self.patch();
        for (key, channels) in
            [("in_channels", self.in_channels), ("out_channels", self.out_channels)]
        {
            if !channels.is_multiple_of(area) {
                return Err(contradiction(format!(
                    "`{key}` is {channels}, which a patch of {area} pixels does not divide"
                )));
            }
        }
        let factors = [
            ("scale_factor_temporal", self.scale_factor_temporal, 4),
            ("scale_factor_spatial", self.scale_factor_spatial, self.patch() << (levels - 1)),
        ];
        for (key, said, found) in factors {
            if said.is_some_and(|said| said != found) {
                let said = said.unwrap_or_default();
                return Err(contradiction(format!(
                    "`{key}` is {said}, but the levels and the patch make {found}"
                )));
            }
        }
        self.statistics()
    }

    fn statistics(&self) -> Result<()> {
        let channels = self.z_dim;
        for (key, values) in
            [("latents_mean", &self.latents_mean), ("latents_std", &self.latents_std)]
        {
            if values.len() != channels {
                return Err(contradiction(format!(
                    "`{key}` must have one number for each of the {channels} latent channels"
                )));
            }
        }
        match self.latents_std.iter().all(|deviation| deviation.is_normal()) {
            true => Ok(()),
            false => Err(contradiction("`latents_std` must not have a zero".to_owned())),
        }
    }

    fn promote(self) -> WanVaeConfig {
        WanVaeConfig {
            encoder_width: self.base_dim,
            decoder_width: self.decoder_base_dim.unwrap_or(self.base_dim),
            latent_channels: self.z_dim,
            patch: self.patch(),
            multiples: self.dim_mult,
            layers_per_block: self.num_res_blocks,
            halves_time: self.temperal_downsample,
            residual: self.is_residual,
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            latents_mean: self.latents_mean,
            latents_std: self.latents_std,
        }
    }
}

fn contradiction(reason: String) -> Error {
    Error::Config { config: CONFIG.to_owned(), reason }
}
