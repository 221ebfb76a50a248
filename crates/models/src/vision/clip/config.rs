//! What transformers' `config.json` says of a CLIP vision encoder, checked.
//!
//! Keys that concern training or the text half are known and passed over. A value that would
//! change the embeddings and that we do not compute is refused by name, and so is a key that
//! nobody knows.

use kernels::Activation;
use nn::{ConfigReader, Result};

use crate::pretrained;

const NAME: &str = "the config of the CLIP image encoder";

/// No size of a model comes near this, and products of three such sizes do not overflow.
const LARGEST: usize = 1 << 20;

/// What CLIP has beside what every model has: training, and the way to the text half.
const IGNORED: [&str; 5] =
    ["attention_dropout", "dropout", "initializer_factor", "initializer_range", "projection_dim"];

/// The sizes of a CLIP vision encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct ClipVisionConfig {
    /// Width of the embeddings.
    pub width: usize,
    /// Blocks, the last included.
    pub depth: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Width between the linear layers of the feed-forward half.
    pub feed_forward_width: usize,
    /// What is between them.
    pub activation: Activation,
    /// Channels of a picture.
    pub channels: usize,
    /// Height and width of a picture, in pixels.
    pub image_size: usize,
    /// Height and width of a patch; pixels that fill no whole patch are left out.
    pub patch_size: usize,
    /// Added to the variance in every norm.
    pub epsilon: f32,
}

impl ClipVisionConfig {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// The text is not such a config, or it asks for what is not supported.
    pub fn from_json(text: &str) -> Result<ClipVisionConfig> {
        let mut options = ConfigReader::parse(NAME, text)?;
        pretrained::read(&mut options)?;
        options.ignore(&IGNORED);
        options.choice("model_type", &[("clip_vision_model", ())])?;
        options.count("num_channels", 3, 3..=3)?;
        let activations = [("quick_gelu", Activation::QuickGelu), ("gelu", Activation::GeluErf)];
        let activation = options.choice("hidden_act", &activations)?;
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let config = ClipVisionConfig {
            width: size("hidden_size", 768)?,
            depth: size("num_hidden_layers", 12)?,
            heads: size("num_attention_heads", 12)?,
            feed_forward_width: size("intermediate_size", 3072)?,
            activation,
            channels: 3,
            image_size: size("image_size", 224)?,
            patch_size: size("patch_size", 32)?,
            epsilon: options.number("layer_norm_eps", 1e-5)? as f32,
        };
        options.finish()?;
        config.check(&options)?;
        Ok(config)
    }

    fn check(&self, options: &ConfigReader) -> Result<()> {
        if !self.width.is_multiple_of(self.heads) {
            let supported = format!("a divisor of `hidden_size` {}", self.width);
            return Err(options.unsupported("num_attention_heads", &self.heads.into(), &supported));
        }
        if self.image_size < self.patch_size {
            let supported = format!("at least `patch_size` {}", self.patch_size);
            return Err(options.unsupported("image_size", &self.image_size.into(), &supported));
        }
        match self.epsilon.is_finite() && self.epsilon >= 0.0 {
            true => Ok(()),
            false => Err(options.unsupported("layer_norm_eps", &self.epsilon.into(), "at least 0")),
        }
    }

    /// Patches in a row or column of a picture.
    pub fn grid(&self) -> usize {
        self.image_size / self.patch_size
    }

    /// Embeddings of a picture: one per patch, and that of the whole.
    pub fn tokens(&self) -> usize {
        self.grid() * self.grid() + 1
    }
}

#[cfg(test)]
mod tests {
    use kernels::Activation;
    use serde_json::{Value, json};

    use super::ClipVisionConfig;

    /// A config as hub folders have it, with one key replaced.
    fn with(key: &str, value: Value) -> nn::Result<ClipVisionConfig> {
        let mut config = json!({
            "architectures": ["CLIPVisionModel"], "model_type": "clip_vision_model",
            "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32,
            "num_attention_heads": 16, "num_channels": 3, "image_size": 224, "patch_size": 14,
            "hidden_act": "gelu", "layer_norm_eps": 1e-5, "projection_dim": 1024, "dropout": 0.0,
        });
        config[key] = value;
        ClipVisionConfig::from_json(&config.to_string())
    }

    #[test]
    fn keys_without_influence_are_passed_over() {
        let plain = with("projection_dim", json!(7)).expect("a supported config");
        assert_eq!(plain, with("dropout", json!(0.5)).expect("a supported config"));
        assert_eq!((plain.tokens(), plain.activation), (257, Activation::GeluErf));
    }

    #[test]
    fn files_leave_out_what_is_the_default() {
        let config = ClipVisionConfig::from_json("{}").expect("a supported config");
        assert_eq!((config.tokens(), config.activation), (50, Activation::QuickGelu));
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let refused = [
            ("model_type", json!("siglip_vision_model")),
            ("hidden_act", json!("relu")),
            ("quantization_config", json!({"bits": 8})),
            ("num_hidden_layers", json!(0)),
            ("num_channels", json!(4)),
            ("num_attention_heads", json!(7)),
            ("image_size", json!(13)),
            ("layer_norm_eps", json!(-1.0)),
        ];
        for (key, value) in refused {
            let error = with(key, value).expect_err(key);
            assert!(matches!(error, nn::Error::Unsupported { .. }), "{key}: {error}");
            assert!(error.to_string().contains(key), "{key}: {error}");
        }
    }
}
