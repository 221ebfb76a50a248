//! The settings of strategies, as a recipe has them.

use std::collections::BTreeSet;

use nn::Tracks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use train::{Error, Result};

/// One of the strategies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum StrategyConfig {
    /// A video, and perhaps its sound, from text; perhaps with its first frame given.
    TextToVideo(TextToVideoConfig),
    /// A sound from text, without a video.
    TextToAudio(TextToAudioConfig),
    /// A video from text and a reference video.
    VideoToVideo(VideoToVideoConfig),
    /// Anything given anything.
    Flexible(FlexibleConfig),
}

/// Settings of text-to-video.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextToVideoConfig {
    /// How often a sample's first frame is given.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub first_frame_probability: f64,
    /// The source of sounds, if they are generated too. A sample without one teaches the video alone.
    pub audio: Option<String>,
}

/// Settings of text-to-audio.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TextToAudioConfig {
    /// The source of sounds.
    pub audio: String,
}

/// Settings of video-to-video.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VideoToVideoConfig {
    /// How often a sample's first frame is given.
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub first_frame_probability: f64,
    /// The source of reference latents.
    pub reference: String,
}

/// Settings of the flexible strategy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FlexibleConfig {
    /// The video, if there is one.
    #[serde(default)]
    pub video: Option<ModalityConfig>,
    /// The sound, if there is one.
    #[serde(default)]
    pub audio: Option<ModalityConfig>,
}

/// What becomes of one modality.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModalityConfig {
    /// Whether it is generated; if not, it is given clean.
    pub generated: bool,
    /// The source of its latents.
    pub source: String,
    /// The source of its text.
    #[serde(default = "text")]
    pub text: String,
    /// What is known of it beforehand.
    #[serde(default)]
    pub conditions: Vec<ConditionConfig>,
    /// Its share of the loss.
    #[serde(default = "one")]
    #[schemars(extend("minimum" = 0))]
    pub weight: f64,
}

/// Something that is known beforehand, sometimes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConditionConfig {
    /// How often: drawn for every sample, for references once for all.
    #[serde(default = "one")]
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub probability: f64,
    /// What is known.
    #[serde(flatten)]
    pub kind: ConditionKind,
}

/// What can be known beforehand. Frames are latent frames, of a sound its latents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ConditionKind {
    /// The first frame.
    FirstFrame {},
    /// The first frames.
    Prefix {
        /// How many.
        frames: usize,
    },
    /// The last frames.
    Suffix {
        /// How many.
        frames: usize,
    },
    /// Single frames, counted from 0.
    Keyframes {
        /// Which.
        frames: Vec<usize>,
    },
    /// A rectangle of all frames, in pixels: from (included) and to (excluded).
    Rectangle {
        /// Rows.
        rows: [usize; 2],
        /// Columns.
        columns: [usize; 2],
    },
    /// What a mask says, one half and more meaning known.
    Mask {
        /// Where masks come from.
        source: String,
    },
    /// Other latents to look at.
    Reference {
        /// Where they come from.
        source: String,
    },
}

fn text() -> String {
    "text".to_owned()
}

fn one() -> f64 {
    1.0
}

impl Default for TextToVideoConfig {
    fn default() -> TextToVideoConfig {
        TextToVideoConfig { first_frame_probability: 0.0, audio: None }
    }
}

impl Default for TextToAudioConfig {
    fn default() -> TextToAudioConfig {
        TextToAudioConfig { audio: "audio_latents".to_owned() }
    }
}

impl Default for VideoToVideoConfig {
    fn default() -> VideoToVideoConfig {
        let reference = "ref_latents".to_owned();
        VideoToVideoConfig { first_frame_probability: 0.0, reference }
    }
}

impl StrategyConfig {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            StrategyConfig::TextToVideo(_) => "text_to_video",
            StrategyConfig::TextToAudio(_) => "text_to_audio",
            StrategyConfig::VideoToVideo(_) => "video_to_video",
            StrategyConfig::Flexible(_) => "flexible",
        }
    }

    /// How often a sample's first frame is given, where that is a setting of its own.
    pub fn first_frame_probability(&self) -> Option<f64> {
        match self {
            StrategyConfig::TextToVideo(config) => Some(config.first_frame_probability),
            StrategyConfig::VideoToVideo(config) => Some(config.first_frame_probability),
            StrategyConfig::TextToAudio(_) | StrategyConfig::Flexible(_) => None,
        }
    }

    /// The same as settings of the flexible strategy.
    pub fn flexible(&self) -> FlexibleConfig {
        match self {
            StrategyConfig::TextToVideo(config) => FlexibleConfig {
                video: Some(ModalityConfig::generated(
                    "latents",
                    first(config.first_frame_probability),
                )),
                audio: config.audio.as_deref().map(|own| ModalityConfig::generated(own, vec![])),
            },
            StrategyConfig::TextToAudio(config) => FlexibleConfig {
                video: None,
                audio: Some(ModalityConfig::generated(&config.audio, vec![])),
            },
            StrategyConfig::VideoToVideo(config) => {
                let source = config.reference.clone();
                let kind = ConditionKind::Reference { source };
                let mut conditions = vec![ConditionConfig { probability: 1.0, kind }];
                conditions.extend(first(config.first_frame_probability));
                let video = ModalityConfig::generated("latents", conditions);
                FlexibleConfig { video: Some(video), audio: None }
            }
            StrategyConfig::Flexible(config) => config.clone(),
        }
    }
}

/// The first frame with a probability, unless that is exactly 0.
fn first(probability: f64) -> Vec<ConditionConfig> {
    let condition = ConditionConfig { probability, kind: ConditionKind::FirstFrame {} };
    if probability == 0.0 { vec![] } else { vec![condition] }
}

impl ModalityConfig {
    /// A modality that is generated.
    pub fn generated(source: &str, conditions: Vec<ConditionConfig>) -> ModalityConfig {
        let source = source.to_owned();
        ModalityConfig { generated: true, source, text: text(), conditions, weight: 1.0 }
    }

    /// A modality that is given.
    pub fn given(source: &str) -> ModalityConfig {
        ModalityConfig { generated: false, ..ModalityConfig::generated(source, vec![]) }
    }
}

impl FlexibleConfig {
    /// What there is.
    pub fn modalities(&self) -> Tracks<&ModalityConfig> {
        Tracks { video: self.video.as_ref(), audio: self.audio.as_ref() }
    }

    /// Every source by name, each once; those of the latents first.
    pub fn sources(&self) -> Vec<String> {
        let mut names = Vec::new();
        for modality in self.modalities() {
            names.extend([modality.source.clone(), modality.text.clone()]);
            names.extend(modality.conditions.iter().filter_map(ConditionConfig::source));
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        names
    }

    /// The source that a sample may lack: that of a sound which is generated with its video. Such a sample teaches the
    /// video alone.
    pub fn optional(&self) -> Option<&str> {
        let both = self.modalities().into_iter().filter(|own| own.generated).count() == 2;
        self.audio.as_ref().filter(|_| both).map(|audio| audio.source.as_str())
    }

    /// # Errors
    /// Nothing is generated, a number cannot be, two uses of one source exclude each other.
    pub fn check(&self) -> Result<()> {
        let modalities = self.modalities().named();
        if !modalities.into_iter().any(|(_, config)| config.generated) {
            let want = "`video` or `audio` must be generated, or there is nothing to learn";
            return Err(Error::setting("strategy", "without a task", want));
        }
        let mut latents = BTreeSet::new();
        for (name, config) in modalities {
            let key = format!("strategy.{name}.source");
            if !latents.insert(&config.source) {
                return Err(Error::setting(key, &config.source, "the video has that one"));
            }
        }
        for (name, config) in modalities {
            config.check(name)?;
            for source in config.conditions.iter().filter_map(ConditionConfig::source) {
                if latents.contains(&source) || source == config.text {
                    let key = format!("strategy.{name}.conditions");
                    let want = "that source holds what is generated or its text; name another";
                    return Err(Error::setting(key, source, want));
                }
            }
        }
        Ok(())
    }
}

impl ModalityConfig {
    fn check(&self, name: &str) -> Result<()> {
        let key = |part: &str| format!("strategy.{name}.{part}");
        if !(self.weight.is_finite() && self.weight >= 0.0) {
            return Err(Error::setting(key("weight"), self.weight, "it is not below 0"));
        }
        if !self.generated && !self.conditions.is_empty() {
            let want = "a modality that is given is known whole: leave its conditions out";
            return Err(Error::setting(key("conditions"), self.conditions.len(), want));
        }
        for ConditionConfig { probability, kind } in &self.conditions {
            if !(0.0..=1.0).contains(probability) {
                let want = "a probability lies between 0 and 1";
                return Err(Error::setting(key("conditions.probability"), probability, want));
            }
            let refuse = |part: &str, value: &dyn std::fmt::Display, want: &str| {
                Err(Error::setting(key(&format!("conditions.{part}")), value, want))
            };
            match kind {
                ConditionKind::FirstFrame {} | ConditionKind::Rectangle { .. }
                    if name == "audio" =>
                {
                    let want = "a sound has no pictures; use a prefix, suffix or mask";
                    return refuse("type", &"first_frame or rectangle", want);
                }
                ConditionKind::Prefix { frames: 0 } | ConditionKind::Suffix { frames: 0 } => {
                    return refuse("frames", &0, "at least 1");
                }
                ConditionKind::Keyframes { frames } if frames.is_empty() => {
                    return refuse("frames", &"empty", "at least one frame is listed");
                }
                ConditionKind::Rectangle { rows, columns }
                    if rows[0] >= rows[1] || columns[0] >= columns[1] =>
                {
                    let found = format!("{rows:?} x {columns:?}");
                    return refuse("rectangle", &found, "each range ends after it begins");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl ConditionConfig {
    /// The source it needs, if any.
    fn source(&self) -> Option<String> {
        match &self.kind {
            ConditionKind::Mask { source } | ConditionKind::Reference { source } => {
                Some(source.clone())
            }
            _ => None,
        }
    }
}
