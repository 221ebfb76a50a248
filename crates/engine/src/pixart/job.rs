//! A request checked against the model: everything that can be wrong is wrong here.

use std::path::Path;

use burn::tensor::Tensor;
use diffusion::{Guidance, Solver};
use models::vae::kl::Tiling;
use nn::Context;

use super::Pipeline;
use crate::error::{Error, Result};
use crate::request::{Decoding, Request, Sizing};
use crate::{sizes, tensors};

/// Text tokens of PixArt-alpha.
const MAX_TOKENS: usize = 120;

/// Text tokens at the most: the bias of T5's scores grows with their square.
const MOST_TOKENS: usize = 4096;

/// A request that can be run.
pub(super) struct Job {
    /// Height and width to generate.
    pub(super) size: [usize; 2],
    /// Height and width to deliver.
    pub(super) asked: [usize; 2],
    /// Rows and columns of patches.
    pub(super) grid: [usize; 2],
    /// Height and width of the latents.
    pub(super) latent: [usize; 2],
    pub(super) solver: Solver,
    pub(super) guidance: Guidance,
    pub(super) max_tokens: usize,
    /// Initial latents `[samples, C, h, w]`, if given.
    pub(super) noise: Option<Tensor<4>>,
    /// Embedded captions, if given.
    pub(super) captions: Option<Captions>,
    /// Pictures in all.
    pub(super) samples: usize,
    /// Pictures per prompt.
    pub(super) count: usize,
    pub(super) seed: u64,
}

/// Embedded captions: `[1, L, D]` each, with the mask `[1, L]` of tokens that count.
#[derive(Clone)]
pub(super) struct Captions {
    pub(super) prompts: Vec<Context>,
    pub(super) negatives: Vec<Context>,
}

impl Pipeline {
    /// Checks a request and prepares what it needs.
    pub(super) fn check(&self, request: &Request) -> Result<Job> {
        let config = &self.transformer.0.config;
        let factor = self.vae.0.factor();
        let own = config.sample_size * factor;
        let asked = [request.height.unwrap_or(own), request.width.unwrap_or(own)];
        sizes::check_length("height", asked[0])?;
        sizes::check_length("width", asked[1])?;
        let size = match request.sizing {
            Sizing::Exact => asked,
            Sizing::Binned => sizes::binned(asked, config.sample_size)?,
        };
        sizes::check("height", size[0], factor * config.patch)?;
        sizes::check("width", size[1], factor * config.patch)?;
        let latent = size.map(|side| side / factor);
        let grid = latent.map(|side| side / config.patch);

        let guidance = Guidance::new(request.guidance)?;
        let scheduler = match request.eta {
            Some(eta) => self.scheduler.clone().with_eta(eta)?,
            None => self.scheduler.clone(),
        };
        let solver = scheduler.solver(request.steps, grid[0] * grid[1])?;
        let captions = match &request.prompt_embeds {
            Some(path) => Some(self.given_captions(path, &guidance)?),
            None => None,
        };
        let prompts = captions.as_ref().map_or(request.prompts.len(), |given| given.prompts.len());
        let samples = request.pictures(prompts)?;
        let noise = match &request.noise {
            Some(path) => {
                Some(self.given_noise(path, [samples, config.in_channels, latent[0], latent[1]])?)
            }
            None => None,
        };
        let max_tokens = request.max_tokens.unwrap_or(MAX_TOKENS);
        if !(1..=MOST_TOKENS).contains(&max_tokens) {
            let reason = format!("--max-tokens is {max_tokens}; choose 1 to {MOST_TOKENS}");
            return Err(Error::Request(reason));
        }
        if request.decoding == Decoding::Tiled {
            Tiling::of(&self.vae.0.config).check(factor)?;
        }
        let (count, seed) = (request.count, request.seed);
        Ok(Job {
            size,
            asked,
            grid,
            latent,
            solver,
            guidance,
            max_tokens,
            noise,
            captions,
            samples,
            count,
            seed,
        })
    }

    fn given_noise(&self, path: &Path, want: [usize; 4]) -> Result<Tensor<4>> {
        let noise = tensors::require::<4>(path, "noise", &self.device)?;
        if noise.dims() != want {
            let reason = format!(
                "`noise` has shape {:?}, but this request needs {want:?} (pictures, channels, height and width of the latents)",
                noise.dims()
            );
            return Err(Error::Tensor { path: path.to_owned(), reason });
        }
        Ok(noise)
    }

    fn given_captions(&self, path: &Path, guidance: &Guidance) -> Result<Captions> {
        let prompts = self.given_contexts(path, ["prompt_embeds", "prompt_attention_mask"])?;
        if guidance.branches().len() == 1 {
            return Ok(Captions { prompts, negatives: Vec::new() });
        }
        let keys = ["negative_prompt_embeds", "negative_prompt_attention_mask"];
        let mut negatives = self.given_contexts(path, keys)?;
        if negatives.len() == 1 {
            negatives = vec![negatives[0].clone(); prompts.len()];
        }
        if negatives.len() != prompts.len() {
            let reason = format!(
                "`negative_prompt_embeds` has {} captions, but `prompt_embeds` has {}; give one, or as many",
                negatives.len(),
                prompts.len()
            );
            return Err(Error::Tensor { path: path.to_owned(), reason });
        }
        Ok(Captions { prompts, negatives })
    }

    fn given_contexts(&self, path: &Path, [embeds, mask]: [&str; 2]) -> Result<Vec<Context>> {
        let tokens = tensors::require::<3>(path, embeds, &self.device)?;
        let mask_values = tensors::read::<2>(path, mask, &self.device)?;
        let [batch, length, width] = tokens.dims();
        let wrong = |reason| Err(Error::Tensor { path: path.to_owned(), reason });
        let want = self.transformer.0.config.caption_width;
        if width != want {
            return wrong(format!(
                "`{embeds}` has width {width}, but the transformer takes {want}"
            ));
        }
        if length == 0 {
            return wrong(format!("`{embeds}` has no tokens; give 1 or more"));
        }
        if let Some(mask_values) = &mask_values
            && mask_values.dims() != [batch, length]
        {
            let got = mask_values.dims();
            return wrong(format!(
                "`{mask}` has shape {got:?}, but `{embeds}` asks for {:?}",
                [batch, length]
            ));
        }
        let context = |sample: usize| Context {
            tokens: tokens.clone().slice_dim(0, sample..sample + 1),
            mask: mask_values.clone().map(|mask| mask.slice_dim(0, sample..sample + 1)),
        };
        Ok((0..batch).map(context).collect())
    }
}
