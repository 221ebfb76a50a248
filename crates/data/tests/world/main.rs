//! The shapes world: what it shows, whether the judge sees it, and what codecs make of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod codecs;
mod generator;
mod judge;
