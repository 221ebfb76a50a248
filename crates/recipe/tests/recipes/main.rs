//! Recipes: read, refused, built, run and exported.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod building;
mod conditions;
mod converting;
mod duet;
mod exams;
mod experts;
mod exporting;
mod lora;
mod masks;
mod memory;
mod pictures;
mod ranks;
mod reading;
mod resuming;
mod roles;
mod sampling;
mod sounding;
mod validation;
