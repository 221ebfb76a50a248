//! What `transformer/config.json` says, checked.

use nn::{ConfigReader, Result};
use serde_json::{Value, json};

const NAME: &str = "transformer/config.json";

/// No size of a model comes near this, and products of three such sizes do not overflow.
const LARGEST: usize = 1 << 20;

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
        let mut options = ConfigReader::parse(NAME, text)?;
        options.class(&["WanTransformer3DModel"])?;
        options.must_be("qk_norm", &json!("rms_norm_across_heads"))?;
        // The first published files have a window, which is always the whole.
        options.must_be("window_size", &json!([-1, -1]))?;
        options.must_be_unquantized()?;
        // Bounds a table that we do not keep: places are turned by their own angles.
        options.ignore(&["rope_max_seq_len"]);
        let config = WanConfig::read(&mut options)?;
        let added = options.optional_count("added_kv_proj_dim", None, 1..=LARGEST)?;
        options.finish()?;
        config.check_added(added, &options)?;
        Ok(config)
    }

    fn read(options: &mut ConfigReader) -> Result<WanConfig> {
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let (heads, head_width) =
            (size("num_attention_heads", 40)?, size("attention_head_dim", 128)?);
        let (depth, in_channels) = (size("num_layers", 40)?, size("in_channels", 16)?);
        let (text_width, timestep_width) = (size("text_dim", 4096)?, size("freq_dim", 256)?);
        let feed_width = size("ffn_dim", 13_824)?;
        let mut optional = |key, default| options.optional_count(key, default, 1..=LARGEST);
        // `null` means as many as `in_channels`, which a missing key does not.
        let out_channels = optional("out_channels", Some(16))?.unwrap_or(in_channels);
        let (picture, tokens) =
            (optional("image_dim", None)?, optional("pos_embed_seq_len", None)?);
        if !head_width.is_multiple_of(2) {
            let key = "attention_head_dim";
            return Err(options.unsupported(key, &head_width.into(), "an even number"));
        }
        Ok(WanConfig {
            heads,
            head_width,
            depth,
            in_channels,
            out_channels,
            patch: read_patch(options)?,
            text_width,
            timestep_width,
            feed_width,
            cross_norm: options.flag("cross_attn_norm", true)?,
            epsilon: options.number("eps", 1e-6)? as f32,
            picture: picture.map(|width| PictureConfig { width, tokens }),
        })
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

    /// Keys and values for a picture are there if a picture is, and as wide as the stream.
    fn check_added(&self, added: Option<usize>, options: &ConfigReader) -> Result<()> {
        let own = format!("{}, the model's own width", self.width());
        let refuse = |value: Value, supported: &str| {
            Err(options.unsupported("added_kv_proj_dim", &value, supported))
        };
        match (&self.picture, added) {
            (None, None) => Ok(()),
            (Some(_), Some(added)) if added == self.width() => Ok(()),
            (Some(_), Some(added)) => refuse(added.into(), &own),
            (Some(_), None) => refuse(Value::Null, &format!("{own}, beside an image_dim")),
            (None, Some(added)) => refuse(added.into(), "null where image_dim is null"),
        }
    }
}

fn read_patch(options: &mut ConfigReader) -> Result<[usize; 3]> {
    let sizes = options.counts("patch_size", &[1, 2, 2], 1..=LARGEST)?;
    let supported = "three numbers: frames, rows, columns";
    <[usize; 3]>::try_from(sizes)
        .map_err(|sizes| options.unsupported("patch_size", &sizes.into(), supported))
}
