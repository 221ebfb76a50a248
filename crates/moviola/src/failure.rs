//! Why a command ended early, and with which exit code.

use std::fmt;

use crate::signals::INTERRUPTED;

/// The exit code of what cannot be done.
pub(crate) const REFUSED: u8 = 2;

/// What ended a command.
pub(crate) enum Failure {
    /// The user did.
    Interrupted(String),
    /// Something is wrong, and this says what.
    Refused(String),
    /// Another rank failed, or this one panicked.
    Rank(String),
}

/// The result of a command.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Interrupted(_) => INTERRUPTED,
            Failure::Refused(_) | Failure::Rank(_) => REFUSED,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Interrupted(text) | Failure::Refused(text) | Failure::Rank(text) => {
                f.write_str(text)
            }
        }
    }
}

impl Failure {
    /// Whether it only says that another rank failed.
    pub(crate) fn is_of_another(&self) -> bool {
        matches!(self, Failure::Rank(_))
    }

    /// A command that cannot do what it was asked for.
    pub(crate) fn refused(reason: impl Into<String>) -> Failure {
        Failure::Refused(reason.into())
    }
}

impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Failure {
        match error {
            engine::Error::Interrupted => Failure::Interrupted(error.to_string()),
            engine::Error::Ranks(error) => Failure::Rank(error.to_string()),
            engine::Error::Request { field, reason } => {
                Failure::Refused(format!("--{}: {reason}", flag(field)))
            }
            _ => Failure::Refused(error.to_string()),
        }
    }
}

/// What a field of a request is called among the arguments.
fn flag(field: engine::Field) -> String {
    match field {
        // A name that ends with .wav asks for it.
        engine::Field::OnlyAudio => "output".to_owned(),
        field => field.name().replace('_', "-"),
    }
}

impl From<folder::Error> for Failure {
    fn from(error: folder::Error) -> Failure {
        Failure::Refused(error.to_string())
    }
}

impl From<data::Error> for Failure {
    fn from(error: data::Error) -> Failure {
        Failure::Refused(error.to_string())
    }
}

impl From<data::media::Error> for Failure {
    fn from(error: data::media::Error) -> Failure {
        Failure::Refused(error.to_string())
    }
}

impl From<recipe::Error> for Failure {
    fn from(error: recipe::Error) -> Failure {
        match error {
            recipe::Error::Train(error) => error.into(),
            // A recipe has keys, not flags.
            recipe::Error::Engine(engine::Error::Request { .. }) => {
                Failure::Refused(error.to_string())
            }
            recipe::Error::At { location: recipe::Location::Override(text), reason } => {
                Failure::Refused(format!("--set {text}: {reason}"))
            }
            recipe::Error::Engine(error) => error.into(),
            _ => Failure::Refused(error.to_string()),
        }
    }
}

impl From<train::Error> for Failure {
    fn from(error: train::Error) -> Failure {
        match error {
            error if error.is_of_another() => Failure::Rank(error.to_string()),
            _ => Failure::Refused(error.to_string()),
        }
    }
}

impl From<serve::Error> for Failure {
    fn from(error: serve::Error) -> Failure {
        match error {
            serve::Error::Engine(error) => error.into(),
            _ => Failure::Refused(error.to_string()),
        }
    }
}
