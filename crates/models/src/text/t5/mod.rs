//! The encoders of T5 v1.1, of the first T5 and of UMT5: captions to embeddings.
//!
//! Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text
//! Transformer" (2020); the numbers are those of transformers' `T5EncoderModel`. What sets it apart
//! from an ordinary transformer: norms have neither mean nor bias, no linear layer has a bias,
//! scores are not divided by the square root of the head width, and the only sense of position is a
//! learnt bias on the scores by the distance between two tokens. T5 makes it in the first block and
//! uses it in all; UMT5 (Chung et al., "UniMax", 2023; transformers' `UMT5EncoderModel`), which Wan
//! reads prompts with, learns one per block.

mod config;
mod model;

pub use config::{FeedForward, PositionBias, T5Config};
pub use model::T5Encoder;
