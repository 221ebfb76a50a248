//! Autoencoders: between pixels and the latents that a diffusion model works on.

mod blend;
pub mod kl;
pub mod wan;
