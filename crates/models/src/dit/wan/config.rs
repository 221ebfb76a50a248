//! What `transformer/config.json` says, checked.

use nn::{Error, Result};
use serde::Deserialize;

const NAME: &str = "transformer/config.json";

/// The numbers of a Wan transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct WanConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Blocks.
    pub depth: usize,
    /// Channels it is given: those of a latent and of what stands beside it.
    pub in_channels: usize,
    /// Channels of a prediction.
    pub out_channels: usize,
    /// Frames, rows and columns of a patch in latent pixels.
    pub patch: [usize; 3],
    /// Width of the text encoder's output.
    pub text_width: usize,
    /// Width of an embedded timestep before its MLP.
    pub timestep_width: usize,
    /// Width within a feed-forward.
    pub feed_width: usize,
    /// Whether a layer norm comes before cross-attention.
    pub cross_norm: bool,
    /// Epsilon of its norms.
    pub epsilon: f32,
    /// How it looks at the tokens of an image encoder, if it does.
    pub picture: Option<PictureConfig>,
}

/// What a transformer that looks at an image encoder's tokens expects of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureConfig {
    /// Width of the image encoder's output.
    pub width: usize,
    /// The number of tokens, where they have an embedding of their place: those of the first and
    /// the last picture together.
    pub tokens: Option<usize>,
}

/// The file as it is written. Keys that do not change the arithmetic are not listed.
#[derive(Deserialize)]
struct Raw {
    _class_name: Option<String>,
    patch_size: Option<Vec<usize>>,
    num_attention_heads: Option<usize>,
    attention_head_dim: Option<usize>,
    in_channels: Option<usize>,
    /// `null` means as many as `in_channels`, which a missing key does not.
    #[serde(default = "sixteen")]
    out_channels: Option<usize>,
    text_dim: Option<usize>,
    freq_dim: Option<usize>,
    ffn_dim: Option<usize>,
    num_layers: Option<usize>,
    cross_attn_norm: Option<bool>,
    qk_norm: Option<String>,
    eps: Option<f64>,
    image_dim: Option<usize>,
    added_kv_proj_dim: Option<usize>,
    pos_embed_seq_len: Option<usize>,
}

fn sixteen() -> Option<usize> {
    Some(16)
}

impl WanConfig {
    /// Wan 2.1 text to video with 1.3 billion parameters.
    pub fn t2v_1_3b() -> WanConfig {
        WanConfig {
            heads: 12,
            head_width: 128,
            depth: 30,
            in_channels: 16,
            out_channels: 16,
            patch: [1, 2, 2],
            text_width: 4096,
            timestep_width: 256,
            feed_width: 8960,
            cross_norm: true,
            epsilon: 1e-6,
            picture: None,
        }
    }

    /// Reads and checks the text of the file.
    ///
    /// # Errors
    /// It is not JSON of that form, or it asks for what this model does not do.
    pub fn from_json(text: &str) -> Result<WanConfig> {
        let raw: Raw = serde_json::from_str(text)
            .map_err(|err| Error::Config { config: NAME.into(), reason: err.to_string() })?;
        raw.check()?;
        let in_channels = raw.in_channels.unwrap_or(16);
        let config = WanConfig {
            heads: raw.num_attention_heads.unwrap_or(40),
            head_width: raw.attention_head_dim.unwrap_or(128),
            depth: raw.num_layers.unwrap_or(40),
            in_channels,
            out_channels: raw.out_channels.unwrap_or(in_channels),
            patch: raw.patch()?,
            text_width: raw.text_dim.unwrap_or(4096),
            timestep_width: raw.freq_dim.unwrap_or(256),
            feed_width: raw.ffn_dim.unwrap_or(13_824),
            cross_norm: raw.cross_attn_norm.unwrap_or(true),
            epsilon: raw.eps.unwrap_or(1e-6) as f32,
            picture: raw
                .image_dim
                .map(|width| PictureConfig { width, tokens: raw.pos_embed_seq_len }),
        };
        config.positive()?;
        config.added(raw.added_kv_proj_dim)?;
        Ok(config)
    }

    /// Width of the stream.
    pub fn width(&self) -> usize {
        self.heads * self.head_width
    }

    /// Latent pixels of a patch.
    pub fn pixels(&self) -> usize {
        self.patch.iter().product()
    }

    /// How many pairs of a head each axis turns: rows and columns a third each, frames the rest.
    pub fn pairs(&self) -> [usize; 3] {
        let side = self.head_width / 6;
        [self.head_width / 2 - 2 * side, side, side]
    }

    fn positive(&self) -> Result<()> {
        let [frames, rows, columns] = self.patch;
        let picture = self.picture.unwrap_or(PictureConfig { width: 1, tokens: None });
        let sizes = [
            ("num_attention_heads", self.heads),
            ("attention_head_dim", self.head_width),
            ("num_layers", self.depth),
            ("in_channels", self.in_channels),
            ("out_channels", self.out_channels),
            ("patch_size", frames.min(rows).min(columns)),
            ("text_dim", self.text_width),
            ("freq_dim", self.timestep_width),
            ("ffn_dim", self.feed_width),
            ("image_dim", picture.width),
            ("pos_embed_seq_len", picture.tokens.unwrap_or(1)),
        ];
        if let Some((key, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return refuse(key, 0, "1 or more");
        }
        match self.head_width.is_multiple_of(2) {
            true => Ok(()),
            false => refuse("attention_head_dim", self.head_width, "an even number"),
        }
    }

    /// Keys and values for a picture are there if a picture is, and as wide as the stream.
    fn added(&self, added_kv_proj_dim: Option<usize>) -> Result<()> {
        let (key, width) = ("added_kv_proj_dim", self.width());
        match (&self.picture, added_kv_proj_dim) {
            (None, None) => Ok(()),
            (Some(_), Some(added)) if added == width => Ok(()),
            (Some(_), Some(added)) => {
                refuse(key, added, &format!("{width}, the model's own width"))
            }
            (Some(_), None) => {
                refuse(key, "null", &format!("{width}, the model's own width, beside an image_dim"))
            }
            (None, Some(added)) => refuse(key, added, "null where image_dim is null"),
        }
    }
}

impl Raw {
    fn check(&self) -> Result<()> {
        let text = [
            ("_class_name", &self._class_name, "WanTransformer3DModel"),
            ("qk_norm", &self.qk_norm, "rms_norm_across_heads"),
        ];
        for (key, value, supported) in text {
            if let Some(value) = value
                && value != supported
            {
                return refuse(key, value, supported);
            }
        }
        Ok(())
    }

    fn patch(&self) -> Result<[usize; 3]> {
        let Some(sizes) = &self.patch_size else { return Ok([1, 2, 2]) };
        match sizes[..] {
            [frames, rows, columns] => Ok([frames, rows, columns]),
            _ => refuse("patch_size", format!("{sizes:?}"), "three numbers: frames, rows, columns"),
        }
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
