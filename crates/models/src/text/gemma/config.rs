//! What transformers' `config.json` says of a Gemma 3, checked.

use nn::{ConfigReader, Result};
use serde_json::{Value, json};

use crate::pretrained;

const NAME: &str = "the config of the Gemma text encoder";

/// No size of a model comes near this, and products of two such sizes do not overflow.
const LARGEST: usize = 1 << 24;

/// What a Gemma 3 has for pictures beside its language model, and what training began with.
const IGNORED: [&str; 12] = [
    "boi_token_id",
    "boi_token_index",
    "eoi_token_id",
    "eoi_token_index",
    "gemma_version",
    "image_token_id",
    "image_token_index",
    "initializer_range",
    "mm_tokens_per_image",
    "model_type",
    "video_token_id",
    "vision_config",
];

/// What the language model has and an encoder does not ask for.
const IGNORED_TEXT: [&str; 6] = [
    "attention_dropout",
    "cache_implementation",
    "final_logit_softcapping",
    "initializer_range",
    "max_position_embeddings",
    "model_type",
];

/// The numbers of the language model.
#[derive(Clone, Debug, PartialEq)]
pub struct GemmaConfig {
    /// Rows of the embedding table.
    pub vocabulary: usize,
    /// Width of the embeddings.
    pub width: usize,
    /// Width within a feed-forward.
    pub feed_width: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub key_heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Scores are divided by the root of this.
    pub score_scale: f64,
    /// Epsilon of its norms.
    pub epsilon: f32,
    /// How many tokens a token of a layer with a window sees, itself included.
    pub window: usize,
    /// How far each layer sees.
    pub layers: Vec<Sight>,
    /// The base of positions in layers with a window.
    pub local_theta: f64,
    /// The same in layers that see everything.
    pub theta: f64,
    /// What positions are divided by in layers that see everything.
    pub stretch: f64,
}

/// How far a layer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// A window.
    Window,
    /// Everything before.
    All,
}

impl GemmaConfig {
    /// Reads and checks the text of the file: that of the whole model, or of its language model.
    ///
    /// # Errors
    /// It is not JSON of that form, or it asks for what this model does not do.
    pub fn from_json(text: &str) -> Result<GemmaConfig> {
        let mut whole = ConfigReader::parse(NAME, text)?;
        let Some(text) = whole.take("text_config") else {
            return GemmaConfig::language_model(&mut whole);
        };
        pretrained::read(&mut whole)?;
        whole.ignore(&IGNORED);
        whole.finish()?;
        GemmaConfig::language_model(&mut ConfigReader::parse(NAME, &text.to_string())?)
    }

    fn language_model(options: &mut ConfigReader) -> Result<GemmaConfig> {
        pretrained::read(options)?;
        options.ignore(&IGNORED_TEXT);
        options.must_be("hidden_activation", &json!("gelu_pytorch_tanh"))?;
        options.must_be_off("attention_bias", "projections without a bias")?;
        options.must_be_null("attn_logit_softcapping")?;
        if options.optional_flag("use_bidirectional_attention", None)? == Some(true) {
            let key = "use_bidirectional_attention";
            return Err(options.unsupported(
                key,
                &true.into(),
                "false: tokens see what is before them",
            ));
        }
        let rope = Rope::read(options)?;
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let depth = size("num_hidden_layers", 26)?;
        let (heads, key_heads) = (size("num_attention_heads", 8)?, size("num_key_value_heads", 4)?);
        let head_width = size("head_dim", 256)?;
        let (vocabulary, width) = (size("vocab_size", 262_208)?, size("hidden_size", 2304)?);
        let (feed_width, window) =
            (size("intermediate_size", 9216)?, size("sliding_window", 4096)?);
        if !heads.is_multiple_of(key_heads) {
            let supported = format!("a divisor of num_attention_heads, which is {heads}");
            return Err(options.unsupported("num_key_value_heads", &key_heads.into(), &supported));
        }
        if !head_width.is_multiple_of(2) {
            return Err(options.unsupported("head_dim", &head_width.into(), "an even number"));
        }
        let config = GemmaConfig {
            vocabulary,
            width,
            feed_width,
            heads,
            key_heads,
            head_width,
            score_scale: options.number("query_pre_attn_scalar", 256.0)?,
            epsilon: options.number("rms_norm_eps", 1e-6)? as f32,
            window,
            layers: read_layers(options, depth)?,
            local_theta: rope.local_theta,
            theta: rope.theta,
            stretch: rope.stretch,
        };
        options.finish()?;
        Ok(config)
    }
}

/// How far each layer sees, by a list or, in older files, by every how many layers one sees everything.
fn read_layers(options: &mut ConfigReader, depth: usize) -> Result<Vec<Sight>> {
    let listed = options.take("layer_types");
    let pattern = options.count("sliding_window_pattern", 6, 1..=LARGEST)?;
    let pattern = options.count("_sliding_window_pattern", pattern, 1..=LARGEST)?;
    let Some(listed) = listed.filter(|listed| !listed.is_null()) else {
        let sight =
            |layer: usize| if layer.is_multiple_of(pattern) { Sight::All } else { Sight::Window };
        return Ok((1..=depth).map(sight).collect());
    };
    let sight = |name: &Value| match name.as_str() {
        Some("sliding_attention") => Some(Sight::Window),
        Some("full_attention") => Some(Sight::All),
        _ => None,
    };
    let layers: Option<Vec<Sight>> =
        listed.as_array().and_then(|all| all.iter().map(sight).collect());
    layers.filter(|layers| layers.len() == depth).ok_or_else(|| {
        let supported =
            format!("`sliding_attention` or `full_attention` for each of {depth} layers");
        options.unsupported("layer_types", &listed, &supported)
    })
}

struct Rope {
    local_theta: f64,
    theta: f64,
    stretch: f64,
}

impl Rope {
    /// As transformers 5 writes it, or as version 4 did.
    fn read(options: &mut ConfigReader) -> Result<Rope> {
        let theta = options.number("rope_theta", 1_000_000.0)?;
        let local_theta = options.number("rope_local_base_freq", 10_000.0)?;
        let mut rope = Rope { local_theta, theta, stretch: 1.0 };
        let scaling = options.take("rope_scaling").filter(|value| !value.is_null());
        if let Some(scaling) = scaling {
            rope.stretch = stretch(options, "rope_scaling", &scaling)?;
        }
        let Some(both) = options.take("rope_parameters").filter(|value| !value.is_null()) else {
            return Ok(rope);
        };
        let base = |kind: &str, default: f64| both[kind]["rope_theta"].as_f64().unwrap_or(default);
        rope.theta = base("full_attention", theta);
        rope.local_theta = base("sliding_attention", local_theta);
        rope.stretch = stretch(options, "rope_parameters", &both["full_attention"])?;
        if stretch(options, "rope_parameters", &both["sliding_attention"])? != 1.0 {
            let supported = "positions as they are in layers with a window";
            return Err(options.unsupported("rope_parameters", &both, supported));
        }
        Ok(rope)
    }
}

/// What positions are divided by.
fn stretch(options: &ConfigReader, key: &str, rope: &Value) -> Result<f64> {
    let kind = rope.get("rope_type").or_else(|| rope.get("type")).and_then(Value::as_str);
    let factor = rope.get("factor").and_then(Value::as_f64);
    match (kind, factor) {
        (None | Some("default"), _) => Ok(1.0),
        (Some("linear"), Some(factor)) if factor > 0.0 => Ok(factor),
        _ => {
            let supported = "the default rope, or a linear one with its factor";
            Err(options.unsupported(key, rope, supported))
        }
    }
}
