//! The trainer on the smallest family: laws of accumulation, clipping, skipping and resuming.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up should fail")]

mod checkpoints;
mod kill;
mod laws;
mod lora;
mod ranks;
mod run;
