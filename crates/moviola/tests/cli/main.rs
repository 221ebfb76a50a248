//! The command as a user runs it: what it makes, and how it refuses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conditions;
mod folder;
mod generate;
mod inspect;
mod machine;
mod preprocess;
mod ranks;
mod refusals;
mod training;
mod wan;
mod weird;
