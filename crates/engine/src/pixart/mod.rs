//! PixArt-alpha as three stages: Encode, Denoise, Decode.

mod job;
mod stages;
mod vae;

use burn::tensor::Device;
use diffusion::SchedulerConfig;
use models::dit::pixart::{Pixart, PixartConfig};
use nn::{Dit, Store};

pub(crate) use self::vae::{Vae, encode_picture, open_vae};
use crate::component::{Component, Holding, Loras};
use crate::error::{Error, Result};
use crate::folder::{self, ModelFolder};
use crate::lora::Naming;
use crate::pipeline::{Answer, Frames, Latents, Residency, Setup};
use crate::progress::Progress;
use crate::request::Request;
use crate::text::{Padding, Preparation, TextEncoder, TextRules};

/// A PixArt-alpha folder, checked and ready.
pub(crate) struct Pipeline {
    device: Device,
    residency: Residency,
    scheduler: SchedulerConfig,
    /// The timesteps of a distilled model, if the folder records them.
    timesteps: Option<Vec<f64>>,
    text: TextEncoder,
    transformer: (Pixart, Component),
    vae: Vae,
}

impl Pipeline {
    /// The classes that folders of this family have.
    pub(crate) const CLASSES: [&str; 1] = ["PixArtAlphaPipeline"];

    /// The rules of its text encoders.
    pub(crate) const TEXT: [TextRules; 1] =
        [TextRules { preparation: Preparation::Plain, max_tokens: 120, padding: Padding::Masked }];

    /// Checks every component against its config. Weights stay on disk.
    ///
    /// # Errors
    /// A part of the folder is missing, damaged or unsupported.
    pub(crate) fn open(folder: &ModelFolder, setup: &Setup) -> Result<Pipeline> {
        let scheduler = folder.text("scheduler", "scheduler_config.json")?;
        let text = TextEncoder::open(folder, 0)?;
        let config = PixartConfig::from_json(&folder.text("transformer", "config.json")?)?;
        let transformer = Pixart { config };
        let transformer_weights = Component::new(
            folder.weights("transformer")?,
            Holding { precision: setup.precision, kept: &Pixart::KEPT },
            &["pos_embed.pos_embed"],
            |weights| transformer.declare(weights),
        )?
        .adapted(Loras { sources: setup.loras.clone(), naming: Naming::Diffusers })?;
        if !setup.second_loras.is_empty() {
            let reason =
                "--lora-2 is for models with two experts; PixArt-alpha has one transformer";
            return Err(Error::Request(reason.to_owned()));
        }
        let pipeline = Pipeline {
            device: setup.device.clone(),
            residency: setup.residency,
            scheduler: SchedulerConfig::from_json(&scheduler)?,
            timesteps: folder.option("timesteps")?,
            text,
            transformer: (transformer, transformer_weights),
            vae: open_vae(folder)?,
        };
        pipeline.agree()?;
        Ok(pipeline)
    }

    /// Checks that the components fit each other.
    fn agree(&self) -> Result<()> {
        let transformer = &self.transformer.0.config;
        folder::agree(
            ("d_model of text_encoder", self.text.width()),
            ("caption_channels of transformer", transformer.caption_width),
        )?;
        folder::agree(
            ("latent_channels of vae", self.vae.0.config.latent_channels),
            ("in_channels of transformer", transformer.in_channels),
        )?;
        match self.vae.0.config.out_channels {
            3 => Ok(()),
            channels => Err(Error::Request(format!(
                "out_channels of vae is {channels}, but a picture has 3"
            ))),
        }
    }

    /// Puts other parameters in the place of the transformer's.
    ///
    /// # Errors
    /// They are not those of this transformer.
    pub(crate) fn replace_transformer(&mut self, store: Store) -> Result<()> {
        let (model, component) = &mut self.transformer;
        Ok(component.replace(store, |weights| model.declare(weights))?)
    }

    /// Runs a request. Everything about it that can be wrong is found before the first network runs.
    ///
    /// # Errors
    /// The request does not fit the model, a network gave values that are not finite, or the user
    /// interrupted.
    pub(crate) fn run(
        &mut self,
        request: &Request,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<Answer> {
        let job = self.check(request)?;
        frames.begin(job.course.samples, 1)?;
        let captions = match job.captions.clone() {
            Some(captions) => captions,
            None => self.encode(request, &job, progress)?,
        };
        self.release(|pipeline| pipeline.text.close());
        let latents = self.latents(&job, &captions, progress)?;
        self.release(|pipeline| pipeline.transformer.1.close());
        self.decode(request, &job, &latents, (progress, frames))?;
        self.release(|pipeline| pipeline.vae.1.close());
        Ok(Answer { latents: Latents::Picture(latents) })
    }

    fn release(&mut self, close: impl FnOnce(&mut Pipeline)) {
        if self.residency == Residency::OneAtATime {
            close(self);
        }
    }
}
