//! PixArt-alpha as three stages: Encode, Denoise, Decode.

mod job;
mod stages;

use std::path::Path;

use burn::tensor::{Device, Tensor};
use diffusion::SchedulerConfig;
use models::dit::pixart::{Pixart, PixartConfig};
use models::text::t5::{T5Config, T5Encoder};
use models::vae::kl::{AutoencoderKl, KlConfig};
use nn::{Dit, Precision};

use crate::component::Component;
use crate::error::{Error, Result};
use crate::folder::ModelFolder;
use crate::picture::Picture;
use crate::progress::Progress;
use crate::request::Request;
use crate::tokenizer::Tokenizer;

/// How long components stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// All of them, from first use on.
    Kept,
    /// One at a time.
    OneAtATime,
}

/// A PixArt-alpha folder, checked and ready.
pub struct Pipeline {
    device: Device,
    residency: Residency,
    scheduler: SchedulerConfig,
    tokenizer: Tokenizer,
    text: (T5Encoder, Component),
    transformer: (Pixart, Component),
    vae: (AutoencoderKl, Component),
}

/// What a request gave.
pub struct Answer {
    /// One per prompt and count, prompts first.
    pub pictures: Vec<Picture>,
    /// The final latents `[pictures, C, h, w]` in the model's own scaling.
    pub latents: Tensor<4>,
    /// Height and width the latents stand for.
    pub size: [usize; 2],
}

impl Pipeline {
    /// Opens a folder and checks every component against its config. Weights stay on disk.
    ///
    /// # Errors
    /// The folder is not a PixArt-alpha pipeline, or a part of it is missing, damaged or unsupported.
    pub fn open(
        path: &Path,
        precision: Precision,
        residency: Residency,
        device: &Device,
    ) -> Result<Pipeline> {
        let folder = ModelFolder::open(path)?;
        if folder.class() != "PixArtAlphaPipeline" {
            return Err(Error::Pipeline {
                path: path.join("model_index.json"),
                class: folder.class().to_owned(),
                supported: "PixArtAlphaPipeline",
            });
        }
        let scheduler = folder.text("scheduler", "scheduler_config.json")?;
        let text =
            T5Encoder::new(T5Config::from_json(&folder.text("text_encoder", "config.json")?)?);
        let config = PixartConfig::from_json(&folder.text("transformer", "config.json")?)?;
        let transformer = Pixart { config };
        let vae = AutoencoderKl::new(KlConfig::from_json(&folder.text("vae", "config.json")?)?);
        let text_weights = Component::new(
            folder.weights("text_encoder")?,
            precision,
            &T5Encoder::IGNORED,
            |weights| text.declare(weights),
        )?;
        let transformer_weights = Component::new(
            folder.weights("transformer")?,
            precision,
            &["pos_embed.pos_embed"],
            |weights| transformer.declare(weights),
        )?;
        // Pixels show what bf16 does to a VAE, and its weights are few.
        let vae_weights =
            Component::new(folder.weights("vae")?, Precision::Stored, &[], |weights| {
                vae.declare(weights)
            })?;
        let pipeline = Pipeline {
            device: device.clone(),
            residency,
            scheduler: SchedulerConfig::from_json(&scheduler)?,
            tokenizer: Tokenizer::open(&folder.component("tokenizer")?)?,
            text: (text, text_weights),
            transformer: (transformer, transformer_weights),
            vae: (vae, vae_weights),
        };
        pipeline.agree()?;
        Ok(pipeline)
    }

    /// Checks that the components fit each other.
    fn agree(&self) -> Result<()> {
        let transformer = &self.transformer.0.config;
        let (text, vae) = (&self.text.0.config, &self.vae.0.config);
        let clash = |left: &str, a: usize, right: &str, b: usize| {
            Err(Error::Request(format!(
                "{left} is {a}, but {right} is {b}; the folder mixes parts of different models"
            )))
        };
        if text.width != transformer.caption_width {
            let left = "d_model of text_encoder";
            return clash(
                left,
                text.width,
                "caption_channels of transformer",
                transformer.caption_width,
            );
        }
        if vae.latent_channels != transformer.in_channels {
            let left = "latent_channels of vae";
            return clash(
                left,
                vae.latent_channels,
                "in_channels of transformer",
                transformer.in_channels,
            );
        }
        match vae.out_channels {
            3 => Ok(()),
            channels => Err(Error::Request(format!(
                "out_channels of vae is {channels}, but a picture has 3"
            ))),
        }
    }

    /// Runs a request. Everything about it that can be wrong is found before the first network runs.
    ///
    /// # Errors
    /// The request does not fit the model, a network gave values that are not finite, or the user
    /// interrupted.
    pub fn run(&mut self, request: &Request, progress: &mut dyn Progress) -> Result<Answer> {
        let job = self.check(request)?;
        let captions = match job.captions.clone() {
            Some(captions) => captions,
            None => self.encode(request, &job, progress)?,
        };
        self.release(|pipeline| pipeline.text.1.close());
        let latents = self.latents(&job, &captions, progress)?;
        self.release(|pipeline| pipeline.transformer.1.close());
        let pictures = self.decode(request, &job, &latents, progress)?;
        self.release(|pipeline| pipeline.vae.1.close());
        Ok(Answer { pictures, latents, size: job.size })
    }

    fn release(&mut self, close: impl FnOnce(&mut Pipeline)) {
        if self.residency == Residency::OneAtATime {
            close(self);
        }
    }
}
