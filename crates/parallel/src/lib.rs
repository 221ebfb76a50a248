//! Layouts: every way of spreading a model over ranks, none of them known to a model.
//!
//! A layout stands behind one of `nn`'s seams. [`Ulysses`] is an attention; [`Sharded`] is a schedule
//! that gives each rank its own tokens and puts the whole together again, so that callers see whole
//! sequences on every rank.

mod error;
mod shard;
mod sharded;
mod ulysses;

pub use error::{Error, Result};
pub use shard::{shard, share};
pub use sharded::Sharded;
pub use ulysses::Ulysses;
