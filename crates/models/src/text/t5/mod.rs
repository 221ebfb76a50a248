//! The encoder of T5 v1.1 and of the first T5: captions to embeddings.
//!
//! Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
//! Transformer" (2020); the numbers are those of transformers' `T5EncoderModel`. What sets it apart
//! from an ordinary transformer: norms have neither mean nor bias, no linear layer has a bias,
//! scores are not divided by the square root of the head width, and the only sense of position is a
//! learnt bias on the scores by the distance between two tokens, made in the first block and used
//! by all.

mod config;
mod model;

pub use config::{FeedForward, T5Config};
pub use model::T5Encoder;
