//! What `transformer/config.json` says, checked.

use nn::{Error, Result};
use serde::Deserialize;

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
    pub sees_frame: bool,
    /// Epsilon of its norms.
    pub epsilon: f32,
}

/// The file as it is written. Keys that do not change the arithmetic are not listed.
#[derive(Deserialize)]
struct Raw {
    _class_name: Option<String>,
    num_attention_heads: Option<usize>,
    attention_head_dim: Option<usize>,
    in_channels: Option<usize>,
    out_channels: Option<usize>,
    num_layers: Option<usize>,
    cross_attention_dim: Option<usize>,
    attention_bias: Option<bool>,
    sample_size: Option<usize>,
    patch_size: Option<usize>,
    activation_fn: Option<String>,
    norm_type: Option<String>,
    norm_elementwise_affine: Option<bool>,
    norm_eps: Option<f64>,
    interpolation_scale: Option<f64>,
    use_additional_conditions: Option<bool>,
    caption_channels: Option<usize>,
    attention_type: Option<String>,
    double_self_attention: Option<bool>,
    only_cross_attention: Option<bool>,
    use_linear_projection: Option<bool>,
}

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
            sees_frame: false,
            epsilon: 1e-6,
        }
    }

    /// PixArt-XL-2 at 1024 pixels.
    pub fn xl_1024() -> PixartConfig {
        let sample_size = 128;
        PixartConfig { sample_size, interpolation_scale: 2.0, sees_frame: true, ..Self::xl_512() }
    }

    /// Reads and checks the text of the file, in today's form or the older `Transformer2DModel` one.
    ///
    /// # Errors
    /// It is not JSON of that form, or it asks for what this model does not do.
    pub fn from_json(text: &str) -> Result<PixartConfig> {
        let raw: Raw = serde_json::from_str(text)
            .map_err(|err| Error::Config { config: NAME.into(), reason: err.to_string() })?;
        raw.check()?;
        let (heads, head_width) =
            (raw.num_attention_heads.unwrap_or(16), raw.attention_head_dim.unwrap_or(72));
        let sample_size = raw.sample_size.unwrap_or(128);
        let in_channels = raw.in_channels.unwrap_or(4);
        let config = PixartConfig {
            heads,
            head_width,
            depth: raw.num_layers.unwrap_or(28),
            in_channels,
            out_channels: raw.out_channels.unwrap_or(in_channels.saturating_mul(2)),
            patch: raw.patch_size.unwrap_or(2),
            sample_size,
            caption_width: raw.caption_channels.unwrap_or(4096),
            interpolation_scale: raw
                .interpolation_scale
                .unwrap_or_else(|| (sample_size / 64).max(1) as f64),
            sees_frame: raw.use_additional_conditions.unwrap_or(sample_size == 128),
            epsilon: raw.norm_eps.unwrap_or(1e-6) as f32,
        };
        config.positive()?;
        let width = config.width();
        match raw.cross_attention_dim {
            Some(other) if other != width => {
                refuse("cross_attention_dim", other, &format!("{width}, the model's own width"))
            }
            _ => Ok(config),
        }
    }

    /// Width of the stream.
    pub fn width(&self) -> usize {
        self.heads * self.head_width
    }

    fn positive(&self) -> Result<()> {
        let sizes = [
            ("num_attention_heads", self.heads),
            ("attention_head_dim", self.head_width),
            ("num_layers", self.depth),
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("patch_size", self.patch),
            ("sample_size", self.sample_size),
            ("caption_channels", self.caption_width),
        ];
        if let Some((key, size)) = sizes.iter().find(|(_, size)| !(1..=LARGEST).contains(size)) {
            return refuse(key, size, &format!("1 to {LARGEST}"));
        }
        if !(self.interpolation_scale.is_normal() && self.interpolation_scale > 0.0) {
            return refuse("interpolation_scale", self.interpolation_scale, "more than 0");
        }
        if !(self.epsilon.is_finite() && self.epsilon >= 0.0) {
            return refuse("norm_eps", self.epsilon, "0 or more");
        }
        if !self.width().is_multiple_of(4) || self.sees_frame && !self.width().is_multiple_of(3) {
            let supported = "a multiple of 4 (and of 3 where the picture's size is a condition)";
            return refuse("num_attention_heads x attention_head_dim", self.width(), supported);
        }
        match self.out_channels {
            out if out == self.in_channels || out == 2 * self.in_channels => Ok(()),
            out => refuse("out_channels", out, "in_channels, or twice that for a learned variance"),
        }
    }
}

impl Raw {
    fn check(&self) -> Result<()> {
        let text = [
            (
                "_class_name",
                &self._class_name,
                &["PixArtTransformer2DModel", "Transformer2DModel"][..],
            ),
            ("activation_fn", &self.activation_fn, &["gelu-approximate"][..]),
            ("norm_type", &self.norm_type, &["ada_norm_single"][..]),
            ("attention_type", &self.attention_type, &["default"][..]),
        ];
        for (key, value, supported) in text {
            if let Some(value) = value
                && !supported.contains(&value.as_str())
            {
                return refuse(key, value, &supported.join(", "));
            }
        }
        let flags = [
            ("attention_bias", self.attention_bias, true),
            ("norm_elementwise_affine", self.norm_elementwise_affine, false),
            ("double_self_attention", self.double_self_attention, false),
            ("only_cross_attention", self.only_cross_attention, false),
            ("use_linear_projection", self.use_linear_projection, false),
        ];
        for (key, value, supported) in flags {
            if value.is_some_and(|value| value != supported) {
                return refuse(key, !supported, &supported.to_string());
            }
        }
        Ok(())
    }
}

fn refuse<T>(key: &str, value: impl std::fmt::Display, supported: &str) -> Result<T> {
    Err(Error::Unsupported {
        config: NAME.into(),
        key: key.into(),
        value: value.to_string(),
        supported: supported.into(),
    })
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
        assert_eq!(with("anything", json!(1)).unwrap(), PixartConfig::xl_1024());
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
