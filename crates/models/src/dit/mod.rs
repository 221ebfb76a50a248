//! Diffusion transformers, one folder per family.

pub mod duet;
pub mod pixart;
pub mod wan;
