//! A request checked against the model: everything that can be wrong is wrong here.

use diffusion::Guidance;
use models::vae::kl::Tiling;

use super::Pipeline;
use crate::captions::{self, Captions};
use crate::error::Result;
use crate::lattice::Lattice;
use crate::request::{CaptionStyle, Decoding, Request, Sizing};
use crate::sampling::{self, Course};
use crate::text::{Preparation, TextRules};
use crate::{sizes, tensors};

/// Denoising steps where none are asked for.
const STEPS: usize = 20;
/// Guidance where none is asked for.
const GUIDANCE: f64 = 4.5;

/// A request that can be run.
pub(crate) struct Job {
    /// Height and width to generate.
    pub(super) size: [usize; 2],
    /// Height and width to deliver.
    pub(super) asked: [usize; 2],
    pub(super) course: Course,
    pub(super) guidance: Guidance,
    pub(super) rules: TextRules,
    /// Embedded captions, if given.
    pub(super) captions: Option<Captions>,
    /// Pictures per prompt.
    pub(super) count: usize,
}

impl Pipeline {
    /// Checks a request and prepares what it needs.
    pub(crate) fn check(&self, request: &Request) -> Result<Job> {
        request.refuse_video("PixArt-alpha makes pictures")?;
        let (size, asked, lattice) = self.sizes(request)?;
        let guidance = Guidance::new(request.guidance_or(GUIDANCE, self.timesteps.as_deref()))?;
        let scheduler = match request.eta {
            Some(eta) => self.scheduler.clone().with_eta(eta)?,
            None => self.scheduler.clone(),
        };
        let recorded = self.timesteps.as_deref();
        let solver = sampling::solver(request, recorded, (&scheduler, STEPS), lattice.tokens())?;
        let width = self.transformer.0.config.caption_width;
        let captions = match &request.prompt_embeds {
            Some(path) => Some(captions::given(path, width, guidance.branches(), &self.device)?),
            None => None,
        };
        let prompts = captions.as_ref().map_or(request.prompts.len(), |given| given.prompts.len());
        let samples = request.samples(prompts)?;
        let noise = match &request.noise {
            Some(path) => {
                let [_, height, width] = lattice.size;
                let want = [samples, lattice.channels, height, width];
                let meaning = "pictures, channels, height and width of the latents";
                let noise = tensors::shaped(path, "noise", (want, meaning), &self.device)?;
                Some(noise.unsqueeze_dim::<5>(2))
            }
            None => None,
        };
        let own = self.text.rules();
        let preparation = match request.clean_caption {
            CaptionStyle::Plain => own.preparation,
            CaptionStyle::Cleaned => Preparation::Cleaned,
        };
        let max_tokens = request.text_tokens(own.max_tokens)?;
        let rules = TextRules { preparation, max_tokens, ..own };
        if request.decoding == Decoding::Tiled {
            Tiling::of(&self.vae.0.config).check(self.vae.0.factor())?;
        }
        let (count, seed) = (request.count, request.seed);
        let course = Course { solver, lattice, samples, seed, noise };
        Ok(Job { size, asked, course, guidance, rules, captions, count })
    }

    /// The size to generate, the size to deliver, and the latents of the former.
    fn sizes(&self, request: &Request) -> Result<([usize; 2], [usize; 2], Lattice)> {
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
        let lattice = Lattice {
            channels: config.in_channels,
            size: [1, size[0] / factor, size[1] / factor],
            patch: [1, config.patch, config.patch],
        };
        Ok((size, asked, lattice))
    }
}
