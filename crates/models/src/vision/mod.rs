//! Encoders of pictures that condition a transformer.

pub mod clip;
