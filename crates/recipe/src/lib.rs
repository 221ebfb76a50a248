//! Recipes: a YAML file becomes a checked [`Recipe`], and that a run.
//!
//! This is the only crate that knows every method and strategy, each as a variant of an enum; families
//! come from their table. A method receives its networks, data and encoded texts ready.

mod agree;
mod bounds;
mod build;
mod check;
mod convert;
mod document;
mod environment;
mod error;
mod exam;
mod export;
mod feed;
mod identity;
mod idle;
mod look;
mod memory;
mod mix;
mod model;
mod new;
mod parallel;
mod prepare;
mod read;
mod reference;
mod roles;
mod schema;
mod score;
mod shown;
mod students;
mod synonyms;
mod validation;
mod values;
mod working_folder;

pub use self::parallel::ParallelConfig;
pub use build::{CHANGEABLE, FREE, Facts, Run};
pub use convert::{Converted, Places, convert};
pub use document::Location;
pub use environment::Environment;
pub use error::{Error, Result};
pub use exam::{Answer, Exam, Sampling, Task};
pub use export::{Dialect, Student, Which};
pub use feed::Source;
pub use look::{Look, SeenClip, looks};
pub use memory::{Effort, Memory, Phase, RoleMemory};
pub use mix::{MixConfig, PartConfig};
pub use model::{Model, Origin, TextForm};
pub use new::NewConfig;
pub use schema::*;
pub use score::{Score, Share};
pub use validation::{Recorder, Watched};
pub use working_folder::working_folder;
