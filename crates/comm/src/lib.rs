//! Groups of ranks that exchange tensors and cannot hang silently.
//!
//! A [`Group`] is passed around like a device, and a group of one is a group, so nobody asks whether
//! the program is distributed. Ranks are threads of this process, each with its own pool of
//! workers: [`on_ranks`]; or, with the feature `mpi`, processes that MPI joins.
//!
//! Every call posts a header to its peers (which call it is, in which order, of what shape) and
//! compares theirs with its own before any of it is delivered. A rank that does not come within the
//! deadline is named, two calls that differ are both named, and a rank that panics wakes all others.
//! After a failure the group stays broken: every later call on it reports the same error.
//!
//! What is exchanged is outside any graph. Two ranks must never share a tensor of one: their graphs
//! would merge under one lock. A layout makes an exchange differentiable by its adjoint.

mod apart;
mod call;
mod error;
mod group;
mod hall;
mod link;
mod membership;
mod mesh;
#[cfg(feature = "mpi")]
pub mod mpi;
mod parcel;
mod ranks;

pub use call::{Call, Extent, Operation};
pub use error::{Absence, Error, RankState, Result};
pub use group::{Busy, Expected, Group, Trade, share};
pub use membership::Traffic;
pub use mesh::{Axis, Mesh, MeshShape};
pub use parcel::{Parcel, Values};
pub use ranks::{Ranks, on_ranks};
