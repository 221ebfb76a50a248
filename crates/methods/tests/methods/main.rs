//! What methods teach: against a transcription in PyTorch, and by the laws they keep.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod dmd2;
mod duet;
mod finetune;
mod forcing;
mod golden;
mod setting;
mod tiny;
