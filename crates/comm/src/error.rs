//! How an exchange fails: always with the ranks and the calls named.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::call::Call;

/// The result of every exchange.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a group broke. All its ranks report the same error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A rank did not come within the deadline, or never can.
    #[error("rank {rank} waited {waited:.1?} in {call}, but {}", list(absent))]
    Missing {
        /// Who waited.
        rank: usize,
        /// In which call.
        call: Box<Call>,
        /// For how long.
        waited: Duration,
        /// Who did not come.
        absent: Vec<Absence>,
    },
    /// A rank that has done its part waits for the end of others, which give no sign of life.
    #[error("rank {rank} is done and waits for the others, but {}", list(absent))]
    Lost {
        /// Who waits.
        rank: usize,
        /// Who is silent.
        absent: Vec<Absence>,
    },
    /// Two ranks make different calls.
    #[error(
        "rank {rank} is in {own}, but rank {peer} is in {other}; \
         every rank must make the same calls in the same order"
    )]
    Mismatch {
        /// One rank.
        rank: usize,
        /// Its call.
        own: Box<Call>,
        /// The other rank.
        peer: usize,
        /// Its call.
        other: Box<Call>,
    },
    /// A rank panicked.
    #[error("rank {rank} panicked: {message}")]
    Panicked {
        /// The rank.
        rank: usize,
        /// What it said.
        message: String,
    },
    /// A rank called with arguments that no group can serve.
    #[error("rank {rank} cannot call {operation}: {reason}")]
    Refused {
        /// The rank.
        rank: usize,
        /// What it called.
        operation: String,
        /// Why not.
        reason: String,
    },
    /// A mesh of another number of ranks than there are.
    #[error("a mesh of {degrees} does not have the {ranks} rank(s) that there are")]
    Mesh {
        /// Ranks along each axis.
        degrees: String,
        /// How many there are.
        ranks: usize,
    },
    /// A rank of another process failed.
    #[error("rank {rank} failed: {reason}")]
    Elsewhere {
        /// The rank.
        rank: usize,
        /// What it said.
        reason: String,
    },
    /// The processes of a job do not fit together.
    #[error("the ranks of this job cannot meet: {reason}")]
    Launch {
        /// Why not.
        reason: String,
    },
    /// Bytes between processes that nobody sent.
    #[error("what rank {rank} sent cannot be read; are all processes of one version?")]
    Damaged {
        /// The sender.
        rank: usize,
    },
    /// The threads of a rank could not be started.
    #[error("cannot start the {threads} threads of rank {rank}: {reason}")]
    Start {
        /// The rank.
        rank: usize,
        /// How many it should have.
        threads: usize,
        /// What the system said.
        reason: String,
    },
}

/// A rank that did not come, and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absence {
    /// The rank.
    pub rank: usize,
    /// What it does instead.
    pub state: RankState,
}

/// What a rank was doing when it was missed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankState {
    /// It has made no call on this group yet.
    Silent,
    /// It has come back from this call and has not made another since.
    After(Box<Call>),
    /// It waits in this call.
    Waiting(Box<Call>),
    /// It has announced long work, and its limit has passed.
    Busy {
        /// The work.
        what: Arc<str>,
        /// The announced limit.
        limit: Duration,
    },
    /// It has announced long work, and its process gives no sign of life.
    Lost {
        /// The work.
        what: Arc<str>,
        /// For how long it has given none.
        silence: Duration,
    },
    /// Its work is done; it will not come.
    Ended,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.rank;
        match &self.state {
            RankState::Silent => write!(f, "rank {rank} did not come: it has made no call yet"),
            RankState::After(call) => {
                write!(f, "rank {rank} did not come: its last call was {call}")
            }
            RankState::Waiting(call) => write!(f, "rank {rank} did not come: it waits in {call}"),
            RankState::Busy { what, limit } => {
                write!(
                    f,
                    "rank {rank} did not come: it is busy with {what}, announced for {limit:.1?}"
                )
            }
            RankState::Lost { what, silence } => {
                write!(
                    f,
                    "rank {rank} did not come: it was busy with {what} and has given no sign of life for \
                     {silence:.1?}; it is stopped, or cannot be reached"
                )
            }
            RankState::Ended => write!(f, "rank {rank} has ended and will not come"),
        }
    }
}

fn list(absent: &[Absence]) -> String {
    absent.iter().map(Absence::to_string).collect::<Vec<_>>().join(", ")
}
