//! Duet: a small transformer of our own for the shapes world, with one voice for the picture and, if
//! it is given one, a second for the sound.
//!
//! Each voice is a stack of Wan-like blocks: self-attention with rotary positions and normalised
//! queries and keys, attention to the text, a feed-forward, all modulated by the noise level. Where
//! there are two voices, each block lets either listen to the other. Beside the rotation every token is
//! told its place by a small network: on grids as small as the world's that is learnt much sooner.
//!
//! It predicts clean tokens or velocities, as its config says; latents of the world are wide, and
//! clean tokens are then the easier lesson.
//!
//! Shape letters: `B` samples, `T` tokens, `D` width, `N` heads, `H` head width, `L` words, `K` distinct
//! noise levels of a sample.

mod config;
mod model;
mod voice;

pub use config::{DuetConfig, DuetPrediction};
pub use model::{Duet, Shared, Streams};
