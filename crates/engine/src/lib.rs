//! Pipelines as typed stages: Encode, Denoise, Decode.
//!
//! A [`Pipeline`] is opened from a diffusers folder, checks a [`Request`] against the model before
//! any work starts, and answers with pictures. It writes no output file and draws no bar. A
//! [`FolderEncoder`] makes of clips and captions what the same model is trained on.

mod captions;
mod component;
mod duet;
mod encoder;
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
mod text;
pub mod tokenizer;
mod wan;

pub use duet::{DUET_SCHEDULER, duet_process};
pub use encoder::{ClipSizes, EncoderSetup, FolderEncoder};
pub use error::{Error, Result};
pub use folder::ModelFolder;
pub use hub::{Hub, HubEvent, locate};
pub use inspect::{Report, inspect};
pub use pipeline::{Answer, Frames, Latents, Pipeline, Residency, Setup};
pub use progress::{Progress, Silent};
pub use request::{CaptionStyle, Decoding, Request, Sizing, Solving};
pub use scene::{Batch, Predict, SceneSampler};
pub use source_image::{ClipPreprocessor, Filter, SourceImage};
pub use text::{
    Padding, Preparation, PromptEmbedding, PromptSetup, TextRules, encode_negative_prompt,
};
