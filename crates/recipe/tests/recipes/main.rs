//! Recipes: read, refused, built, run and exported.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod building;
mod duet;
mod masks;
mod reading;
