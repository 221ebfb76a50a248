//! Gemma 3 as a text encoder: every hidden state of its language model.
//!
//! Gemma Team, "Gemma 3 Technical Report". Names and numbers follow transformers 5 (`Gemma3ForConditionalGeneration`,
//! of which an encoder needs the language model only).
//!
//! Notable: every token sees those before it, in most layers no further back than a window; positions turn by
//! frequencies of their own in the layers that see everything; queries share keys in groups; norms stand before
//! and after each half of a layer and scale by one more than their weight.
//!
//! Shape letters: `B` captions, `L` tokens, `D` width, `N` heads, `G` heads of keys, `H` head width.

mod config;
mod model;

pub use config::{GemmaConfig, Sight};
pub use model::GemmaEncoder;
