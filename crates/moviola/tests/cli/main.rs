//! The command as a user runs it: what it makes, and how it refuses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asking;
mod clips;
mod conditions;
mod datasets;
mod ending;
mod experts;
mod exports;
mod families;
mod folder;
mod generate;
mod gguf;
mod going;
mod hearing;
mod hub;
mod inputs;
mod inspect;
mod lines;
mod machine;
mod pages;
mod plan;
mod preprocess;
mod ranks;
mod records;
mod refusals;
mod rehearsal;
mod replicas;
#[path = "../served/mod.rs"]
mod served;
mod serving;
mod sounding;
mod spread;
mod staging;
#[path = "../subjects/mod.rs"]
mod subjects;
mod training;
mod wan;
mod webm;
mod weird;
mod windows;
