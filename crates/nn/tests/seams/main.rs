//! The seams, proved with the smallest family that uses them all.

mod attention;
mod blockwise;
mod lora;
mod masks;
mod packing;
mod providers;

use testkit::parity::Question;
use testkit::toy::Toy;

fn toy(batch: usize, tokens: usize) -> Question<Toy> {
    let model = Toy::small();
    Question { model, store: model.store(), inputs: model.inputs(batch, tokens) }
}
