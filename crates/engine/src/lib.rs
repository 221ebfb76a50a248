//! Pipelines as typed stages: Encode, Denoise, Decode.
//!
//! A [`Pipeline`] is opened from a diffusers folder, checks a [`Request`] against the model before
//! any work starts, and answers with pictures. It writes no output file and draws no bar.

mod component;
mod error;
mod folder;
mod hub;
mod inspect;
pub mod lora;
mod picture;
mod pixart;
mod progress;
mod request;
mod sizes;
mod source_image;
mod tensors;
pub mod tokenizer;

pub use error::{Error, Result};
pub use folder::ModelFolder;
pub use hub::locate;
pub use inspect::{Report, inspect};
pub use picture::Picture;
pub use pixart::{Answer, Pipeline, Residency};
pub use progress::{Progress, Silent};
pub use request::{CaptionStyle, Decoding, Request, Sizing};
pub use source_image::{ClipPreprocessor, Filter, SourceImage};
pub use tensors::one_tensor_file;
