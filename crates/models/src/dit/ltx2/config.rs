//! What `transformer/config.json` says, checked.

use nn::{Bands, ConfigReader, Pairing, Result};
use serde_json::{Value, json};

const NAME: &str = "transformer/config.json";

/// No size of a model comes near this, and products of three such sizes do not overflow.
const LARGEST: usize = 1 << 20;

/// The numbers of an LTX-2 transformer.
#[derive(Clone, Debug, PartialEq)]
pub struct Ltx2Config {
    /// Heads of every attention.
    pub heads: usize,
    /// Blocks.
    pub depth: usize,
    /// The video's numbers.
    pub video: StreamConfig,
    /// The sound's.
    pub audio: StreamConfig,
    /// Width of captions that the transformer projects itself; else they come in the width of their stream.
    pub captions: Option<usize>,
    /// Where the video's rows and columns end, in pixels.
    pub plane: [usize; 2],
    /// The highest rotary frequency over the lowest.
    pub theta: f64,
    /// Which values of a head turn together.
    pub pairing: Pairing,
    /// Epsilon of the norms without weights.
    pub epsilon: f32,
    /// What a noise level from 0 to 1 is multiplied with before it is embedded.
    pub level_scale: f64,
    /// The same where it opens the gates between the streams.
    pub gate_scale: f64,
    /// Frames, rows and columns of pixels per latent.
    pub factors: [usize; 3],
    /// Samples a second, samples per frame of the spectrogram and such frames per latent.
    pub clock: [usize; 3],
}

/// The numbers of one of the two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Values of a token.
    pub channels: usize,
    /// Values of a prediction.
    pub out_channels: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Whether each head of an attention has a gate.
    pub gated: bool,
    /// Whether attention to the text is modulated.
    pub modulated_text: bool,
    /// Where time ends, in seconds.
    pub seconds: usize,
}

impl Ltx2Config {
    /// Epsilon of the norms of queries and keys, and of the last norm, whatever the config says.
    pub const EPSILON: f32 = 1e-6;
    /// Width of an embedded timestep before its MLP.
    pub const SINUSOID: usize = 256;
    /// Width within a feed-forward, in widths of the stream.
    pub const FEED: usize = 4;

    /// Reads and checks the text of the file.
    ///
    /// # Errors
    /// It is not JSON of that form, or it asks for what this model does not do.
    pub fn from_json(text: &str) -> Result<Ltx2Config> {
        let mut options = ConfigReader::parse(NAME, text)?;
        options.class(&["LTX2VideoTransformer3DModel"])?;
        refuse_later_parts(&mut options)?;
        for (key, only) in [
            ("activation_fn", json!("gelu-approximate")),
            ("qk_norm", json!("rms_norm_across_heads")),
            ("patch_size", json!(1)),
            ("patch_size_t", json!(1)),
            ("audio_patch_size", json!(1)),
            ("audio_patch_size_t", json!(1)),
            ("causal_offset", json!(1)),
        ] {
            options.must_be(key, &only)?;
        }
        options.must_be_on("attention_bias")?;
        options.must_be_on("attention_out_bias")?;
        options.must_be_on("rope_double_precision")?;
        options.must_be_off("norm_elementwise_affine", "norms without weights")?;
        options.must_be_unquantized()?;
        // Which code computes an attention that may be skipped; any of ours may.
        options.ignore(&["perturbed_attn"]);
        let config = Ltx2Config::read(&mut options)?;
        let widths = ["cross_attention_dim", "audio_cross_attention_dim"];
        let stated = read_widths(&mut options, widths)?;
        options.finish()?;
        for (key, (stated, own)) in
            widths.into_iter().zip(stated.into_iter().zip([&config.video, &config.audio]))
        {
            let width = config.width(own);
            if stated != width {
                let supported = format!("{width}, the width of the stream");
                return Err(options.unsupported(key, &stated.into(), &supported));
            }
        }
        Ok(config)
    }

    fn read(options: &mut ConfigReader) -> Result<Ltx2Config> {
        let captions = match options.flag("use_prompt_embeddings", true)? {
            true => Some(options.count("caption_channels", 3840, 1..=LARGEST)?),
            false => {
                options.ignore(&["caption_channels"]);
                None
            }
        };
        let pairings = [("interleaved", Pairing::Interleaved), ("split", Pairing::Split)];
        let pairing = options.choice("rope_type", &pairings)?;
        let heads = options.count("num_attention_heads", 32, 1..=LARGEST)?;
        let audio_heads = options.count("audio_num_attention_heads", 32, 1..=LARGEST)?;
        if audio_heads != heads {
            let supported = format!("{heads}, the video's num_attention_heads");
            let key = "audio_num_attention_heads";
            return Err(options.unsupported(key, &audio_heads.into(), &supported));
        }
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        Ok(Ltx2Config {
            heads,
            depth: size("num_layers", 48)?,
            plane: [size("base_height", 2048)?, size("base_width", 2048)?],
            clock: [
                size("audio_sampling_rate", 16_000)?,
                size("audio_hop_length", 160)?,
                size("audio_scale_factor", 4)?,
            ],
            video: StreamConfig::read(options, &VIDEO)?,
            audio: StreamConfig::read(options, &AUDIO)?,
            captions,
            theta: options.number("rope_theta", 10_000.0)?,
            pairing,
            epsilon: options.number("norm_eps", 1e-6)? as f32,
            level_scale: options.number("timestep_scale_multiplier", 1000.0)?,
            gate_scale: options.number("cross_attn_timestep_scale_multiplier", 1000.0)?,
            factors: read_factors(options)?,
        })
    }

    /// Width of a stream.
    pub fn width(&self, stream: &StreamConfig) -> usize {
        self.heads * stream.head_width
    }

    /// Width of the caption that a stream reads.
    pub fn caption_width(&self, stream: &StreamConfig) -> usize {
        self.captions.unwrap_or_else(|| self.width(stream))
    }

    /// Width of a caption for both streams, the video's part first.
    pub fn caption_widths(&self) -> usize {
        self.caption_width(&self.video) + self.caption_width(&self.audio)
    }

    /// Whether the prompt is modulated by the noise level, for both streams if for one.
    pub fn modulated_prompt(&self) -> bool {
        self.video.modulated_text || self.audio.modulated_text
    }

    /// How the video's places become angles.
    pub fn video_bands(&self) -> Bands {
        let [rows, columns] = self.plane;
        let extents = [self.video.seconds, rows, columns];
        self.bands(&extents, self.width(&self.video))
    }

    /// How the sound's do.
    pub fn audio_bands(&self) -> Bands {
        self.bands(&[self.audio.seconds], self.width(&self.audio))
    }

    /// How the seconds of either do where the streams meet.
    pub fn cross_bands(&self) -> Bands {
        let seconds = self.video.seconds.max(self.audio.seconds);
        self.bands(&[seconds], self.width(&self.audio))
    }

    fn bands(&self, extents: &[usize], width: usize) -> Bands {
        let extents = extents.iter().map(|extent| *extent as f32).collect();
        Bands { extents, pairs: width / 2, theta: self.theta }
    }
}

/// The names of one stream's keys, with what they are where a file does not say.
struct StreamKeys {
    channels: &'static str,
    out_channels: &'static str,
    head_width: (&'static str, usize),
    gated: &'static str,
    modulated_text: &'static str,
    seconds: &'static str,
}

const VIDEO: StreamKeys = StreamKeys {
    channels: "in_channels",
    out_channels: "out_channels",
    head_width: ("attention_head_dim", 128),
    gated: "gated_attn",
    modulated_text: "cross_attn_mod",
    seconds: "pos_embed_max_pos",
};

const AUDIO: StreamKeys = StreamKeys {
    channels: "audio_in_channels",
    out_channels: "audio_out_channels",
    head_width: ("audio_attention_head_dim", 64),
    gated: "audio_gated_attn",
    modulated_text: "audio_cross_attn_mod",
    seconds: "audio_pos_embed_max_pos",
};

impl StreamConfig {
    fn read(options: &mut ConfigReader, keys: &StreamKeys) -> Result<StreamConfig> {
        let channels = options.count(keys.channels, 128, 1..=LARGEST)?;
        let (key, default) = keys.head_width;
        let head_width = options.count(key, default, 1..=LARGEST)?;
        if !head_width.is_multiple_of(2) {
            return Err(options.unsupported(key, &head_width.into(), "an even number"));
        }
        // `null` means as many as come in, which a missing key does not.
        let out_channels = options.optional_count(keys.out_channels, Some(128), 1..=LARGEST)?;
        Ok(StreamConfig {
            channels,
            out_channels: out_channels.unwrap_or(channels),
            head_width,
            gated: options.flag(keys.gated, false)?,
            modulated_text: options.flag(keys.modulated_text, false)?,
            seconds: options.count(keys.seconds, 20, 1..=LARGEST)?,
        })
    }
}

/// What LTX-2.5 has and this network has not.
fn refuse_later_parts(options: &mut ConfigReader) -> Result<()> {
    for (key, kept) in [
        ("ff_bias", true),
        ("audio_ff_bias", true),
        ("use_prompt_adaln_single", true),
        ("use_keyframes_abs_pos_embedding", false),
    ] {
        let value = options.flag(key, kept)?;
        if value != kept {
            let supported = format!("{kept}, as in LTX-2.0 and 2.3; this is a part of LTX-2.5");
            return Err(options.unsupported(key, &value.into(), &supported));
        }
    }
    Ok(())
}

fn read_widths(options: &mut ConfigReader, keys: [&'static str; 2]) -> Result<[usize; 2]> {
    let [video, audio] = keys;
    Ok([options.count(video, 4096, 1..=LARGEST)?, options.count(audio, 2048, 1..=LARGEST)?])
}

fn read_factors(options: &mut ConfigReader) -> Result<[usize; 3]> {
    let factors = options.counts("vae_scale_factors", &[8, 32, 32], 1..=LARGEST)?;
    let supported = "three numbers: frames, rows, columns";
    <[usize; 3]>::try_from(factors).map_err(|factors| {
        options.unsupported("vae_scale_factors", &Value::from(factors), supported)
    })
}
