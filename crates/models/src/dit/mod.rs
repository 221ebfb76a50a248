//! Diffusion transformers, one folder per family.

pub mod duet;
pub mod ltx2;
pub mod pixart;
pub mod wan;
