//! The law of layouts: every layout gives the answer of one device.

mod blockwise;
mod duet;
mod masks;
mod planted;
mod refusals;
mod sound;
mod ulysses;
mod wan;

use comm::Group;
use nn::{Attention, Dit, Plain, Weights};
use parallel::{Ulysses, backward_sharded, forward_sharded};
use testkit::parity::{Answer, Question, all, loss};
use testkit::toy::Toy;

/// Sums over ranks associate differently from sums over all tokens; this is what that may cost.
const TOLERANCE: f64 = 1e-6;

fn toy(batch: usize, tokens: usize) -> Question<Toy> {
    let model = Toy::small();
    Question { model, store: model.store(), inputs: model.inputs(batch, tokens) }
}

fn ulysses<M: Dit>(question: &Question<M>, group: &Group) -> Answer {
    sharded(question, group, &mut Ulysses { group: group.clone(), inner: Plain })
}

fn sharded<M: Dit>(question: &Question<M>, group: &Group, attention: &mut dyn Attention) -> Answer {
    let Question { model, store, inputs } = question;
    let prediction = forward_sharded(model, &Weights::new(store), inputs, attention, group);
    let prediction = prediction.expect("the model runs forward");
    let backward = backward_sharded(model, store, &all, inputs, (attention, &loss), group);
    Answer { prediction, backward: backward.expect("the model runs backward") }
}
