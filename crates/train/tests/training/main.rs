//! The trainer on the smallest family: laws of accumulation, clipping, skipping and resuming.

mod checkpoints;
mod kill;
mod laws;
mod lora;
mod run;
