//! The law of layouts: every layout gives the answer of one device.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod duet;
mod exchanges;
mod joint;
mod ltx2;
mod masks;
mod planted;
mod refusals;
mod ring;
mod sound;
mod ulysses;

use std::sync::Arc;

use comm::Group;
use nn::{Attention, Schedule};
use parallel::Sharded;
use testkit::parity::{Bounds, Question};
use testkit::toy::Toy;

/// Sums over ranks associate differently from sums over all tokens; this is what that may cost.
const SUMS: Bounds = Bounds::sums(1e-6);

fn toy(batch: usize, tokens: usize) -> Question {
    let model = Toy::small();
    Question { network: Arc::new(model), store: model.store(), inputs: model.inputs(batch, tokens) }
}

fn ulysses(group: &Group) -> Box<dyn Schedule> {
    Box::new(Sharded::ulysses(group))
}

/// Tokens spread over a group, which mix by `attention`.
fn sharded(
    group: &Group,
    attention: impl Attention + Clone + Send + Sync + 'static,
) -> Box<dyn Schedule> {
    let recompute = nn::Recompute::PerBlock;
    let gradients = parallel::Gradients::Whole;
    Box::new(Sharded { sequence: group.clone(), attention, tensor: None, recompute, gradients })
}
