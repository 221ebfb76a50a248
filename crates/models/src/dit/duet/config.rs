//! What `transformer/config.json` says, checked.

use nn::{ConfigReader, Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

const NAME: &str = "transformer/config.json";

/// More than any size of this family: beyond, products of sizes would no longer be numbers.
const LARGEST: usize = 65_536;

/// No Duet is deeper.
const DEEPEST: usize = 1024;

/// No Duet has more parameters: it is a family of small models.
const MOST_PARAMETERS: u128 = 1 << 28;

/// The numbers of a Duet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DuetConfig {
    /// Always `DuetTransformer`.
    #[serde(rename = "_class_name", default = "class_name")]
    pub class_name: String,
    /// Heads.
    #[serde(default = "six")]
    pub heads: usize,
    /// Width of a head.
    #[serde(default = "thirty_two")]
    pub head_width: usize,
    /// Blocks.
    #[serde(default = "four")]
    pub depth: usize,
    /// Width within a feed-forward, in widths of the stream.
    #[serde(default = "two")]
    pub feed_factor: usize,
    /// Values of a token of the picture.
    pub video_channels: usize,
    /// Values of a token of the sound, if it has that voice.
    #[serde(default)]
    pub audio_channels: Option<usize>,
    /// Tokens of the sound in a second: what its places are counted in.
    #[serde(default = "thirty_two_a_second")]
    pub audio_rate: f64,
    /// Values of a word.
    pub text_width: usize,
    /// What it predicts.
    #[serde(default)]
    pub prediction: DuetPrediction,
}

/// What a Duet predicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DuetPrediction {
    /// Clean tokens.
    #[default]
    Clean,
    /// The velocity of the flow.
    Velocity,
}

fn class_name() -> String {
    "DuetTransformer".to_owned()
}

fn six() -> usize {
    6
}

fn thirty_two() -> usize {
    32
}

fn four() -> usize {
    4
}

fn two() -> usize {
    2
}

fn thirty_two_a_second() -> f64 {
    32.0
}

impl DuetConfig {
    /// Added to a variance before its root.
    pub const EPSILON: f32 = 1e-6;
    /// Width of an embedded timestep before its MLP.
    pub const SINUSOID: usize = 64;

    /// A Duet of the default size for tokens and words of these widths.
    pub fn new(video_channels: usize, audio_channels: Option<usize>, text_width: usize) -> Self {
        DuetConfig {
            class_name: class_name(),
            heads: six(),
            head_width: thirty_two(),
            depth: four(),
            feed_factor: two(),
            video_channels,
            audio_channels,
            audio_rate: thirty_two_a_second(),
            text_width,
            prediction: DuetPrediction::Clean,
        }
    }

    /// Reads and checks the text of the file.
    ///
    /// # Errors
    /// It is not JSON of that form, or a number cannot be.
    pub fn from_json(text: &str) -> Result<DuetConfig> {
        let mut options = ConfigReader::parse(NAME, text)?;
        options.class(&["DuetTransformer"])?;
        let audio_channels = options.optional_count("audio_channels", None, 1..=LARGEST)?;
        let audio_rate = options.number("audio_rate", thirty_two_a_second())?;
        let predictions =
            [("clean", DuetPrediction::Clean), ("velocity", DuetPrediction::Velocity)];
        let prediction = options.choice("prediction", &predictions)?;
        let mut size = |key, default| options.count(key, default, 1..=LARGEST);
        let config = DuetConfig {
            class_name: class_name(),
            heads: size("heads", six())?,
            head_width: size("head_width", thirty_two())?,
            depth: size("depth", four())?,
            feed_factor: size("feed_factor", two())?,
            video_channels: options.required_count("video_channels", 1..=LARGEST)?,
            audio_channels,
            audio_rate,
            text_width: options.required_count("text_width", 1..=LARGEST)?,
            prediction,
        };
        options.finish()?;
        config.check()?;
        Ok(config)
    }

    /// Width of a stream.
    pub fn width(&self) -> usize {
        self.heads * self.head_width
    }

    /// No fewer parameters than it has: the matrices of its blocks, and those around them.
    fn least_parameters(&self) -> u128 {
        let [width, depth, feed] =
            [self.width(), self.depth, self.feed_factor].map(|it| it as u128);
        let around = self.video_channels + self.audio_channels.unwrap_or(0) + self.text_width;
        depth * width * width * (8 + 2 * feed) + width * around as u128
    }

    /// How many pairs of a head each axis of the picture turns.
    pub fn pairs(&self) -> [usize; 3] {
        let side = self.head_width / 6;
        [self.head_width / 2 - 2 * side, side, side]
    }

    /// # Errors
    /// A number cannot be.
    pub fn check(&self) -> Result<()> {
        if self.class_name != class_name() {
            return refuse("_class_name", &self.class_name, "DuetTransformer");
        }
        let sizes = [
            ("heads", self.heads),
            ("head_width", self.head_width),
            ("depth", self.depth),
            ("feed_factor", self.feed_factor),
            ("video_channels", self.video_channels),
            ("audio_channels", self.audio_channels.unwrap_or(1)),
            ("text_width", self.text_width),
        ];
        if let Some((key, _)) = sizes.into_iter().find(|(_, size)| *size == 0) {
            return refuse(key, &0, "1 or more");
        }
        if let Some((key, size)) = sizes.into_iter().find(|(_, size)| *size > LARGEST) {
            return refuse(key, &size, &format!("{LARGEST} at the most"));
        }
        if self.width() > LARGEST {
            return refuse("heads x head_width", &self.width(), &format!("{LARGEST} at the most"));
        }
        if self.depth > DEEPEST {
            return refuse("depth", &self.depth, &format!("{DEEPEST} at the most"));
        }
        if self.least_parameters() > MOST_PARAMETERS {
            let sizes = format!("{} wide and {} deep", self.width(), self.depth);
            let most =
                format!("models of {} million parameters at the most", MOST_PARAMETERS >> 20);
            return refuse("heads x head_width", &sizes, &most);
        }
        if !self.head_width.is_multiple_of(2) || self.head_width < 6 {
            return refuse("head_width", &self.head_width, "an even number from 6 on");
        }
        match self.audio_rate.is_finite() && self.audio_rate > 0.0 {
            true => Ok(()),
            false => refuse("audio_rate", &self.audio_rate, "a number above 0"),
        }
    }
}

fn refuse<T>(key: &str, value: &dyn std::fmt::Display, supported: &str) -> Result<T> {
    Err(Error::Unsupported {
        config: NAME.into(),
        key: key.into(),
        value: value.to_string(),
        supported: supported.into(),
    })
}
