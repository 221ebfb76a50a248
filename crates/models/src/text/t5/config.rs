//! What transformers' `config.json` says of a T5 or UMT5 encoder, checked.
//!
//! Such files carry many keys that concern training, generation or the decoder; those are passed
//! over. A value that would change the embeddings and that we do not compute is refused by name.

use nn::{Error, Result};
use serde::Deserialize;
use serde_json::Value;

const NAME: &str = "the config of the T5 text encoder";

/// No size of a model comes near this, and products of two such sizes do not overflow.
const LARGEST: usize = 1 << 24;

/// The feed-forward half of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedForward {
    /// `wo(relu(wi(x)))`, as the first T5 has it.
    Relu,
    /// `wo(gelu(wi_0(x)) wi_1(x))` with the tanh approximation, as v1.1 has it.
    GatedGelu,
}

/// Which blocks hold a table of position biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PositionBias {
    /// The first does, and all use it: T5.
    Shared,
    /// Each has its own: UMT5.
    PerBlock,
}

/// The sizes of a T5 encoder.
#[derive(Clone, Debug, PartialEq)]
pub struct T5Config {
    /// Rows of the embedding table.
    pub vocabulary: usize,
    /// Width of the embeddings.
    pub width: usize,
    /// Blocks.
    pub depth: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Width of a head; `heads * head_width` need not be `width`.
    pub head_width: usize,
    /// Width between the linear layers of the feed-forward half.
    pub feed_forward_width: usize,
    /// Which feed-forward half.
    pub feed_forward: FeedForward,
    /// Which blocks hold a table of position biases.
    pub position_bias: PositionBias,
    /// Distances between tokens are sorted into this many buckets.
    pub buckets: usize,
    /// From this distance on, all share the last bucket of their direction.
    pub max_distance: usize,
    /// Added to the mean square in every norm.
    pub epsilon: f32,
}

impl T5Config {
    /// Reads the text of a `config.json`.
    ///
    /// # Errors
    /// The text is not such a config, or it asks for what is not supported.
    pub fn from_json(text: &str) -> Result<T5Config> {
        let file: ConfigFile = serde_json::from_str(text)
            .map_err(|err| Error::Config { config: NAME.to_owned(), reason: err.to_string() })?;
        file.check()
    }

    /// Width of all heads together.
    pub fn inner_width(&self) -> usize {
        self.heads * self.head_width
    }
}

/// The keys that matter, with the defaults of transformers for those that old files leave out.
#[derive(Deserialize)]
struct ConfigFile {
    model_type: Option<String>,
    vocab_size: usize,
    d_model: usize,
    d_kv: usize,
    d_ff: usize,
    num_layers: usize,
    num_heads: usize,
    #[serde(default = "default_buckets")]
    relative_attention_num_buckets: usize,
    #[serde(default = "default_max_distance")]
    relative_attention_max_distance: usize,
    #[serde(default = "default_epsilon")]
    layer_norm_epsilon: f32,
    feed_forward_proj: Option<String>,
    dense_act_fn: Option<String>,
    is_gated_act: Option<bool>,
    quantization_config: Option<Value>,
}

fn default_buckets() -> usize {
    32
}

fn default_max_distance() -> usize {
    128
}

fn default_epsilon() -> f32 {
    1e-6
}

impl ConfigFile {
    fn check(self) -> Result<T5Config> {
        let position_bias = match self.model_type.as_deref() {
            None | Some("t5") => PositionBias::Shared,
            Some("umt5") => PositionBias::PerBlock,
            Some(family) => {
                return Err(unsupported("model_type", format!("`{family}`"), "`t5`, `umt5`"));
            }
        };
        if let Some(quantization) = &self.quantization_config {
            let remedy = "none; use a checkpoint with f32, bf16 or f16 weights";
            return Err(unsupported("quantization_config", quantization.to_string(), remedy));
        }
        self.check_sizes()?;
        Ok(T5Config {
            vocabulary: self.vocab_size,
            width: self.d_model,
            depth: self.num_layers,
            heads: self.num_heads,
            head_width: self.d_kv,
            feed_forward_width: self.d_ff,
            feed_forward: self.feed_forward(position_bias)?,
            position_bias,
            buckets: self.relative_attention_num_buckets,
            max_distance: self.relative_attention_max_distance,
            epsilon: self.layer_norm_epsilon,
        })
    }

    fn check_sizes(&self) -> Result<()> {
        let sizes = [
            ("vocab_size", self.vocab_size),
            ("d_model", self.d_model),
            ("d_kv", self.d_kv),
            ("d_ff", self.d_ff),
            ("num_layers", self.num_layers),
            ("num_heads", self.num_heads),
        ];
        for (key, size) in sizes {
            if !(1..=LARGEST).contains(&size) {
                return Err(unsupported(key, size.to_string(), &format!("1 to {LARGEST}")));
            }
        }
        // Half of the buckets are for each direction, half of those for single distances.
        let buckets = self.relative_attention_num_buckets;
        if buckets < 4 {
            let key = "relative_attention_num_buckets";
            return Err(unsupported(key, buckets.to_string(), "at least 4"));
        }
        let distance = self.relative_attention_max_distance;
        if distance <= buckets / 4 {
            let least = format!("more than a quarter of the {buckets} buckets");
            let key = "relative_attention_max_distance";
            return Err(unsupported(key, distance.to_string(), &least));
        }
        let epsilon = self.layer_norm_epsilon;
        if !(epsilon.is_finite() && epsilon >= 0.0) {
            return Err(unsupported("layer_norm_epsilon", epsilon.to_string(), "at least 0"));
        }
        Ok(())
    }

    /// `feed_forward_proj` decides; the two keys derived from it must not say otherwise.
    fn feed_forward(&self, position_bias: PositionBias) -> Result<FeedForward> {
        let default = match position_bias {
            PositionBias::Shared => "relu",
            PositionBias::PerBlock => "gated-gelu",
        };
        let given = self.feed_forward_proj.as_deref().unwrap_or(default);
        let (feed_forward, activation, gated) = match given {
            "relu" => (FeedForward::Relu, "relu", false),
            "gated-gelu" => (FeedForward::GatedGelu, "gelu_new", true),
            other => {
                let supported = "`gated-gelu`, `relu`";
                return Err(unsupported("feed_forward_proj", format!("`{other}`"), supported));
            }
        };
        let with = format!("with `feed_forward_proj` `{given}`");
        if let Some(other) = self.dense_act_fn.as_deref().filter(|&other| other != activation) {
            let supported = format!("`{activation}` {with}");
            return Err(unsupported("dense_act_fn", format!("`{other}`"), &supported));
        }
        if let Some(other) = self.is_gated_act.filter(|&other| other != gated) {
            return Err(unsupported("is_gated_act", other.to_string(), &format!("{gated} {with}")));
        }
        Ok(feed_forward)
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
    use serde_json::{Value, json};

    use super::{FeedForward, PositionBias, T5Config};

    /// A config as hub folders have it, with one key replaced.
    fn with(key: &str, value: Value) -> nn::Result<T5Config> {
        let mut config = json!({
            "architectures": ["T5EncoderModel"], "model_type": "t5", "vocab_size": 61,
            "d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 3,
            "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "is_gated_act": true,
            "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
            "layer_norm_epsilon": 1e-6, "is_encoder_decoder": true, "dropout_rate": 0.1,
        });
        config[key] = value;
        T5Config::from_json(&config.to_string())
    }

    #[test]
    fn keys_without_influence_are_passed_over() {
        let plain = with("use_cache", json!(true)).expect("a supported config");
        assert_eq!(plain, with("dropout_rate", json!(0.5)).expect("a supported config"));
        assert_eq!((plain.inner_width(), plain.feed_forward), (15, FeedForward::GatedGelu));
    }

    #[test]
    fn old_files_leave_out_what_is_the_default() {
        let text = r#"{"vocab_size": 9, "d_model": 4, "d_kv": 2, "d_ff": 8, "num_layers": 1,
            "num_heads": 2}"#;
        let config = T5Config::from_json(text).expect("a supported config");
        assert_eq!(config.feed_forward, FeedForward::Relu);
        assert_eq!(config.position_bias, PositionBias::Shared);
        assert_eq!((config.buckets, config.max_distance, config.epsilon), (32, 128, 1e-6));
    }

    #[test]
    fn umt5_has_defaults_of_its_own() {
        let text = r#"{"model_type": "umt5", "vocab_size": 9, "d_model": 4, "d_kv": 2, "d_ff": 8,
            "num_layers": 1, "num_heads": 2}"#;
        let config = T5Config::from_json(text).expect("a supported config");
        assert_eq!(config.feed_forward, FeedForward::GatedGelu);
        assert_eq!(config.position_bias, PositionBias::PerBlock);
    }

    #[test]
    fn what_is_not_computed_is_refused_by_name() {
        let refused = [
            ("model_type", json!("mt5")),
            ("feed_forward_proj", json!("gated-silu")),
            ("dense_act_fn", json!("gelu")),
            ("is_gated_act", json!(false)),
            ("quantization_config", json!({"bits": 8})),
            ("num_heads", json!(0)),
            ("d_kv", json!(usize::MAX)),
            ("relative_attention_num_buckets", json!(3)),
            ("relative_attention_max_distance", json!(8)),
            ("layer_norm_epsilon", json!(-1.0)),
        ];
        for (key, value) in refused {
            let error = with(key, value).expect_err(key);
            assert!(matches!(error, nn::Error::Unsupported { .. }), "{key}: {error}");
            assert!(error.to_string().contains(key), "{key}: {error}");
        }
    }

    #[test]
    fn a_config_without_sizes_names_the_missing_one() {
        let error = T5Config::from_json(r#"{"model_type": "t5"}"#).expect_err("no sizes");
        assert!(error.to_string().contains("vocab_size"), "{error}");
    }
}
