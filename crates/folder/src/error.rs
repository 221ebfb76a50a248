//! What can be wrong with a folder or a file that a user brings.

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
    /// The hub, or what it gave.
    #[error("{0}")]
    Hub(String),
    /// A file of the folder is missing.
    #[error("{} is missing from the model folder", .0.display())]
    NoFile(PathBuf),
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
    /// Components that do not belong together.
    #[error("{0}; the folder mixes parts of different models")]
    Mixed(String),
    /// A part of a folder that is there, but not as this model needs it.
    #[error("{0}")]
    Unfit(String),
    /// A LoRA of the user.
    #[error("LoRA {}: {reason}", path.display())]
    Lora {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A model could not be built.
    #[error(transparent)]
    Model(#[from] nn::Error),
    /// A caption could not be cut into tokens.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

impl Error {
    /// A file that could not be read.
    pub fn read(path: &Path, source: std::io::Error) -> Error {
        Error::File { verb: "read", path: path.to_owned(), source }
    }
}
