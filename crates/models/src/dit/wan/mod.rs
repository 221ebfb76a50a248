//! Wan 2.1 and 2.2: text (and pictures) to video.
//!
//! Wan Team, "Wan: Open and Advanced Large-Scale Video Generative Models". Names and numbers follow
//! diffusers 0.42 (`WanTransformer3DModel`).
//!
//! Notable: rotary positions on three axes, queries and keys normalised over all heads together,
//! blocks that add a small table to a shared modulation, a second set of keys and values for the
//! tokens of a picture (2.1 image to video), and a noise level per token (2.2 TI2V). Text is padded
//! with zeros and not masked.
//!
//! Timesteps are those of the flow times 1000, fractions included. Where the model is shown a
//! picture as latents, the caller puts them beside the noisy ones as further channels.
//!
//! Shape letters: `B` samples, `T` tokens, `D` width, `N` heads, `H` head width, `L` text tokens,
//! `P` picture tokens, `K` distinct noise levels of a sample.

mod blocks;
mod conditions;
mod config;
mod model;

pub use config::{PictureConfig, WanConfig};
pub use model::{Shared, Wan};
