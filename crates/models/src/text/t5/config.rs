//! What transformers' `config.json` says of a T5 or UMT5 encoder, checked.
//!
//! Such files carry many keys that concern training, generation or the decoder; those are known
//! and passed over. A value that would change the embeddings and that we do not compute is refused
//! by name, and so is a key that nobody knows.

use nn::{ConfigReader, Result};
use serde_json::Value;

use crate::pretrained;

const NAME: &str = "the config of the T5 text encoder";

/// No size of a model comes near this, and products of two such sizes do not overflow.
const LARGEST: usize = 1 << 24;

/// What T5 and UMT5 have beside what every model has: the decoder, training, the old positions,
/// and what the first converters wrote.
const IGNORED: [&str; 8] = [
    "classifier_dropout",
    "dropout_rate",
    "initializer_factor",
    "n_positions",
    "num_decoder_layers",
    "output_past",
    "scalable_attention",
    "scale_decoder_outputs",
];

/// What follows from `feed_forward_proj` and is written all the same.
const DERIVED: [&str; 2] = ["dense_act_fn", "is_gated_act"];
const DISTANCE: &str = "relative_attention_max_distance";

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
        let mut options = ConfigReader::parse(NAME, text)?;
        pretrained::read(&mut options)?;
        options.ignore(&IGNORED);
        let families = [("t5", PositionBias::Shared), ("umt5", PositionBias::PerBlock)];
        let position_bias = options.choice("model_type", &families)?;
        let mut kinds = [("relu", FeedForward::Relu), ("gated-gelu", FeedForward::GatedGelu)];
        if position_bias == PositionBias::PerBlock {
            kinds.reverse();
        }
        let feed_forward = options.choice("feed_forward_proj", &kinds)?;
        let derived = DERIVED.map(|key| options.take(key).unwrap_or_default());
        // Half of the buckets are for each direction, half of those for single distances.
        let buckets = options.count("relative_attention_num_buckets", 32, 4..=LARGEST)?;
        let max_distance = options.count(DISTANCE, 128, 1..=usize::MAX)?;
        let epsilon = options.number("layer_norm_epsilon", 1e-6)? as f32;
        let mut size = |key| options.required_count(key, 1..=LARGEST);
        let config = T5Config {
            vocabulary: size("vocab_size")?,
            width: size("d_model")?,
            depth: size("num_layers")?,
            heads: size("num_heads")?,
            head_width: size("d_kv")?,
            feed_forward_width: size("d_ff")?,
            feed_forward,
            position_bias,
            buckets,
            max_distance,
            epsilon,
        };
        options.finish()?;
        config.check(&derived, &options)?;
        Ok(config)
    }

    /// Refuses numbers that cannot be, and values derived from others that say otherwise.
    fn check(&self, derived: &[Value; 2], options: &ConfigReader) -> Result<()> {
        if !(self.epsilon.is_finite() && self.epsilon >= 0.0) {
            let (key, value) = ("layer_norm_epsilon", self.epsilon.into());
            return Err(options.unsupported(key, &value, "at least 0"));
        }
        if self.max_distance <= self.buckets / 4 {
            let least = format!("more than a quarter of the {} buckets", self.buckets);
            return Err(options.unsupported(DISTANCE, &self.max_distance.into(), &least));
        }
        let (given, activation, gated) = match self.feed_forward {
            FeedForward::Relu => ("relu", "relu", false),
            FeedForward::GatedGelu => ("gated-gelu", "gelu_new", true),
        };
        let only = [Value::from(activation), Value::from(gated)];
        for ((key, value), only) in DERIVED.into_iter().zip(derived).zip(only) {
            if *value != only && !value.is_null() {
                let supported = format!("{only} with `feed_forward_proj` \"{given}\"");
                return Err(options.unsupported(key, value, &supported));
            }
        }
        Ok(())
    }

    /// Width of all heads together.
    pub fn inner_width(&self) -> usize {
        self.heads * self.head_width
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
