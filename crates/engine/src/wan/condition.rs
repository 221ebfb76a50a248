//! What pictures tell the transformer: tokens beside the noise, a clean first frame, and what an
//! image encoder sees.

use burn::tensor::{Device, Tensor};
use models::vision::clip::{ClipVision, ClipVisionConfig};
use nn::Weights;

use super::job::{Job, MASK_CHANNELS};
use super::vae::encode_clip;
use super::{Conditioning, Pipeline};
use crate::component::{Component, Holding};
use crate::error::{Error, Result};
use crate::finite;
use crate::folder::ModelFolder;
use crate::progress::{self, Progress};
use crate::source_image::{ClipPreprocessor, SourceImage};

/// The image encoder of a folder.
pub(super) struct Vision {
    network: ClipVision,
    component: Component,
    preprocessor: ClipPreprocessor,
}

impl Vision {
    /// Opens `image_encoder` and `image_processor`.
    ///
    /// # Errors
    /// One of them is missing, damaged or unsupported.
    pub(super) fn open(folder: &ModelFolder) -> Result<Vision> {
        let config = ClipVisionConfig::from_json(&folder.text("image_encoder", "config.json")?)?;
        let network = ClipVision::new(config);
        let component =
            Component::new(folder.weights("image_encoder")?, Holding::STORED, &[], |weights| {
                network.declare(weights)
            })?;
        const FILE: &str = "preprocessor_config.json";
        let text = folder.text("image_processor", FILE)?;
        let preprocessor = ClipPreprocessor::from_json(&text).map_err(|reason| Error::Json {
            path: folder.path().join("image_processor").join(FILE),
            reason,
        })?;
        Ok(Vision { network, component, preprocessor })
    }

    /// Tokens of one picture.
    pub(super) fn tokens(&self) -> usize {
        self.network.config.tokens()
    }

    /// Lets go of the weights.
    pub(super) fn close(&mut self) {
        self.component.close();
    }

    /// The tokens of all pictures one after the other, `[1, L, D]`.
    fn encode(&mut self, pictures: &[&SourceImage], device: &Device) -> Result<Tensor<3>> {
        let store = self.component.open(device)?;
        let weights = Weights::new(store);
        let tokens = pictures
            .iter()
            .map(|picture| {
                let pixels = self.preprocessor.apply(picture, device);
                Ok(self.network.encode(&weights, pixels)?)
            })
            .collect::<Result<Vec<_>>>()?;
        let tokens = Tensor::cat(tokens, 1);
        finite::check(&tokens, "the image encoder", store)?;
        Ok(tokens)
    }
}

/// What the pictures of a request become.
#[derive(Default)]
pub(super) struct Condition {
    /// Tokens that stand beside those of the noise, `[1, T, C']`.
    pub(super) beside: Option<Tensor<3>>,
    /// Clean tokens of the first latent frame, `[1, T', C]`.
    pub(super) first: Option<Tensor<3>>,
    /// What the image encoder sees, `[1, L, D]`.
    pub(super) seen: Option<Tensor<3>>,
}

impl Pipeline {
    /// Encodes the pictures of a request.
    pub(super) fn condition(
        &mut self,
        job: &Job,
        progress: &mut dyn Progress,
    ) -> Result<Condition> {
        let Some(image) = &job.image else { return Ok(Condition::default()) };
        progress::check(progress)?;
        progress.begin("picture", 1);
        let pictures: Vec<&SourceImage> =
            [Some(image), job.last_image.as_ref()].into_iter().flatten().collect();
        let seen = match &mut self.vision {
            Some(vision) => Some(vision.encode(&pictures, &self.device)?),
            None => None,
        };
        let lattice = job.course.lattice;
        let condition = match self.conditioning {
            Conditioning::FirstFrame => {
                let clip = image.conditioning(job.size, &self.device).unsqueeze_dim::<5>(2);
                let latents = encode_clip(&mut self.vae, clip, &self.device)?;
                Condition { beside: None, first: Some(lattice.patchify(latents)), seen }
            }
            _ => {
                let clip = clip(job, &pictures, &self.device);
                let latents = encode_clip(&mut self.vae, clip, &self.device)?;
                let given = given_frames(job, &self.device);
                let beside = lattice.patchify(Tensor::cat(vec![given, latents], 1));
                Condition { beside: Some(beside), first: None, seen }
            }
        };
        progress.reach(1);
        Ok(condition)
    }
}

/// The clip `[1, 3, F, H, W]` of the given pictures with grey between them.
fn clip(job: &Job, pictures: &[&SourceImage], device: &Device) -> Tensor<5> {
    let [height, width] = job.size;
    let frame =
        |picture: &SourceImage| picture.conditioning(job.size, device).unsqueeze_dim::<5>(2);
    let mut frames: Vec<Tensor<5>> = pictures.iter().map(|picture| frame(picture)).collect();
    let between = job.frames.saturating_sub(frames.len());
    if between > 0 {
        frames.insert(1, Tensor::zeros([1, 3, between, height, width], device));
    }
    Tensor::cat(frames, 2)
}

/// One where a frame is given, zero elsewhere, `[1, 4, f, h, w]`: the first frame counts four times.
fn given_frames(job: &Job, device: &Device) -> Tensor<5> {
    let [frames, height, width] = job.course.lattice.size;
    let last = job.frames - 1;
    let given = |frame: usize| frame == 0 || (frame == last && job.last_image.is_some());
    let mut values = Vec::with_capacity(MASK_CHANNELS * frames);
    for channel in 0..MASK_CHANNELS {
        // Latent frame 0 holds the first frame alone, each later one holds four.
        let frame =
            |latent: usize| (latent * MASK_CHANNELS + channel + 1).saturating_sub(MASK_CHANNELS);
        values.extend((0..frames).map(|latent| f32::from(u8::from(given(frame(latent))))));
    }
    let values = Tensor::<1>::from_floats(&values[..], device);
    values.reshape([1, MASK_CHANNELS, frames, 1, 1]).expand([
        1,
        MASK_CHANNELS,
        frames,
        height,
        width,
    ])
}
