//! `Request -> Scene -> sampler -> decode`, for every family of the table.
//!
//! A [`Pipeline`] is opened from a diffusers folder, checks a [`Request`] against the model before
//! any work starts, and answers with pictures. It writes no output file and draws no bar. A
//! [`FolderEncoder`] makes of clips and captions what the same model is trained on.

mod captions;
mod decoding;
mod encoder;
mod enlarging;
mod error;
mod estimate;
mod finite;
mod fit;
mod given;
mod guidance;
mod inspect;
mod job;
mod media;
mod pipeline;
mod pixels;
mod plan;
mod profile;
mod progress;
mod quantization;
mod replica;
mod request;
mod room;
mod sampling;
mod scene;
mod seed;
mod sizes;
mod sketch;
mod sound;
mod source_image;
mod stages;
mod tensors;
mod text;
mod vision;

pub use encoder::{ClipSizes, EncoderSetup, FolderEncoder};
pub use enlarging::upsampler_folder;
pub use error::{Error, Field, Result};
pub use estimate::{Estimate, StageWork};
pub use given::check_taken;
pub use guidance::MoreGuidance;
pub use inspect::{ComponentReport, Fact, Inspection, TensorReport, inspect};
pub use pipeline::{Frames, Latents, Pipeline, PipelineOutput, Residency, Setup};
pub use plan::{EnlargedUsed, Plan, SolverUsed, Used};
pub use progress::{Progress, Silent};
pub use quantization::{RoundedMatrix, quantization};
pub use request::{Audio, Decoding, Enlarging, Fit, Given, Media, Request, Sizing, Solving};
pub use room::{Shortage, machine_memory, most_memory};
pub use seed::Seed;
pub use sketch::{file_fingerprint, model_fingerprint};
pub use source_image::{ClipPreprocessor, Filter, SourceImage};
pub use stages::samples_together;
pub use text::{PromptEmbedding, PromptSetup, encode_negative_prompt, encoder_bytes};
