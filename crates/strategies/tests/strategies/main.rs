//! What networks are told in every mode, and the defects of LTX-2's trainer that are not repeated.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up should fail")]

mod batches;
mod conditions;
mod config;
mod loss;
mod positions;
mod references;
mod sound;
