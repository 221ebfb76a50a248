//! Autoencoders: between pixels and the latents that a diffusion model works on.

pub mod kl;
