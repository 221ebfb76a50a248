//! A run is written down, killed, resumed, read back and shown.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod events;
mod lines;
mod pages;
mod resume;
mod run;
