//! Recipes: a YAML file becomes a checked [`Recipe`], and that a run.
//!
//! This is the only crate that knows every family, method and strategy, each as a variant of an enum.
//! A method receives its networks, data and encoded texts ready.

mod agree;
mod build;
mod check;
mod document;
mod error;
mod exam;
mod export;
mod family;
mod feed;
mod identity;
mod idle;
mod memory;
mod read;
mod roles;
mod schema;
mod score;
mod validation;

pub use build::{FREE, Facts, Run, Site};
pub use error::{Error, Result};
pub use exam::{Answer, Exam, Task};
pub use export::{Dialect, Student, Which};
pub use family::{Model, Origin, TextForm};
pub use feed::Source;
pub use memory::RoleMemory;
pub use schema::*;
pub use score::{Score, Share};
pub use validation::Recorder;
