//! Layouts: every way of spreading a model over ranks, none of them known to a model.
//!
//! A layout stands behind one of `nn`'s seams. [`Spread`] is an attention, [`TensorSplit`] a provider of parts
//! of layers, [`Gathered`] one of layers that other ranks hold; [`Sharded`] is a schedule that gives each rank its own tokens and matrices and puts the whole
//! together again, so that callers see whole sequences on every rank.

mod branches;
pub mod cost;
mod error;
pub mod exchange;
mod fsdp;
mod pipefusion;
mod plan;
mod ring;
mod shard;
mod sharded;
mod spread;
mod stale;
mod strips;
mod tensor;

pub use branches::Branches;
pub use error::{Error, Result};
pub use fsdp::{Gathered, Sharding, Shards, lent_at_once, merge};
pub use pipefusion::{Experts, PipeFusion};
pub use plan::{Layout, Pipeline, Plan, Refusal, Workload};
pub use shard::shard;
pub use sharded::{Gradients, Sharded};
pub use spread::Spread;
pub use strips::{StripProvider, Strips};
pub use tensor::{Splits, TensorSplit, split_of};
