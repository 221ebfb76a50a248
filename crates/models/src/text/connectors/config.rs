//! What `connectors/config.json` says, checked.

use nn::{ConfigReader, Pairing, Result};

const NAME: &str = "connectors/config.json";

/// No size of a model comes near this, and products of three such sizes do not overflow.
const LARGEST: usize = 1 << 20;

/// The numbers of both connectors.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectorsConfig {
    /// Width of a hidden state.
    pub width: usize,
    /// Hidden states of a token.
    pub states: usize,
    /// How hidden states become one.
    pub features: Features,
    /// Whether that projection adds a bias.
    pub bias: bool,
    /// The video's connector.
    pub video: ConnectorConfig,
    /// The sound's.
    pub audio: ConnectorConfig,
    /// Where places end.
    pub length: usize,
    /// The highest rotary frequency over the lowest.
    pub theta: f64,
    /// Which values of a head turn together.
    pub pairing: Pairing,
}

/// How the hidden states of a token become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Features {
    /// Each state by its mean and range over the caption, then one projection for both streams: 2.0.
    Shared,
    /// Each state by its own norm, then a projection for each stream: 2.3.
    PerStream,
}

/// The numbers of one connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectorConfig {
    /// Heads.
    pub heads: usize,
    /// Width of a head.
    pub head_width: usize,
    /// Blocks.
    pub depth: usize,
    /// Learnt registers, of which a caption's length is a multiple.
    pub registers: usize,
    /// Whether each head has a gate.
    pub gated: bool,
}

impl ConnectorConfig {
    /// Its width.
    pub fn width(&self) -> usize {
        self.heads * self.head_width
    }
}

/// The keys of a connector: heads, head width, depth, registers, gates.
type Keys = [&'static str; 5];

const VIDEO: Keys = [
    "video_connector_num_attention_heads",
    "video_connector_attention_head_dim",
    "video_connector_num_layers",
    "video_connector_num_learnable_registers",
    "video_gated_attn",
];

const AUDIO: Keys = [
    "audio_connector_num_attention_heads",
    "audio_connector_attention_head_dim",
    "audio_connector_num_layers",
    "audio_connector_num_learnable_registers",
    "audio_gated_attn",
];

impl ConnectorsConfig {
    /// Reads and checks the text of the file.
    ///
    /// # Errors
    /// It is not JSON of that form, or it asks for what this model does not do.
    pub fn from_json(text: &str) -> Result<ConnectorsConfig> {
        let mut options = ConfigReader::parse(NAME, text)?;
        options.class(&["LTX2TextConnectors"])?;
        options.must_be_on("rope_double_precision")?;
        options.must_be_off("causal_temporal_positioning", "places by token")?;
        options.must_be_unquantized()?;
        let pairings = [("interleaved", Pairing::Interleaved), ("split", Pairing::Split)];
        let features = match options.flag("per_modality_projections", false)? {
            true => Features::PerStream,
            false => Features::Shared,
        };
        let config = ConnectorsConfig {
            width: options.count("caption_channels", 3840, 1..=LARGEST)?,
            states: options.count("text_proj_in_factor", 49, 1..=LARGEST)?,
            features,
            bias: options.flag("proj_bias", false)?,
            video: read(&mut options, VIDEO)?,
            audio: read(&mut options, AUDIO)?,
            length: options.count("connector_rope_base_seq_len", 4096, 1..=LARGEST)?,
            theta: options.number("rope_theta", 10_000.0)?,
            pairing: options.choice("rope_type", &pairings)?,
        };
        config.check_widths(&mut options)?;
        options.finish()?;
        Ok(config)
    }

    /// A connector is as wide as what is projected for it.
    fn check_widths(&self, options: &mut ConfigReader) -> Result<()> {
        let stated = match self.features {
            Features::PerStream => {
                [("video_hidden_dim", 4096), ("audio_hidden_dim", 2048)].map(Some)
            }
            Features::Shared => {
                options.ignore(&["video_hidden_dim", "audio_hidden_dim"]);
                [None, None]
            }
        };
        for (connector, (stated, keys)) in
            [&self.video, &self.audio].into_iter().zip(stated.into_iter().zip([VIDEO, AUDIO]))
        {
            let want = match stated {
                Some((key, default)) => options.count(key, default, 1..=LARGEST)?,
                None => self.width,
            };
            if connector.width() != want {
                let supported = format!("heads that are {want} wide together");
                return Err(options.unsupported(keys[1], &connector.head_width.into(), &supported));
            }
        }
        Ok(())
    }
}

fn read(options: &mut ConfigReader, keys: Keys) -> Result<ConnectorConfig> {
    let [heads, head_width, depth, registers, gated] = keys;
    let size = |options: &mut ConfigReader, key, default| options.count(key, default, 1..=LARGEST);
    let config = ConnectorConfig {
        heads: size(options, heads, 30)?,
        head_width: size(options, head_width, 128)?,
        depth: size(options, depth, 2)?,
        registers: size(options, registers, 128)?,
        gated: options.flag(gated, false)?,
    };
    match config.head_width.is_multiple_of(2) {
        true => Ok(config),
        false => Err(options.unsupported(head_width, &config.head_width.into(), "an even number")),
    }
}
