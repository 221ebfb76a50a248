//! Why a folder cannot be described.

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something is wrong with the folder.
    #[error(transparent)]
    Folder(#[from] folder::Error),
    /// A config is not one of this family.
    #[error(transparent)]
    Model(#[from] nn::Error),
    /// The scheduler cannot be used.
    #[error("scheduler: {0}")]
    Scheduler(#[from] diffusion::Error),
    /// A codec of the shapes world cannot be.
    #[error(transparent)]
    World(#[from] data::Error),
}
