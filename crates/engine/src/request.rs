//! What a user asks for.

use std::path::PathBuf;

use crate::error::{Error, Result};

/// Samples of one run at the most; the latents of all of them are held until the end.
const MOST_SAMPLES: usize = 10_000;

/// Text tokens at the most: the bias of T5's scores grows with their square.
pub(crate) const MOST_TOKENS: usize = 4096;

/// A request as it was written; a pipeline checks it against its model.
#[derive(Clone, Debug)]
pub struct Request {
    /// One picture (or `count` pictures) per prompt.
    pub prompts: Vec<String>,
    /// What the pictures should not be.
    pub negative: String,
    /// Denoising steps; the model's own if not given.
    pub steps: Option<usize>,
    /// Guidance scale; at 1 and below the negative prompt plays no part. The model's own if not
    /// given.
    pub guidance: Option<f64>,
    /// Guidance scale of the second expert, for models that have two; the first one's if not given.
    pub second_guidance: Option<f64>,
    /// Height in pixels; the model's own if not given.
    pub height: Option<usize>,
    /// Width in pixels; the model's own if not given.
    pub width: Option<usize>,
    /// Frames of a clip; the model's own if not given.
    pub frames: Option<usize>,
    /// The picture a clip begins with, for models that take one.
    pub image: Option<PathBuf>,
    /// The picture a clip ends with, for models that take one.
    pub last_image: Option<PathBuf>,
    /// The seed of all noise.
    pub seed: u64,
    /// Pictures per prompt.
    pub count: usize,
    /// Text tokens at the most; the model's own if not given.
    pub max_tokens: Option<usize>,
    /// How much noise DDIM puts back.
    pub eta: Option<f64>,
    /// How steps are taken.
    pub solving: Solving,
    /// Initial latents instead of noise from the seed: a safetensors file with key `noise`.
    pub noise: Option<PathBuf>,
    /// Text embeddings instead of prompts.
    pub prompt_embeds: Option<PathBuf>,
    /// Repair captions scraped from the web.
    pub clean_caption: CaptionStyle,
    /// Generate at the nearest size the model was trained on and resize.
    pub sizing: Sizing,
    /// Decode in tiles.
    pub decoding: Decoding,
}

impl Request {
    /// How many samples it makes of `prompts` prompts.
    ///
    /// # Errors
    /// None, or more than a run takes.
    pub fn samples(&self, prompts: usize) -> Result<usize> {
        let count = self.count;
        if prompts == 0 || count == 0 {
            let reason = "there is nothing to generate; give a --prompt and a --count of 1 or more";
            return Err(Error::Request(reason.to_owned()));
        }
        let samples = prompts.checked_mul(count).filter(|samples| *samples <= MOST_SAMPLES);
        samples.ok_or_else(|| {
            Error::Request(format!(
                "--count {count} for {prompts} prompt(s) is more than the {MOST_SAMPLES} samples \
                 of one run; lower it or run several times"
            ))
        })
    }

    /// The text tokens to use, where the model has `own`.
    ///
    /// # Errors
    /// None or too many were asked for.
    pub(crate) fn text_tokens(&self, own: usize) -> Result<usize> {
        let tokens = self.max_tokens.unwrap_or(own);
        if (1..=MOST_TOKENS).contains(&tokens) {
            return Ok(tokens);
        }
        Err(Error::Request(format!("--max-tokens is {tokens}; choose 1 to {MOST_TOKENS}")))
    }

    /// The guidance asked for, or else `usual`; a student of few steps has its teacher's guidance in
    /// itself, so that it is run without.
    pub(crate) fn guidance_or(&self, usual: f64, recorded: Option<&[f64]>) -> f64 {
        let few = self.few_timesteps(recorded).is_some();
        self.guidance.unwrap_or(if few { 1.0 } else { usual })
    }

    /// The timesteps of the few-step solver, if it is to be used: those asked for, or those that the
    /// folder of a distilled model has `recorded`, unless a number of steps is asked for.
    pub(crate) fn few_timesteps<'a>(&'a self, recorded: Option<&'a [f64]>) -> Option<&'a [f64]> {
        match &self.solving {
            Solving::Recorded => recorded.filter(|_| self.steps.is_none()),
            Solving::Scheduler => None,
            Solving::Renoise(timesteps) => Some(timesteps),
        }
    }

    /// Refuses whatever is not about text; `model` says what this one makes.
    pub(crate) fn refuse_beyond_text(&self, model: &str) -> Result<()> {
        let asked = [
            ("--image", self.image.is_some()),
            ("--last-image", self.last_image.is_some()),
            ("--guidance-2", self.second_guidance.is_some()),
            ("--prompt-embeds", self.prompt_embeds.is_some()),
            ("--eta", self.eta.is_some()),
            ("--max-tokens", self.max_tokens.is_some()),
            ("--resolution-binning", self.sizing == Sizing::Binned),
            ("--tile-vae", self.decoding == Decoding::Tiled),
        ];
        match asked.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Error::Request(format!("{model}; leave {option} out"))),
            None => Ok(()),
        }
    }

    /// Refuses what only models of clips understand; `model` says what this one makes.
    pub(crate) fn refuse_video(&self, model: &str) -> Result<()> {
        let asked = [
            ("--frames", self.frames.is_some_and(|frames| frames != 1)),
            ("--image", self.image.is_some()),
            ("--last-image", self.last_image.is_some()),
            ("--guidance-2", self.second_guidance.is_some()),
        ];
        match asked.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Error::Request(format!("{model}; leave {option} out"))),
            None => Ok(()),
        }
    }
}

/// What happens to a caption before it is cut into tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptionStyle {
    /// Lower case, without surrounding space.
    Plain,
    /// Also cleaned of addresses, markup and the like.
    Cleaned,
}

/// At which size a picture is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizing {
    /// At the size asked for.
    Exact,
    /// At the nearest size of the training, then resized and cropped.
    Binned,
}

/// How steps are taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Solving {
    /// As the folder says: by its scheduler or, unless a number of steps is asked for, at the timesteps
    /// that it records for a distilled model.
    #[default]
    Recorded,
    /// By the folder's scheduler, whatever else it records.
    Scheduler,
    /// At falling timesteps clean latents are predicted and noised again: for distilled models.
    Renoise(Vec<f64>),
}

/// How latents become pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// All at once.
    Whole,
    /// In tiles that overlap: less memory, slightly different pixels.
    Tiled,
}
