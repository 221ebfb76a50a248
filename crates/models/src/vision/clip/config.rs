//! What transformers' `config.json` says of a CLIP vision encoder, checked.
//!
//! Keys that concern training or the text half are passed over. A value that would change the
//! embeddings and that we do not compute is refused by name.

use kernels::Activation;
use nn::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

const NAME: &str = "the config of the CLIP image encoder";

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
        let file: ConfigFile = serde_json::from_str(text)
            .map_err(|err| Error::Config { config: NAME.to_owned(), reason: err.to_string() })?;
        file.check()
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

/// The keys that matter, with the defaults of transformers for those that files leave out.
#[derive(Deserialize)]
#[serde(default)]
struct ConfigFile {
    model_type: Option<String>,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_channels: usize,
    image_size: usize,
    patch_size: usize,
    hidden_act: String,
    layer_norm_eps: f32,
    quantization_config: Option<Value>,
}

impl Default for ConfigFile {
    fn default() -> ConfigFile {
        ConfigFile {
            model_type: None,
            hidden_size: 768,
            intermediate_size: 3072,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            num_channels: 3,
            image_size: 224,
            patch_size: 32,
            hidden_act: "quick_gelu".to_owned(),
            layer_norm_eps: 1e-5,
            quantization_config: None,
        }
    }
}

impl ConfigFile {
    fn check(self) -> Result<ClipVisionConfig> {
        if let Some(family) = self.model_type.as_deref().filter(|&name| name != "clip_vision_model")
        {
            return Err(unsupported("model_type", format!("`{family}`"), "`clip_vision_model`"));
        }
        if let Some(quantization) = &self.quantization_config {
            let remedy = "none; use a checkpoint with f32, bf16 or f16 weights";
            return Err(unsupported("quantization_config", quantization.to_string(), remedy));
        }
        self.check_sizes()?;
        let activation = match self.hidden_act.as_str() {
            "gelu" => Activation::GeluErf,
            "quick_gelu" => Activation::QuickGelu,
            other => {
                let supported = "`gelu`, `quick_gelu`";
                return Err(unsupported("hidden_act", format!("`{other}`"), supported));
            }
        };
        Ok(ClipVisionConfig {
            width: self.hidden_size,
            depth: self.num_hidden_layers,
            heads: self.num_attention_heads,
            feed_forward_width: self.intermediate_size,
            activation,
            channels: self.num_channels,
            image_size: self.image_size,
            patch_size: self.patch_size,
            epsilon: self.layer_norm_eps,
        })
    }

    fn check_sizes(&self) -> Result<()> {
        let sizes = [
            ("hidden_size", self.hidden_size),
            ("intermediate_size", self.intermediate_size),
            ("num_hidden_layers", self.num_hidden_layers),
            ("num_attention_heads", self.num_attention_heads),
            ("patch_size", self.patch_size),
        ];
        for (key, size) in sizes {
            if size == 0 {
                return Err(unsupported(key, size.to_string(), "at least 1"));
            }
        }
        if self.num_channels != 3 {
            return Err(unsupported("num_channels", self.num_channels.to_string(), "3"));
        }
        if !self.hidden_size.is_multiple_of(self.num_attention_heads) {
            let value = self.num_attention_heads.to_string();
            let supported = format!("a divisor of `hidden_size` {}", self.hidden_size);
            return Err(unsupported("num_attention_heads", value, &supported));
        }
        if self.image_size < self.patch_size {
            let supported = format!("at least `patch_size` {}", self.patch_size);
            return Err(unsupported("image_size", self.image_size.to_string(), &supported));
        }
        let epsilon = self.layer_norm_eps;
        if !(epsilon.is_finite() && epsilon >= 0.0) {
            return Err(unsupported("layer_norm_eps", epsilon.to_string(), "at least 0"));
        }
        Ok(())
    }
}

fn unsupported(key: &str, value: String, supported: &str) -> Error {
    Error::Unsupported {
        config: NAME.to_owned(),
        key: key.to_owned(),
        value,
        supported: supported.to_owned(),
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
