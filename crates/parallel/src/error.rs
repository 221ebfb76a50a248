//! Why a layout cannot run a model.

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Each variant names its operands and says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Some ranks would have nothing to do.
    #[error("cannot spread {tokens} tokens over {ranks} ranks; use at most {tokens} ranks")]
    FewTokens {
        /// The length of the sequence.
        tokens: usize,
        /// The size of the group.
        ranks: usize,
    },
    /// A rank did not lend what it holds.
    #[error("rank {owner} of the copy holds `{name}` and did not lend it; this is our bug")]
    NotLent {
        /// The tensor.
        name: String,
        /// Who holds it.
        owner: usize,
    },
    /// The ranks could not exchange something.
    #[error(transparent)]
    Exchange(#[from] comm::Error),
}

impl From<Error> for nn::Error {
    fn from(error: Error) -> nn::Error {
        nn::Error::outside(error)
    }
}
