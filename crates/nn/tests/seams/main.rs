//! The seams, proved with the smallest family that uses them all.

mod attention;
mod blockwise;
mod first_block;
mod gguf;
mod lora;
mod masks;
mod packing;
mod providers;
mod quantized;
mod rounded;

use std::sync::Arc;

use testkit::parity::Question;

use testkit::toy::Toy;

fn toy(batch: usize, tokens: usize) -> Question {
    let model = Toy::small();
    Question { network: Arc::new(model), store: model.store(), inputs: model.inputs(batch, tokens) }
}
