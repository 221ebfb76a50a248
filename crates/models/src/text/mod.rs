//! Text encoders.

pub mod connectors;
pub mod gemma;
pub mod t5;
