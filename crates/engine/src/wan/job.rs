//! A request checked against the model: everything that can be wrong is wrong here.

use burn::tensor::Tensor;
use diffusion::{Branch, Guidance};

use super::{Conditioning, Pipeline};
use crate::captions::{self, Captions};
use crate::error::{Error, Result};
use crate::lattice::Lattice;
use crate::request::{Request, Sizing};
use crate::sampling::{self, Course};
use crate::source_image::SourceImage;
use crate::text::TextRules;
use crate::{sizes, tensors};

/// Denoising steps where none are asked for.
const STEPS: usize = 50;
/// Guidance where none is asked for.
const GUIDANCE: f64 = 5.0;
/// Height and width where none are asked for.
pub(crate) const SIZE: [usize; 2] = [480, 832];
/// Frames where none are asked for.
pub(crate) const FRAMES: usize = 81;
/// Channels beside the noise that say which frames are given: the frames of a latent frame.
pub(super) const MASK_CHANNELS: usize = 4;

/// A request that can be run.
pub(crate) struct Job {
    pub(super) frames: usize,
    /// Height and width in pixels.
    pub(super) size: [usize; 2],
    pub(super) course: Course,
    /// Of the first and of the second expert.
    pub(super) guidance: [Guidance; 2],
    pub(super) rules: TextRules,
    /// Embedded captions, if given.
    pub(super) captions: Option<Captions>,
    /// The pictures to begin and to end with.
    pub(super) image: Option<SourceImage>,
    pub(super) last_image: Option<SourceImage>,
    /// Clips per prompt.
    pub(super) count: usize,
}

impl Job {
    /// The guidance branches that any expert needs.
    pub(super) fn guided(&self) -> bool {
        self.guidance.iter().any(|guidance| guidance.branches().contains(&Branch::Unconditional))
    }
}

impl Pipeline {
    /// Checks a request and prepares what it needs.
    pub(crate) fn check(&self, request: &Request) -> Result<Job> {
        if request.sizing == Sizing::Binned || request.eta.is_some() {
            let reason = "--resolution-binning and --eta are for PixArt; leave them out for Wan";
            return Err(Error::Request(reason.to_owned()));
        }
        let (frames, size, lattice) = self.sizes(request)?;
        let guidance = self.guidance(request)?;
        let recorded = self.timesteps.as_deref();
        let solver =
            sampling::solver(request, recorded, (&self.scheduler, STEPS), lattice.tokens())?;
        let own = self.text.rules();
        let rules = TextRules { max_tokens: request.text_tokens(own.max_tokens)?, ..own };
        let branches = guidance.iter().max_by_key(|guidance| guidance.branches().len());
        let branches = branches.map_or(&[][..], Guidance::branches);
        let captions = match &request.prompt_embeds {
            Some(path) => {
                let width = self.experts.config().text_width;
                Some(captions::given(path, width, branches, &self.device)?)
            }
            None => None,
        };
        let prompts = captions.as_ref().map_or(request.prompts.len(), |given| given.prompts.len());
        let samples = request.samples(prompts)?;
        let noise = match &request.noise {
            Some(path) => Some(self.given_noise(path, samples, &lattice)?),
            None => None,
        };
        let [image, last_image] = self.images(request)?;
        let (count, seed) = (request.count, request.seed);
        let course = Course { solver, lattice, samples, seed, noise };
        Ok(Job { frames, size, course, guidance, rules, captions, image, last_image, count })
    }

    /// Frames, height and width, and the latents for them.
    fn sizes(&self, request: &Request) -> Result<(usize, [usize; 2], Lattice)> {
        let config = self.experts.config();
        let vae = &self.vae.0.config;
        let [temporal, spatial] = [vae.temporal_factor(), vae.spatial_factor()];
        let frames = request.frames.unwrap_or(FRAMES);
        sizes::check_frames(frames, temporal)?;
        let size = [request.height.unwrap_or(SIZE[0]), request.width.unwrap_or(SIZE[1])];
        sizes::check_length("height", size[0])?;
        sizes::check_length("width", size[1])?;
        let [_, rows, columns] = config.patch;
        sizes::check("height", size[0], spatial * rows)?;
        sizes::check("width", size[1], spatial * columns)?;
        let latent_frames = (frames - 1) / temporal + 1;
        if !latent_frames.is_multiple_of(config.patch[0]) {
            return Err(Error::Request(format!(
                "{frames} frames are {latent_frames} latent frames, which a patch of {} frames does not divide",
                config.patch[0]
            )));
        }
        let lattice = Lattice {
            channels: config.out_channels,
            size: [latent_frames, size[0] / spatial, size[1] / spatial],
            patch: config.patch,
        };
        Ok((frames, size, lattice))
    }

    fn guidance(&self, request: &Request) -> Result<[Guidance; 2]> {
        if request.second_guidance.is_some() && !self.experts.are_two() {
            let reason = "this model has one expert; leave --guidance-2 out";
            return Err(Error::Request(reason.to_owned()));
        }
        let first = request.guidance_or(GUIDANCE, self.timesteps.as_deref());
        let second = request.second_guidance.unwrap_or(first);
        Ok([Guidance::new(first)?, Guidance::new(second)?])
    }

    fn given_noise(
        &self,
        path: &std::path::Path,
        samples: usize,
        lattice: &Lattice,
    ) -> Result<Tensor<5>> {
        let [frames, height, width] = lattice.size;
        let want = [samples, lattice.channels, frames, height, width];
        let meaning = "clips, channels, frames, height and width of the latents";
        tensors::shaped(path, "noise", (want, meaning), &self.device)
    }

    /// Reads the pictures and checks that the model takes them.
    fn images(&self, request: &Request) -> Result<[Option<SourceImage>; 2]> {
        let refuse = |reason: &str| Err(Error::Request(reason.to_owned()));
        match (self.conditioning, &request.image, &request.last_image) {
            (Conditioning::TextOnly, Some(_), _) => {
                return refuse("this model makes clips from text alone; leave --image out");
            }
            (Conditioning::Channels, None, _) => {
                return refuse("this model makes clips from a picture; give one with --image");
            }
            (_, None, Some(_)) => return refuse("--last-image needs --image as well"),
            (Conditioning::FirstFrame, _, Some(_)) => {
                return refuse("this model takes a first picture only; leave --last-image out");
            }
            _ => {}
        }
        let read = |path: &Option<std::path::PathBuf>| match path {
            Some(path) => SourceImage::read(path).map(Some),
            None => Ok(None),
        };
        let pictures = [read(&request.image)?, read(&request.last_image)?];
        if let (Some(config), Some(vision)) = (self.experts.config().picture, &self.vision) {
            let given = vision.tokens() * pictures.iter().flatten().count();
            if let Some(want) = config.tokens.filter(|want| *want != given) {
                return Err(Error::Request(format!(
                    "this model looks at {want} image tokens, but the pictures give {given}: it \
                     begins with --image and ends with --last-image"
                )));
            }
        }
        Ok(pictures)
    }
}
