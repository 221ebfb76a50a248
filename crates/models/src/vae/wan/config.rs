//! What a diffusers `AutoencoderKLWan` config says, checked.

use nn::{ConfigReader, Result};

const CONFIG: &str = "the VAE's config.json";
const CLASS: &str = "AutoencoderKLWan";

/// What the files hold beside what is read here. The library has no `clip_output`, and clips what
/// it decodes whatever the published files say.
const IGNORED: [&str; 2] = ["clip_output", "dropout"];

/// No size of a model comes near this, and products of two such sizes do not overflow.
const LARGEST: usize = 1 << 16;

/// Each level halves the picture; no picture can be halved more often.
const MOST_LEVELS: usize = 16;

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
    /// Reads the text of a `config.json`. Missing keys have diffusers' defaults.
    ///
    /// # Errors
    /// It is not such a config, contradicts itself, or asks for what is not supported.
    pub fn from_json(text: &str) -> Result<WanVaeConfig> {
        let mut options = ConfigReader::parse(CONFIG, text)?;
        options.class(&[CLASS])?;
        options.must_be_empty("attn_scales")?;
        options.must_be_unquantized()?;
        options.ignore(&IGNORED);
        let config = WanVaeConfig::read(&mut options)?;
        let mut factor = |key, default| options.optional_count(key, Some(default), 1..=usize::MAX);
        let factors = [factor("scale_factor_temporal", 4)?, factor("scale_factor_spatial", 8)?];
        options.finish()?;
        config.check_levels(&options)?;
        config.check_statistics(&options)?;
        config.check_factors(factors, &options)?;
        config.check_shortcuts(&options)?;
        Ok(config)
    }

    fn read(options: &mut ConfigReader) -> Result<WanVaeConfig> {
        let multiples = options.counts("dim_mult", &[1, 2, 4, 4], 1..=LARGEST)?;
        let halves_time = options.flags("temperal_downsample", &[false, true, true])?;
        let means = options.numbers("latents_mean")?.unwrap_or_else(|| MEANS.to_vec());
        let deviations = options.numbers("latents_std")?.unwrap_or_else(|| DEVIATIONS.to_vec());
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let (encoder_width, latent_channels) = (size("base_dim", 96)?, size("z_dim", 16)?);
        let layers_per_block = size("num_res_blocks", 2)?;
        let (in_channels, out_channels) = (size("in_channels", 3)?, size("out_channels", 3)?);
        let mut optional = |key| options.optional_count(key, None, 1..=LARGEST);
        let (decoder_width, patch) = (optional("decoder_base_dim")?, optional("patch_size")?);
        Ok(WanVaeConfig {
            encoder_width,
            decoder_width: decoder_width.unwrap_or(encoder_width),
            latent_channels,
            patch: patch.unwrap_or(1),
            multiples,
            layers_per_block,
            halves_time,
            residual: options.flag("is_residual", false)?,
            in_channels,
            out_channels,
            latents_mean: means,
            latents_std: deviations,
        })
    }

    /// Refuses levels without a way to the next.
    fn check_levels(&self, options: &ConfigReader) -> Result<()> {
        let halves_time = &self.halves_time;
        // The encoder takes four frames at a time, whatever the config says.
        if halves_time.iter().filter(|&&halves| halves).count() != 2 {
            let (key, value) = ("temperal_downsample", halves_time.clone().into());
            return Err(options.unsupported(key, &value, "a list with exactly two true entries"));
        }
        let (levels, steps) = (self.multiples.len(), halves_time.len());
        match steps + 1 == levels && levels <= MOST_LEVELS {
            true => Ok(()),
            false => Err(options.contradiction(format!(
                "`temperal_downsample` has {steps} entries and `dim_mult` {levels}; between two of \
                 at most {MOST_LEVELS} levels is one step"
            ))),
        }
    }

    /// Refuses statistics of another number of channels, and deviations of nothing.
    fn check_statistics(&self, options: &ConfigReader) -> Result<()> {
        let channels = self.latent_channels;
        let statistics = [("latents_mean", &self.latents_mean), ("latents_std", &self.latents_std)];
        if let Some((key, _)) = statistics.into_iter().find(|(_, it)| it.len() != channels) {
            return Err(options.contradiction(format!(
                "`{key}` must have one number for each of the {channels} latent channels"
            )));
        }
        match self.latents_std.iter().all(|deviation| deviation.is_normal()) {
            true => Ok(()),
            false => Err(options.contradiction("`latents_std` must not have a zero")),
        }
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

    /// Refuses patches and factors that contradict the levels.
    fn check_factors(&self, stated: [Option<usize>; 2], options: &ConfigReader) -> Result<()> {
        let area = self.patch * self.patch;
        for (key, channels) in
            [("in_channels", self.in_channels), ("out_channels", self.out_channels)]
        {
            if !channels.is_multiple_of(area) {
                return Err(options.contradiction(format!(
                    "`{key}` is {channels}, which a patch of {area} pixels does not divide"
                )));
            }
        }
        let factors =
            [("scale_factor_temporal", 4), ("scale_factor_spatial", self.spatial_factor())];
        for ((key, found), stated) in factors.into_iter().zip(stated) {
            if let Some(stated) = stated.filter(|stated| *stated != found) {
                return Err(options.contradiction(format!(
                    "`{key}` is {stated}, but the levels and the patch make {found}"
                )));
            }
        }
        Ok(())
    }

    /// Refuses levels whose shortcut cannot spread its channels evenly.
    fn check_shortcuts(&self, options: &ConfigReader) -> Result<()> {
        if !self.residual {
            return Ok(());
        }
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
            _ => Err(options.contradiction(format!(
                "`dim_mult` {:?} leaves a level whose shortcut cannot average or repeat its channels evenly",
                self.multiples
            ))),
        }
    }
}
