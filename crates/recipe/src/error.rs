//! What can be wrong with a recipe, or stop the run it describes.

use std::path::{Path, PathBuf};

use crate::document::Location;

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that is no YAML.
    #[error("{}: {reason}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        reason: String,
    },
    /// Something in a recipe that cannot be, with the place where it stands.
    #[error("{location}: {reason}")]
    At {
        /// Where.
        location: Location,
        /// What is wrong, and what would do.
        reason: String,
    },
    /// Several things at once.
    #[error("{} things are wrong:\n{}", .0.len(), listed(.0))]
    Several(Vec<Error>),
    /// Sections that do not go together.
    #[error("{0}")]
    Recipe(String),
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
    /// A part of the run refused.
    #[error(transparent)]
    Train(#[from] train::Error),
    /// A model folder cannot be used.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// A model folder is not what its family needs.
    #[error(transparent)]
    Family(#[from] families::Error),
    /// A file of a model cannot be used.
    #[error(transparent)]
    Folder(#[from] folder::Error),
    /// Data cannot be used.
    #[error(transparent)]
    Data(#[from] data::Error),
    /// A model refused.
    #[error(transparent)]
    Model(#[from] nn::Error),
    /// A process, a sampler or a solver refused.
    #[error(transparent)]
    Diffusion(#[from] diffusion::Error),
}

/// Each on a line of its own.
fn listed(all: &[Error]) -> String {
    let lines: Vec<String> = all.iter().map(|error| format!("  {error}")).collect();
    lines.join("\n")
}

impl Error {
    /// All complaints as one, or none.
    ///
    /// # Errors
    /// There is one.
    pub(crate) fn unless_none(mut all: Vec<Error>) -> Result<()> {
        match all.len() {
            0 => Ok(()),
            1 => Err(all.remove(0)),
            _ => Err(Error::Several(all)),
        }
    }

    /// What a system call on a file answered.
    pub(crate) fn file(verb: &'static str, path: &Path, source: std::io::Error) -> Error {
        Error::File { verb, path: path.to_owned(), source }
    }
}
