//! A folder of any family we have, and what all families share.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use data::media::Frame;
use models::dit::duet::DuetConfig;
use nn::{Precision, Store};

use crate::error::{Error, Result};
use crate::folder::ModelFolder;
use crate::lora::LoraSource;
use crate::progress::Progress;
use crate::request::Request;
use crate::{duet, pixart, tensors, wan};

/// How long components stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// All of them, from first use on.
    Kept,
    /// One at a time.
    OneAtATime,
}

/// How a folder is opened.
#[derive(Clone, Debug)]
pub struct Setup {
    /// In which type the transformer's matrices are held.
    pub precision: Precision,
    /// How long components stay in memory.
    pub residency: Residency,
    /// Where to compute.
    pub device: Device,
    /// Low-rank changes to the transformer, or to its first expert.
    pub loras: Vec<LoraSource>,
    /// Low-rank changes to the second expert.
    pub second_loras: Vec<LoraSource>,
}

/// A diffusers folder, checked and ready.
pub struct Pipeline(Family);

enum Family {
    Duet(Box<duet::Pipeline>),
    Pixart(Box<pixart::Pipeline>),
    Wan(Box<wan::Pipeline>),
}

/// Receives what is decoded, frame by frame, so that no one need hold a whole clip.
pub trait Frames {
    /// Says how much is coming: so many samples of so many frames. Nothing was computed yet, so
    /// this is the place to refuse.
    ///
    /// # Errors
    /// It cannot be received.
    fn begin(&mut self, samples: usize, frames: usize) -> Result<()>;

    /// The next frame of a sample; its frames come in order, and samples one after another.
    ///
    /// # Errors
    /// It cannot be kept.
    fn frame(&mut self, sample: usize, frame: Frame) -> Result<()>;
}

/// What a request gave besides its frames.
pub struct Answer {
    /// The final latents, before the VAE, in the model's own scaling.
    pub latents: Latents,
}

/// Final latents of all samples, in the shape diffusers gives them.
#[derive(Clone, Debug)]
pub enum Latents {
    /// `[samples, C, h, w]`.
    Picture(Tensor<4>),
    /// `[samples, C, F, h, w]`.
    Clip(Tensor<5>),
}

impl Latents {
    /// The bytes of a safetensors file that holds them under `latents`.
    ///
    /// # Errors
    /// They cannot be serialised.
    pub fn file(self) -> Result<Vec<u8>> {
        match self {
            Latents::Picture(latents) => tensors::one_tensor_file("latents", latents),
            Latents::Clip(latents) => tensors::one_tensor_file("latents", latents),
        }
    }
}

impl Pipeline {
    /// Opens a folder and checks every component against its config. Weights stay on disk.
    ///
    /// # Errors
    /// The folder is of no family we have, or a part of it is missing, damaged or unsupported.
    pub fn open(path: &Path, setup: &Setup) -> Result<Pipeline> {
        let folder = ModelFolder::open(path)?;
        let class = folder.class();
        if pixart::Pipeline::CLASSES.contains(&class) {
            return Ok(Pipeline(Family::Pixart(Box::new(pixart::Pipeline::open(&folder, setup)?))));
        }
        if wan::Pipeline::CLASSES.contains(&class) {
            return Ok(Pipeline(Family::Wan(Box::new(wan::Pipeline::open(&folder, setup)?))));
        }
        if duet::Pipeline::CLASSES.contains(&class) {
            return Ok(Pipeline(Family::Duet(Box::new(duet::Pipeline::open(&folder, setup)?))));
        }
        Err(unsupported(&folder))
    }

    /// Whether a request can be run; nothing runs.
    ///
    /// # Errors
    /// It does not fit the model.
    pub fn check(&self, request: &Request) -> Result<()> {
        match &self.0 {
            Family::Duet(pipeline) => pipeline.check(request).map(drop),
            Family::Pixart(pipeline) => pipeline.check(request).map(drop),
            Family::Wan(pipeline) => pipeline.check(request).map(drop),
        }
    }

    /// Runs a request. Everything about it that can be wrong is found before the first network runs.
    ///
    /// # Errors
    /// The request does not fit the model, a network gave values that are not finite, a frame could
    /// not be kept, or the user interrupted.
    pub fn run(
        &mut self,
        request: &Request,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<Answer> {
        match &mut self.0 {
            Family::Duet(pipeline) => pipeline.run(request, progress, frames),
            Family::Pixart(pipeline) => pipeline.run(request, progress, frames),
            Family::Wan(pipeline) => pipeline.run(request, progress, frames),
        }
    }

    /// A Duet that is in memory only: a model in training.
    pub fn duet(config: DuetConfig, store: Store, device: &Device) -> Result<Pipeline> {
        Ok(Pipeline(Family::Duet(Box::new(duet::Pipeline::of(config, store, device)?))))
    }

    /// Puts other parameters in the place of the transformer's, or of its first expert's: a model in
    /// training is looked at by the very pipeline that will use it.
    ///
    /// # Errors
    /// They are not those of this transformer.
    pub fn replace_transformer(&mut self, store: Store) -> Result<()> {
        match &mut self.0 {
            Family::Duet(pipeline) => pipeline.replace_transformer(store),
            Family::Pixart(pipeline) => pipeline.replace_transformer(store),
            Family::Wan(pipeline) => pipeline.replace_transformer(store),
        }
    }

    /// Frames per second at which this model's clips are meant to play.
    pub fn frame_rate(&self) -> f64 {
        match &self.0 {
            Family::Duet(pipeline) => pipeline.frame_rate(),
            Family::Pixart(_) => 1.0,
            Family::Wan(pipeline) => pipeline.frame_rate(),
        }
    }
}

/// A folder of no family that we have.
pub(crate) fn unsupported(folder: &ModelFolder) -> Error {
    let published = pixart::Pipeline::CLASSES.iter().chain(&wan::Pipeline::CLASSES);
    let supported = published.chain(&duet::Pipeline::CLASSES);
    Error::Pipeline {
        path: folder.path().join("model_index.json"),
        class: folder.class().to_owned(),
        supported: supported.copied().collect::<Vec<_>>().join(", "),
    }
}
