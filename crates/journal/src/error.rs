//! Why a run cannot be written down or read back.

use std::path::PathBuf;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
    /// A line in the midst of a log says nothing.
    #[error("line {line} of {} is damaged: {reason}; remove that line", path.display())]
    Damaged {
        /// The log.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Something was recorded before the run began.
    #[error("nothing can be recorded before the run has started; call `Journal::start` first")]
    NotStarted,
    /// Something was recorded out of order.
    #[error(
        "step {step} cannot be recorded after step {last}: a log is in order of steps; record when \
         the step is over"
    )]
    Late {
        /// The step to be recorded.
        step: u64,
        /// The last step of the log.
        last: u64,
    },
    /// A share of nothing, or of no number.
    #[error("{what} is {value}, but it is a number above 0; leave it out if it is not known")]
    Peak {
        /// Which of the two.
        what: &'static str,
        /// Its value.
        value: f64,
    },
    /// A clip of some other format.
    #[error("the clip \"{caption}\" is neither a GIF nor a PNG; write it as `.gif` or `.png`")]
    NotAPicture {
        /// What the clip was to be called.
        caption: String,
    },
}

impl Error {
    pub(crate) fn file(
        verb: &'static str,
        path: impl Into<PathBuf>,
        source: std::io::Error,
    ) -> Error {
        Error::File { verb, path: path.into(), source }
    }
}

impl From<Error> for train::Error {
    fn from(error: Error) -> train::Error {
        match error {
            Error::File { verb, path, source } => train::Error::File { verb, path, source },
            other => {
                let (name, reason) = (crate::journal::NAME.to_owned(), other.to_string());
                train::Error::Callback { name, reason }
            }
        }
    }
}
