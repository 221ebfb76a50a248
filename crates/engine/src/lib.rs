//! Pipelines as typed stages: Encode, Denoise, Decode.
//!
//! A [`Pipeline`] is opened from a diffusers folder, checks a [`Request`] against the model before
//! any work starts, and answers with pictures. It writes no output file and draws no bar.

mod captions;
mod component;
mod duet;
mod error;
mod finite;
mod folder;
mod hub;
mod inspect;
mod lattice;
pub mod lora;
mod pipeline;
mod pixart;
mod pixels;
mod progress;
mod request;
mod sampling;
mod scene;
mod sizes;
mod source_image;
mod tensors;
pub mod tokenizer;
mod wan;

pub use duet::duet_process;
pub use error::{Error, Result};
pub use folder::ModelFolder;
pub use hub::locate;
pub use inspect::{Report, inspect};
pub use pipeline::{Answer, Frames, Latents, Pipeline, Residency, Setup};
pub use progress::{Progress, Silent};
pub use request::{CaptionStyle, Decoding, Request, Sizing};
pub use scene::{Batch, Predict, SceneSampler};
pub use source_image::{ClipPreprocessor, Filter, SourceImage};
