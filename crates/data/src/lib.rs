//! What models learn from and what they make: clips, where they come from and how they are kept.
//!
//! [`world`] is a tiny world of captioned clips with a judge, so that every kind of training has an
//! honest score on a CPU in minutes. [`store`] keeps what encoders made of clips and captions, and
//! [`loader`] makes batches of it. [`preprocess`] fills a store from clips on disk. [`media`] reads and
//! writes clips in the formats that people use. [`aside`] makes files that are whole or not there. [`import`] takes
//! over what another trainer preprocessed, by way of [`torch`], which reads its files.

pub mod aside;
pub mod import;
pub mod loader;
pub mod media;
pub mod preprocess;
pub mod store;
pub mod torch;
pub mod world;

mod clip;
mod error;
mod tensors;

pub use clip::Clip;
pub use error::{Error, Result};
pub use tensors::write_tensors;
