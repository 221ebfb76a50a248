//! What can go wrong between a request and a picture.

use std::path::{Path, PathBuf};

use crate::tokenizer::TokenizerError;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such folder.
    #[error("there is no folder {}; give a diffusers folder or a hub id like `org/name`", .0.display())]
    NoFolder(PathBuf),
    /// A folder is not a diffusers folder.
    #[error("{} is not a diffusers folder: it has no model_index.json", .0.display())]
    NoModelIndex(PathBuf),
    /// A file of the folder is missing.
    #[error("{} is missing from the model folder", .0.display())]
    NoFile(PathBuf),
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
    /// A component has no weights that we read.
    #[error(
        "{} holds neither diffusion_pytorch_model.safetensors nor model.safetensors; \
         weights of other kinds are not read",
        .0.display()
    )]
    NoWeights(PathBuf),
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
    /// A JSON file does not say what it should.
    #[error("{}: {reason}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A pipeline we do not have.
    #[error("{}: pipeline `{class}` is not supported; supported: {supported}", path.display())]
    Pipeline {
        /// The model index.
        path: PathBuf,
        /// Its class.
        class: String,
        /// What would do.
        supported: String,
    },
    /// A size that cannot be cut into patches.
    #[error(
        "{what} is {got}, but it must be a multiple of {step} (VAE factor x patch); the nearest is {nearest}"
    )]
    Size {
        /// Height or width.
        what: &'static str,
        /// What was asked for.
        got: usize,
        /// What it must divide by.
        step: usize,
        /// The nearest legal one.
        nearest: usize,
    },
    /// A request that contradicts itself or the model.
    #[error("{0}")]
    Request(String),
    /// A tensor of a file the user gave.
    #[error("{}: {reason}", path.display())]
    Tensor {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A picture of the user.
    #[error("{}: {reason}", path.display())]
    Image {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A LoRA of the user.
    #[error("LoRA {}: {reason}", path.display())]
    Lora {
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
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// A model could not be built or run.
    #[error(transparent)]
    Model(#[from] nn::Error),
    /// A schedule could not be built or run.
    #[error("scheduler: {0}")]
    Diffusion(#[from] diffusion::Error),
    /// A frame could not be written.
    #[error(transparent)]
    Media(#[from] data::media::Error),
    /// A dataset could not be read or written.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// A caption could not be cut into tokens.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

impl Error {
    pub(crate) fn read(path: &Path, source: std::io::Error) -> Error {
        Error::File { verb: "read", path: path.to_owned(), source }
    }
}
