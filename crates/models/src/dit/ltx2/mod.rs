//! LTX-2: text to video with its sound, in two streams that listen to each other.
//!
//! HaCohen et al., "LTX-2: Efficient Joint Audio-Visual Foundation Model". Names and numbers follow diffusers
//! 0.42 (`LTX2VideoTransformer3DModel`); both kinds that it has are here: 2.0, which projects captions itself,
//! and 2.3, whose attention is gated and whose prompts are modulated by the noise level. What 2.5 adds is
//! refused by name.
//!
//! Notable: places are seconds and pixels, and every head turns by a band of frequencies of its own; the
//! streams have widths of their own and meet in every block, on what they were before either heard the
//! other; how much one hears depends on both noise levels ([`CrossLevels`]).
//!
//! Shape letters: `B` samples, `T` tokens, `D` width of a stream, `N` heads, `H` head width, `L` text tokens,
//! `K` distinct noise levels of a sample.

mod blocks;
mod conditions;
mod config;
mod mixer;
mod model;
mod shared;

pub use config::{Ltx2Config, StreamConfig};
pub(crate) use mixer::{Mixer, MixerSizes};
pub use model::{CrossLevels, Ltx2};
pub use shared::{CrossShared, Shared, StreamShared, Streams};
