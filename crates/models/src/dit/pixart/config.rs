//! What `transformer/config.json` says, checked.

use nn::{ConfigReader, Result};
use serde_json::json;

const NAME: &str = "transformer/config.json";

/// No size of a model comes near this, and products of three such sizes do not overflow.
const LARGEST: usize = 1 << 20;

/// The numbers of a PixArt-alpha transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct PixartConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Blocks.
    pub depth: usize,
    /// Channels of a latent.
    pub in_channels: usize,
    /// Channels of a prediction; twice as many where the variance is learned too.
    pub out_channels: usize,
    /// Side of a patch in latent pixels.
    pub patch: usize,
    /// Side of the latents it was trained on.
    pub sample_size: usize,
    /// Width of the text encoder's output.
    pub caption_width: usize,
    /// Divides positions.
    pub interpolation_scale: f64,
    /// Whether it is told the picture's size and proportion.
    pub takes_size: bool,
    /// Epsilon of its norms.
    pub epsilon: f32,
}

/// What the files hold beside what is read here: these change the training, the precision, or
/// parts that this model does not have.
const IGNORED: [&str; 4] =
    ["dropout", "norm_num_groups", "num_embeds_ada_norm", "upcast_attention"];

impl PixartConfig {
    /// PixArt-XL-2 at 512 pixels.
    pub fn xl_512() -> PixartConfig {
        PixartConfig {
            heads: 16,
            head_width: 72,
            depth: 28,
            in_channels: 4,
            out_channels: 8,
            patch: 2,
            sample_size: 64,
            caption_width: 4096,
            interpolation_scale: 1.0,
            takes_size: false,
            epsilon: 1e-6,
        }
    }

    /// PixArt-XL-2 at 1024 pixels.
    pub fn xl_1024() -> PixartConfig {
        let sample_size = 128;
        PixartConfig { sample_size, interpolation_scale: 2.0, takes_size: true, ..Self::xl_512() }
    }

    /// Reads and checks the text of the file, in today's form or the older `Transformer2DModel` one.
    ///
    /// # Errors
    /// It is not JSON of that form, or it asks for what this model does not do.
    pub fn from_json(text: &str) -> Result<PixartConfig> {
        let mut options = ConfigReader::parse(NAME, text)?;
        options.class(&["PixArtTransformer2DModel", "Transformer2DModel"])?;
        check_fixed(&mut options)?;
        let config = PixartConfig::read(&mut options)?;
        let cross = options.optional_count("cross_attention_dim", None, 1..=LARGEST)?;
        options.finish()?;
        config.check(&options)?;
        if let Some(other) = cross.filter(|other| *other != config.width()) {
            let supported = format!("{}, the model's own width", config.width());
            return Err(options.unsupported("cross_attention_dim", &other.into(), &supported));
        }
        Ok(config)
    }

    fn read(options: &mut ConfigReader) -> Result<PixartConfig> {
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let (heads, head_width) =
            (size("num_attention_heads", 16)?, size("attention_head_dim", 72)?);
        let (depth, patch) = (size("num_layers", 28)?, size("patch_size", 2)?);
        let (in_channels, sample_size) = (size("in_channels", 4)?, size("sample_size", 128)?);
        let caption_width = size("caption_channels", 4096)?;
        let out_channels = options.optional_count("out_channels", None, 1..=LARGEST)?;
        let scale = options.optional_number("interpolation_scale", None)?;
        let takes_size = options.optional_flag("use_additional_conditions", None)?;
        Ok(PixartConfig {
            heads,
            head_width,
            depth,
            in_channels,
            out_channels: out_channels.unwrap_or(2 * in_channels),
            patch,
            sample_size,
            caption_width,
            interpolation_scale: scale.unwrap_or_else(|| (sample_size / 64).max(1) as f64),
            takes_size: takes_size.unwrap_or(sample_size == 128),
            epsilon: options.number("norm_eps", 1e-6)? as f32,
        })
    }

    /// Width of the stream.
    pub fn width(&self) -> usize {
        self.heads * self.head_width
    }

    fn check(&self, options: &ConfigReader) -> Result<()> {
        let scale = self.interpolation_scale;
        if !(scale.is_normal() && scale > 0.0) {
            return Err(options.unsupported("interpolation_scale", &scale.into(), "more than 0"));
        }
        if !(self.epsilon.is_finite() && self.epsilon >= 0.0) {
            return Err(options.unsupported("norm_eps", &self.epsilon.into(), "0 or more"));
        }
        let width = self.width();
        if !width.is_multiple_of(4) || self.takes_size && !width.is_multiple_of(3) {
            let key = "num_attention_heads x attention_head_dim";
            let supported = "a multiple of 4 (and of 3 where the picture's size is a condition)";
            return Err(options.unsupported(key, &width.into(), supported));
        }
        match self.out_channels {
            out if out == self.in_channels || out == 2 * self.in_channels => Ok(()),
            out => {
                let supported = "in_channels, or twice that for a learned variance";
                Err(options.unsupported("out_channels", &out.into(), supported))
            }
        }
    }
}

/// Reads what must be as this model has it, and what changes nothing.
fn check_fixed(options: &mut ConfigReader) -> Result<()> {
    options.must_be("activation_fn", &json!("gelu-approximate"))?;
    options.must_be("norm_type", &json!("ada_norm_single"))?;
    options.must_be("attention_type", &json!("default"))?;
    options.must_be_on("attention_bias")?;
    for option in [
        "norm_elementwise_affine",
        "double_self_attention",
        "only_cross_attention",
        "use_linear_projection",
    ] {
        options.must_be_off(option, "false")?;
    }
    options.must_be_null("num_vector_embeds")?;
    options.must_be_unquantized()?;
    options.ignore(&IGNORED);
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::PixartConfig;

    fn with(key: &str, value: Value) -> nn::Result<PixartConfig> {
        PixartConfig::from_json(&json!({ key: value }).to_string())
    }

    #[test]
    fn an_empty_config_is_xl_at_1024() {
        assert_eq!(with("_note", json!(1)).unwrap(), PixartConfig::xl_1024());
    }

    #[test]
    fn sizes_that_no_model_has_are_refused_by_name() {
        let keys = [
            "num_attention_heads",
            "attention_head_dim",
            "num_layers",
            "in_channels",
            "patch_size",
            "sample_size",
            "caption_channels",
            "interpolation_scale",
        ];
        for key in keys {
            for value in [json!(0), json!(u64::MAX)] {
                // Positions may be divided by anything that is not zero.
                if key == "interpolation_scale" && value != json!(0) {
                    continue;
                }
                let error = with(key, value).expect_err(key).to_string();
                assert!(error.contains(&format!("`{key}` is")), "{error}");
            }
            let error = with(key, json!([1])).expect_err(key).to_string();
            assert!(error.contains("transformer/config.json"), "{error}");
        }
        for (key, value) in [
            ("interpolation_scale", json!(-1.0)),
            ("norm_eps", json!(-1e-6)),
            ("attention_head_dim", json!(71)),
            ("out_channels", json!(5)),
            ("cross_attention_dim", json!(1151)),
        ] {
            let error = with(key, value).expect_err(key).to_string();
            assert!(error.contains(key) && error.contains("supported:"), "{error}");
        }
    }
}
