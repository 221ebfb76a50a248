//! What can stop a training run.

use std::path::PathBuf;

/// The result of everything in this crate and in the methods and strategies above it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A model refused its inputs or parameters.
    #[error(transparent)]
    Model(nn::Error),
    /// A process or a sampler refused.
    #[error(transparent)]
    Diffusion(#[from] diffusion::Error),
    /// A batch lacks what a strategy needs.
    #[error(
        "the strategy `{strategy}` needs the source `{source_name}`, but a batch holds {found}; \
         preprocess the data with it or choose another strategy"
    )]
    MissingSource {
        /// The strategy that needs it.
        strategy: String,
        /// The source.
        source_name: String,
        /// What the batch has instead.
        found: String,
    },
    /// A source holds something else than a strategy expects.
    #[error("source `{name}` holds {found}, but {wanted} is needed")]
    SourceKind {
        /// The source.
        name: String,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// Values of a batch do not fit each other.
    #[error("{what} is {got}, but {want}")]
    Shape {
        /// Which value.
        what: String,
        /// What it is.
        got: String,
        /// What it should be.
        want: String,
    },
    /// A setting that cannot be.
    #[error("{key} is {value}, but {want}")]
    Setting {
        /// The setting.
        key: String,
        /// Its value.
        value: String,
        /// What would do.
        want: String,
    },
    /// A pattern of names that matches nothing.
    #[error("{key}`{pattern}` matches no {what} of the model{}", nearest(near))]
    NoMatch {
        /// The setting that has it, with a colon; nothing where it is in none.
        key: &'static str,
        /// The pattern.
        pattern: String,
        /// What was looked for.
        what: &'static str,
        /// The most similar name.
        near: Option<String>,
    },
    /// A method or a callback does not have such a role.
    #[error("there is no trained role `{role}`; the method has {}", known.join(", "))]
    NoRole {
        /// The role.
        role: String,
        /// Those that exist.
        known: Vec<String>,
    },
    /// A file cannot be read or written.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// "read", "write" and the like.
        verb: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A checkpoint that cannot be used.
    #[error("{} cannot be used: {reason}", path.display())]
    Damaged {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// No checkpoint of a folder can be used.
    #[error("no checkpoint in {} can be used: {reason}", path.display())]
    NothingToResume {
        /// The folder.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// Another run is going on in the same folder.
    #[error(
        "another process trains in {}; wait for it, stop it, or start in another folder",
        path.display()
    )]
    Busy {
        /// The folder of checkpoints.
        path: PathBuf,
    },
    /// A checkpoint of another recipe.
    #[error(
        "{} was made with another recipe; these keys differ: {}; use the recipe it was made with, \
         change what may change by `--change`, or start in another folder",
        path.display(),
        keys.join(", ")
    )]
    OtherRecipe {
        /// The checkpoint.
        path: PathBuf,
        /// The dotted names of the keys that differ.
        keys: Vec<String>,
    },
    /// A checkpoint that was made from other data or weights.
    #[error(
        "{} was made from something else: {}; bring back what it was made from, or start in \
         another folder",
        path.display(),
        differing.join(", ")
    )]
    OtherOrigins {
        /// The checkpoint.
        path: PathBuf,
        /// What differs, with both hashes.
        differing: Vec<String>,
    },
    /// A checkpoint and the run do not hold the same things.
    #[error("the checkpoint {fault} `{key}`{}", nearest(near))]
    State {
        /// "lacks", "holds an unknown" and the like.
        fault: &'static str,
        /// The key.
        key: String,
        /// The most similar one.
        near: Option<String>,
    },
    /// A run that has come to nothing.
    #[error(
        "the run diverged at step {step}: {what}; nothing of it was saved, and the checkpoints before it \
         stay. Lower the learning rate (models.{role}.rate, {rate:e} now), clip gradients (loop.clip) or \
         look at the data"
    )]
    Diverged {
        /// The step.
        step: u64,
        /// What is not finite.
        what: String,
        /// The role.
        role: &'static str,
        /// Its learning rate.
        rate: f64,
    },
    /// A run that came to its end and had stopped learning before.
    #[error(
        "the run ended at step {step} without learning: the last {skipped} updates of the {role} were \
         skipped, because a loss or a gradient was not finite; the last checkpoint before them stays. Lower \
         the learning rate (models.{role}.rate, {rate:e} now), clip gradients (loop.clip) or look at the data"
    )]
    Unlearnt {
        /// The last step.
        step: u64,
        /// How many updates were skipped in a row.
        skipped: u64,
        /// The role.
        role: &'static str,
        /// Its learning rate.
        rate: f64,
    },
    /// A checkpoint of which another rank could not write its part.
    #[error(
        "rank {rank} could not write its part of the checkpoint after step {step}, and says why; the run ends on all \
         ranks, and the last committed checkpoint is valid"
    )]
    Unwritten {
        /// The rank.
        rank: usize,
        /// The step.
        step: u64,
    },
    /// The writer of checkpoints has ended without a word.
    #[error("the thread that writes checkpoints has died; the last committed checkpoint is valid")]
    Writer,
    /// A callback failed for a reason of its own.
    #[error("callback `{name}`: {reason}")]
    Callback {
        /// The callback.
        name: String,
        /// What it said.
        reason: String,
    },
    /// The data source failed for a reason of its own.
    #[error("cannot read the next batch: {0}")]
    Feed(String),
    /// An exchange between ranks failed.
    #[error(transparent)]
    Exchange(#[from] comm::Error),
    /// Ranks that were told different things.
    #[error(
        "rank {rank} and rank 0 of this run differ in {what}; give every rank the same recipe, files and version \
         of this program"
    )]
    Apart {
        /// The rank.
        rank: usize,
        /// What is not the same.
        what: String,
    },
}

fn nearest(near: &Option<String>) -> String {
    near.as_ref().map(|near| format!("; the nearest is `{near}`")).unwrap_or_default()
}

impl From<nn::Error> for Error {
    /// What a loss of ours said comes out of the schedule that ran it as it went in.
    fn from(error: nn::Error) -> Error {
        match error {
            nn::Error::Outside(source) => match source.downcast::<Error>() {
                Ok(own) => *own,
                Err(source) => Error::Model(nn::Error::Outside(source)),
            },
            error => Error::Model(error),
        }
    }
}

/// What ranks say of weights that are not finite where others hold them.
pub(crate) const ELSEWHERE: [&str; 2] =
    ["weights that another rank holds are not finite", "what another rank holds is not finite"];

impl Error {
    /// Whether it only says that another rank failed, which has its own reason.
    pub fn is_of_another(&self) -> bool {
        match self {
            Error::Exchange(_) | Error::Unwritten { .. } => true,
            Error::Diverged { what, .. } => ELSEWHERE.contains(&what.as_str()),
            Error::Model(nn::Error::Outside(source)) => {
                matches!(source.downcast_ref(), Some(parallel::Error::Exchange(_)))
                    || source.is::<comm::Error>()
            }
            _ => false,
        }
    }

    /// A setting that is not what it must be.
    pub fn setting(key: impl Into<String>, value: impl ToString, want: impl Into<String>) -> Error {
        Error::Setting { key: key.into(), value: value.to_string(), want: want.into() }
    }

    /// What a system call on a file answered.
    pub fn file(verb: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Error {
        Error::File { verb, path: path.into(), source }
    }
}
