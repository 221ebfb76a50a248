//! The vision half of CLIP: a picture to one embedding per patch and one for the whole.
//!
//! Radford et al., "Learning Transferable Visual Models From Natural Language Supervision" (2021);
//! the numbers are those of transformers' `CLIPVisionModel`. Wan's image-to-video models look at the
//! states before the last block, so that block and the norm after it are asked for, as a checkpoint
//! has them, and never run.

mod config;
mod model;

pub use config::ClipVisionConfig;
pub use model::ClipVision;
