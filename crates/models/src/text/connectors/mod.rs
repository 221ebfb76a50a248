//! LTX-2's connectors: what a language model's hidden states become before the transformer reads them.
//!
//! All hidden states of a token are normalised and projected into one, for both streams together (2.0) or for
//! each (2.3). A small transformer per stream then moves the text to the front, puts learnt registers where
//! padding was, by their place, and lets them mix. No padding is left: the result needs no mask.
//!
//! Names and numbers follow diffusers 0.42 (`LTX2TextConnectors`). Shape letters: `B` captions, `L` tokens, `C`
//! width of a hidden state, `S` hidden states of a token, `D` width of a connector.

mod config;
mod model;

pub use config::{ConnectorConfig, ConnectorsConfig, Features};
pub use model::Connectors;
