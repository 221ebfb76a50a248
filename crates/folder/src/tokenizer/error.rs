//! What can go wrong between a caption and its token ids.

use std::path::PathBuf;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// A folder holds no tokenizer.
    #[error(
        "{} holds neither `tokenizer.json` nor `spiece.model`; download the tokenizer again",
        folder.display()
    )]
    NotFound {
        /// The folder.
        folder: PathBuf,
    },
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("{} cannot be used as a tokenizer: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was wrong.
        reason: String,
    },
    /// A tokenizer of a kind that is not implemented.
    #[error("{}: `{key}` is {value}, which is not supported; supported: {supported}", path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// Which setting.
        key: &'static str,
        /// Its value.
        value: String,
        /// What would do.
        supported: &'static str,
    },
    /// There is no room for the special tokens.
    #[error(
        "a limit of {max_tokens} token(s) leaves no room for the {special} that end every caption; raise it"
    )]
    NoRoom {
        /// The limit.
        max_tokens: usize,
        /// How many special tokens a caption gets.
        special: usize,
    },
    /// A caption could not be cut into tokens.
    #[error("caption `{caption}` cannot be tokenized: {reason}")]
    Encode {
        /// The caption.
        caption: String,
        /// What the tokenizer said.
        reason: String,
    },
    /// A caption could not be cleaned.
    #[error("caption `{caption}` cannot be cleaned: {reason}; shorten it or do not clean captions")]
    Clean {
        /// The caption.
        caption: String,
        /// What went wrong.
        reason: String,
    },
}
