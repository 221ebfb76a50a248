//! What can go wrong between a request and a picture, by class: the request, the folder, the data, us.

use std::fmt;
use std::path::{Path, PathBuf};

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field of a request contradicts the model or another field.
    #[error("{field}: {reason}")]
    Request {
        /// Which.
        field: Field,
        /// What is wrong with it, and what would do.
        reason: String,
    },
    /// Something is wrong with a model folder or a LoRA.
    #[error(transparent)]
    Folder(#[from] folder::Error),
    /// A folder lacks a text encoder.
    #[error(
        "{} has no text encoder {index}: {reason}; the encoders there are: {encoders}",
        path.display()
    )]
    NoEncoder {
        /// The folder.
        path: PathBuf,
        /// Which encoder, from 0.
        index: usize,
        /// What is missing.
        reason: String,
        /// Those it has.
        encoders: String,
    },
    /// A path that holds nothing we know, or a model that cannot be found.
    #[error("{0}")]
    Unknown(String),
    /// A file cannot be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// "read" or "write".
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A tensor of a file the user gave.
    #[error("{}: {reason}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A picture, clip or sound of the user.
    #[error("{}: {reason}", path.display())]
    Media {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Values that are not finite.
    #[error("{stage} gave values that are not finite{cause}")]
    NotFinite {
        /// Where they were found.
        stage: String,
        /// The weight they come from, if one was found.
        cause: String,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// A model could not be built or run.
    #[error(transparent)]
    Model(#[from] nn::Error),
    /// A schedule could not be built or run.
    #[error("scheduler: {0}")]
    Diffusion(#[from] diffusion::Error),
    /// A frame could not be written.
    #[error(transparent)]
    Output(#[from] data::media::Error),
    /// Ranks that make a request together could not go on.
    #[error(transparent)]
    Ranks(#[from] comm::Error),
    /// A dataset could not be read or written.
    #[error(transparent)]
    Data(#[from] data::Error),
}

/// A field of a request, or of how a model is opened. Whoever made the request knows what its own users
/// call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the field of that name")]
pub enum Field {
    Prompt,
    Negative,
    Count,
    FirstSample,
    Steps,
    Timesteps,
    Levels,
    Upsampler,
    UpsamplerLevels,
    UpsamplerAdain,
    UpsamplerToneMap,
    UpsamplerLora,
    Guidance,
    SecondGuidance,
    AudioGuidance,
    Stg,
    AudioStg,
    StgBlocks,
    Modality,
    AudioModality,
    Rescale,
    AudioRescale,
    CrossTimestep,
    Height,
    Width,
    Frames,
    FrameRate,
    MaxTokens,
    Eta,
    FlowShift,
    Fit,
    CleanCaption,
    Sizing,
    Decoding,
    Cache,
    PromptEmbeds,
    Lora,
    SecondLora,
    Transformer,
    SecondTransformer,
    WithoutAudio,
    OnlyAudio,
    Noise,
    Image,
    LastImage,
    Keyframe,
    VideoPrefix,
    Video,
    Mask,
    Reference,
    Audio,
}

impl Field {
    /// Whether it is a picture, a clip or a sound that the model is shown.
    pub fn is_given(self) -> bool {
        matches!(
            self,
            Field::Image
                | Field::LastImage
                | Field::Keyframe
                | Field::VideoPrefix
                | Field::Video
                | Field::Mask
                | Field::Reference
                | Field::Audio
        )
    }

    /// Its name in programs.
    pub fn name(self) -> &'static str {
        match self {
            Field::Prompt => "prompt",
            Field::Negative => "negative",
            Field::Count => "count",
            Field::FirstSample => "first_sample",
            Field::Steps => "steps",
            Field::Timesteps => "timesteps",
            Field::Levels => "sigmas",
            Field::Upsampler => "upsampler",
            Field::UpsamplerLevels => "upsampler_sigmas",
            Field::UpsamplerAdain => "upsampler_adain",
            Field::UpsamplerToneMap => "upsampler_tone_map",
            Field::UpsamplerLora => "upsampler_lora",
            Field::Guidance => "guidance",
            Field::SecondGuidance => "guidance_2",
            Field::AudioGuidance => "audio_guidance",
            Field::Stg => "stg",
            Field::AudioStg => "audio_stg",
            Field::StgBlocks => "stg_blocks",
            Field::Modality => "modality_guidance",
            Field::AudioModality => "audio_modality_guidance",
            Field::Rescale => "guidance_rescale",
            Field::AudioRescale => "audio_guidance_rescale",
            Field::CrossTimestep => "cross_timestep",
            Field::Height => "height",
            Field::Width => "width",
            Field::Frames => "frames",
            Field::FrameRate => "fps",
            Field::MaxTokens => "max_tokens",
            Field::Eta => "eta",
            Field::FlowShift => "flow_shift",
            Field::Fit => "fit",
            Field::CleanCaption => "clean_caption",
            Field::Sizing => "resolution_binning",
            Field::Decoding => "tile_vae",
            Field::Cache => "cache",
            Field::PromptEmbeds => "prompt_embeds",
            Field::Lora => "lora",
            Field::SecondLora => "lora_2",
            Field::Transformer => "transformer",
            Field::SecondTransformer => "transformer_2",
            Field::WithoutAudio => "without_audio",
            Field::OnlyAudio => "only_audio",
            Field::Noise => "noise",
            Field::Image => "image",
            Field::LastImage => "last_image",
            Field::Keyframe => "keyframe",
            Field::VideoPrefix => "video_prefix",
            Field::Video => "video",
            Field::Mask => "mask",
            Field::Reference => "reference",
            Field::Audio => "audio",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<families::Condition> for Field {
    fn from(condition: families::Condition) -> Field {
        use families::Condition;
        match condition {
            Condition::Image => Field::Image,
            Condition::LastImage => Field::LastImage,
            Condition::Keyframe => Field::Keyframe,
            Condition::VideoPrefix => Field::VideoPrefix,
            Condition::Video => Field::Video,
            Condition::Mask => Field::Mask,
            Condition::Reference => Field::Reference,
            Condition::Audio => Field::Audio,
        }
    }
}

impl From<families::Error> for Error {
    fn from(error: families::Error) -> Error {
        match error {
            families::Error::Folder(error) => error.into(),
            families::Error::Model(error) => error.into(),
            families::Error::Scheduler(error) => error.into(),
            families::Error::World(error) => error.into(),
        }
    }
}

impl Error {
    /// A field that cannot be as it is.
    pub fn request(field: Field, reason: impl Into<String>) -> Error {
        Error::Request { field, reason: reason.into() }
    }

    /// The same where a file that a field names is at fault.
    pub(crate) fn of_field(self, field: Field) -> Error {
        match self {
            Error::File { .. } | Error::Tensor { .. } | Error::Media { .. } | Error::Folder(_) => {
                Error::request(field, self.to_string())
            }
            other => other,
        }
    }

    pub(crate) fn read(path: &Path, source: std::io::Error) -> Error {
        Error::File { verb: "read", path: path.to_owned(), source }
    }
}
