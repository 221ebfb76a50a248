//! Wan text-to-video and image-to-video as three stages: Encode, Denoise, Decode.
//!
//! One pipeline serves all published folders. What differs between them is data: how a picture
//! enters ([`Conditioning`]), whether two experts share the steps ([`experts::Experts`]), and
//! which VAE there is.

mod condition;
mod experts;
mod job;
mod stages;
mod vae;

use burn::tensor::Device;
use diffusion::{Process, SchedulerConfig};
use nn::Store;

use self::condition::Vision;
use self::experts::Experts;
pub(crate) use self::job::{FRAMES, SIZE};
pub(crate) use self::vae::{Vae, encode_clip, open_vae};
use crate::error::{Error, Result};
use crate::folder::{self, ModelFolder};
use crate::pipeline::{Answer, Frames, Latents, Residency, Setup};
use crate::progress::Progress;
use crate::request::Request;
use crate::text::{Padding, Preparation, TextEncoder, TextRules};

/// How a picture enters a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Conditioning {
    /// It does not.
    TextOnly,
    /// As the first latent frame, clean, if there is one (Wan 2.2 TI2V).
    FirstFrame,
    /// As channels beside the noise, always (Wan 2.1 I2V, Wan 2.2 I2V A14B).
    Channels,
}

/// A Wan folder, checked and ready.
pub(crate) struct Pipeline {
    device: Device,
    residency: Residency,
    scheduler: SchedulerConfig,
    /// The timesteps of a distilled model, if the folder records them.
    timesteps: Option<Vec<f64>>,
    text: TextEncoder,
    experts: Experts,
    vae: Vae,
    vision: Option<Vision>,
    conditioning: Conditioning,
}

impl Pipeline {
    /// The classes that folders of this family have.
    pub(crate) const CLASSES: [&str; 2] = ["WanPipeline", "WanImageToVideoPipeline"];

    /// The rules of its text encoders.
    pub(crate) const TEXT: [TextRules; 1] = [TextRules {
        preparation: Preparation::Repaired,
        max_tokens: 512,
        padding: Padding::Zeroed,
    }];

    /// Checks every component against its config. Weights stay on disk.
    ///
    /// # Errors
    /// A part of the folder is missing, damaged or unsupported.
    pub(crate) fn open(folder: &ModelFolder, setup: &Setup) -> Result<Pipeline> {
        let scheduler = folder.text("scheduler", "scheduler_config.json")?;
        let scheduler = SchedulerConfig::from_json(&scheduler)?;
        if scheduler.process() != Process::Flow {
            return Err(Error::Request(format!(
                "the scheduler {} of this folder is not set up for flows, which Wan needs; give it \
                 `prediction_type` \"flow_prediction\" and `use_flow_sigmas` true",
                scheduler.class()
            )));
        }
        let vae = open_vae(folder)?;
        let experts = Experts::open(folder, setup)?;
        let expanded = folder.option::<bool>("expand_timesteps")?.unwrap_or(false);
        let conditioning = conditioning(&experts, vae.0.config.latent_channels, expanded)?;
        let vision = match experts.config().picture {
            Some(_) => Some(Vision::open(folder)?),
            None => None,
        };
        let text = TextEncoder::open(folder, 0)?;
        folder::agree(
            ("d_model of text_encoder", text.width()),
            ("text_dim of transformer", experts.config().text_width),
        )?;
        Ok(Pipeline {
            device: setup.device.clone(),
            residency: setup.residency,
            scheduler,
            timesteps: folder.option("timesteps")?,
            text,
            experts,
            vae,
            vision,
            conditioning,
        })
    }

    /// Frames per second at which this model's clips are meant to play.
    pub(crate) fn frame_rate(&self) -> f64 {
        match self.conditioning {
            Conditioning::FirstFrame => 24.0,
            Conditioning::TextOnly | Conditioning::Channels => 16.0,
        }
    }

    /// Puts other parameters in the place of the first expert's.
    ///
    /// # Errors
    /// They are not those of this transformer.
    pub(crate) fn replace_transformer(&mut self, store: Store) -> Result<()> {
        self.experts.replace_first(store)
    }

    /// Runs a request. Everything about it that can be wrong is found before the first network runs.
    ///
    /// # Errors
    /// The request does not fit the model, a network gave values that are not finite, a frame could
    /// not be kept, or the user interrupted.
    pub(crate) fn run(
        &mut self,
        request: &Request,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<Answer> {
        let job = self.check(request)?;
        frames.begin(job.course.samples, job.frames)?;
        let captions = match job.captions.clone() {
            Some(captions) => captions,
            None => self.encode(request, &job, progress)?,
        };
        self.release(|pipeline| pipeline.text.close());
        let condition = self.condition(&job, progress)?;
        self.release(|pipeline| {
            pipeline.vae.1.close();
            pipeline.vision.iter_mut().for_each(Vision::close);
        });
        let latents = self.latents(&job, &captions, &condition, progress)?;
        self.release(|pipeline| pipeline.experts.close());
        self.decode(request, &latents, progress, frames)?;
        self.release(|pipeline| pipeline.vae.1.close());
        Ok(Answer { latents: Latents::Clip(latents) })
    }

    fn release(&mut self, close: impl FnOnce(&mut Pipeline)) {
        if self.residency == Residency::OneAtATime {
            close(self);
        }
    }
}

/// How a picture enters, read off the channels; `expanded` is the folder's `expand_timesteps`.
fn conditioning(experts: &Experts, latent: usize, expanded: bool) -> Result<Conditioning> {
    let config = experts.config();
    folder::agree(("out_channels of transformer", config.out_channels), ("z_dim of vae", latent))?;
    let beside = 2 * latent + job::MASK_CHANNELS;
    match config.in_channels {
        channels if channels == latent && expanded => Ok(Conditioning::FirstFrame),
        channels if channels == latent => Ok(Conditioning::TextOnly),
        channels if channels == beside => Ok(Conditioning::Channels),
        channels => Err(Error::Request(format!(
            "in_channels of transformer is {channels}, but with z_dim {latent} of the vae it should \
             be {latent} (text to video) or {beside} (image to video)"
        ))),
    }
}
