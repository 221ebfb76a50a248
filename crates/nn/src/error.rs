//! What can go wrong between a checkpoint and a prediction.

use std::path::PathBuf;

/// The result of everything in this crate and in the models above it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what its name says.
    #[error("{} is not a readable safetensors file: {reason}; download or export it again", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was wrong.
        reason: String,
    },
    /// The same of a GGUF file.
    #[error("{} is not a readable GGUF file: {reason}; download or export it again", path.display())]
    CorruptGguf {
        /// The file.
        path: PathBuf,
        /// What was wrong.
        reason: String,
    },
    /// A parameter of the model is not in the checkpoint.
    #[error("parameter `{name}` is not in {origin}{}", nearest(near))]
    Missing {
        /// The parameter.
        name: String,
        /// Where it was looked for.
        origin: String,
        /// The most similar name there.
        near: Option<String>,
    },
    /// The checkpoint holds parameters the model does not have.
    #[error(
        "{origin} holds {count} tensor(s) this model does not use, the first is `{name}`{}; is it another model or version?",
        nearest(near)
    )]
    Unused {
        /// The first of them.
        name: String,
        /// How many.
        count: usize,
        /// Where they are.
        origin: String,
        /// The most similar name the model has.
        near: Option<String>,
    },
    /// A parameter has another shape than the model.
    #[error(
        "parameter `{name}` in {origin} has shape {got:?}, but the model's config asks for {want:?}"
    )]
    Misshapen {
        /// The parameter.
        name: String,
        /// Where it is.
        origin: String,
        /// Its shape there.
        got: Vec<usize>,
        /// The model's.
        want: Vec<usize>,
    },
    /// A tensor is stored in a type we do not compute with.
    #[error("tensor `{name}` in {origin} is stored as {dtype}; f32, bf16 and f16 are supported")]
    Dtype {
        /// The tensor.
        name: String,
        /// Where it is.
        origin: String,
        /// Its type.
        dtype: String,
    },
    /// A value that is not a number, or not finite.
    #[error("{what}")]
    NotFinite {
        /// Which values, and where they come from as far as it could be traced.
        what: String,
    },
    /// A config says what this implementation does not do.
    #[error("{config}: `{key}` is {value}, which is not supported; supported: {supported}")]
    Unsupported {
        /// Which config.
        config: String,
        /// Which key.
        key: String,
        /// Its value.
        value: String,
        /// What would do.
        supported: String,
    },
    /// A config holds a key that nobody reads.
    #[error("{config}: unknown key `{option}`; the nearest known one is `{nearest}`")]
    UnknownOption {
        /// Which config.
        config: String,
        /// The unknown key.
        option: String,
        /// The known key that is spelt most like it.
        nearest: String,
    },
    /// A config cannot be read.
    #[error("{config}: {reason}")]
    Config {
        /// Which config.
        config: String,
        /// Why.
        reason: String,
    },
    /// Inputs do not fit each other or the model.
    #[error("{what} is {got}, but {want}")]
    Shape {
        /// Which input.
        what: &'static str,
        /// What it is.
        got: String,
        /// What it should be.
        want: String,
    },
    /// An attention implementation was asked for what it cannot do.
    #[error("{layout} cannot serve {site}: {reason}")]
    Attention {
        /// The implementation.
        layout: &'static str,
        /// The layer and name of the call.
        site: String,
        /// Why not.
        reason: String,
    },
    /// What flows between blocks is not what the network takes.
    #[error("entry `{name}` of what flows between blocks {fault}")]
    Packed {
        /// The entry.
        name: String,
        /// What is wrong with it.
        fault: String,
    },
    /// A loss or a layout failed for a reason of its own crate.
    #[error(transparent)]
    Outside(Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// An error of another crate, to be taken out again unchanged.
    pub fn outside(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Outside(Box::new(error))
    }
}

fn nearest(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!("; the nearest name is `{near}`")).unwrap_or_default()
}

/// The candidate most like `name`, if any is like it at all.
pub fn most_similar<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    candidates
        .map(|candidate| (strsim::normalized_levenshtein(name, candidate), candidate))
        .filter(|(similarity, _)| *similarity > 0.5)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.to_owned())
}
