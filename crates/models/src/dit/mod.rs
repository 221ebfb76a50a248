//! Diffusion transformers, one folder per family.

pub mod pixart;
pub mod wan;
