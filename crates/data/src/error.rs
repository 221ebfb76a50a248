//! What can go wrong with data.

use std::path::{Path, PathBuf};

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Pixels that do not fill a clip.
    #[error(
        "a clip of {frames} frames of {height}x{width} has {wanted} values, but {found} were given"
    )]
    Pixels {
        /// How many frames the clip has.
        frames: usize,
        /// Its height.
        height: usize,
        /// Its width.
        width: usize,
        /// How many values that makes.
        wanted: usize,
        /// How many were given.
        found: usize,
    },
    /// A tensor that is not a picture in colour.
    #[error("a clip has 3 channels in its last dim, but the tensor has {found}")]
    Channels {
        /// How many it has.
        found: usize,
    },
    /// A tensor whose values cannot be read.
    #[error("cannot read the values of a tensor: {reason}")]
    Values {
        /// What burn said.
        reason: String,
    },
    /// A shapes world that cannot be.
    #[error("the shapes world cannot have {what}; {remedy}")]
    World {
        /// The options at fault, with their values.
        what: String,
        /// What to change.
        remedy: String,
    },
    /// A caption that is not of the shapes world.
    #[error("`{caption}` is not a caption of the shapes world: {reason}")]
    Caption {
        /// The caption.
        caption: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A size that blocks do not divide.
    #[error("{what} {got} is not a multiple of {step}; the nearest that is, is {nearest}")]
    Size {
        /// Which size.
        what: &'static str,
        /// What it is.
        got: usize,
        /// What it must divide by.
        step: usize,
        /// The nearest legal one.
        nearest: usize,
    },
    /// Latents of another codec.
    #[error("the latents have {found} channels, but the codec makes {wanted}")]
    LatentChannels {
        /// How many they have.
        found: usize,
        /// How many they should have.
        wanted: usize,
    },
    /// A caption with too few or too many words.
    #[error(
        "`{caption}` has {found} words, but 1 to {most} are allowed; {}",
        if *found == 0 { "write some, like `a red circle moves left`" } else { "shorten it" }
    )]
    Words {
        /// The caption.
        caption: String,
        /// How many words it has.
        found: usize,
        /// How many it may have.
        most: usize,
    },
    /// A file cannot be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// What was to be done to it.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file of a dataset is not what it was.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no dataset.
    #[error("there is no {}; make the dataset with `moviola preprocess`", path.display())]
    NoDataset {
        /// The header that is missing.
        path: PathBuf,
    },
    /// A dataset without samples.
    #[error(
        "the dataset {} has no samples; `moviola doctor` lists what was skipped and why",
        path.display()
    )]
    EmptyDataset {
        /// The dataset.
        path: PathBuf,
    },
    /// Two processes would write one dataset.
    #[error("another process is writing this dataset: it holds {}", path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
    },
    /// A dataset of other encoders.
    #[error(
        "the dataset {} was made with another {role} encoder: it has `{made}`, but `{asked}` is \
         asked for; preprocess into a new folder, or use the model it was made for",
        path.display()
    )]
    OtherEncoders {
        /// The dataset.
        path: PathBuf,
        /// Which encoder.
        role: String,
        /// What made the dataset.
        made: String,
        /// What is asked for.
        asked: String,
    },
    /// A sample lacks what a strategy needs.
    #[error(
        "{asker} needs `{key}`, but {lacking} of {samples} samples have none, the first is `{id}` \
         (it has {known}); preprocess the dataset with that source"
    )]
    MissingKey {
        /// The key.
        key: String,
        /// Who needs it.
        asker: String,
        /// The first sample without it.
        id: String,
        /// How many have none.
        lacking: usize,
        /// How many samples there are.
        samples: usize,
        /// What the first one has.
        known: String,
    },
    /// A tensor of a type that is not stored.
    #[error(
        "`{key}` has type {dtype}, which is not stored; cast it to f32, bf16, f16, i64, i32 or u8"
    )]
    TensorType {
        /// Its key.
        key: String,
        /// Its type.
        dtype: String,
    },
    /// Batches that cannot be made.
    #[error("cannot load batches: {reason}")]
    Loader {
        /// Why, and what to change.
        reason: String,
    },
    /// A bucket that cannot be.
    #[error("bucket {bucket} is not possible: {reason}")]
    Bucket {
        /// The bucket.
        bucket: String,
        /// Why, and the nearest that is.
        reason: String,
    },
    /// A list of clips that cannot be read.
    #[error("{} does not list clips: {reason}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file of `torch.save` that is not read.
    #[error("cannot read {} without running it: {reason}", path.display())]
    Torch {
        /// The file.
        path: PathBuf,
        /// What it holds that is not read.
        reason: String,
    },
    /// An encoder failed.
    #[error("cannot encode `{id}`: {cause}")]
    Encode {
        /// The sample.
        id: String,
        /// What the encoder said.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl Error {
    pub(crate) fn file(verb: &'static str, path: &Path, source: std::io::Error) -> Error {
        Error::File { verb, path: path.to_owned(), source }
    }

    pub(crate) fn damaged(path: &Path, reason: String) -> Error {
        Error::Damaged { path: path.to_owned(), reason }
    }
}
