//! Files and numbers that were made to break the command, each in a process of its own with 4 GB of
//! memory: one short message, exit code 2 or a clip that is skipped, and nothing left behind.
//!
//! `cargo xtask break` runs all of this with the optimised command, and kills it at many more moments.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clips;
mod folders;
mod kills;
mod numbers;
mod outputs;
mod pictures;
mod pipes;
mod place;
mod process;
mod shrinking;
mod strangers;
mod texts;
mod training;
