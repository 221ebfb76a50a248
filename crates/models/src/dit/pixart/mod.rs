//! PixArt-alpha: text to image with cross-attention and one modulation MLP for all blocks.
//!
//! Chen et al., "PixArt-alpha: Fast Training of Diffusion Transformer for Photorealistic
//! Text-to-Image Synthesis". Names and numbers follow diffusers 0.42 (`PixArtTransformer2DModel`).
//!
//! Notable: adaLN-single (blocks add a small table to a shared modulation), no norm before
//! cross-attention, position embeddings scaled to the training resolution, and, for models trained
//! at 1024 pixels, the picture's size and proportion as conditions.
//!
//! Shape letters: `B` samples, `T` tokens, `D` width, `N` heads, `H` head width, `L` text tokens,
//! `K` distinct noise levels of a sample.

mod blocks;
mod config;
mod model;

pub use config::PixartConfig;
pub use model::Pixart;
