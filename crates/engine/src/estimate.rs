//! What a request will take, about: operations of each stage, and memory at its most.
//!
//! What the transformer takes is what [`crate::profile`] finds, the same numbers that layouts are weighed by. Of
//! the rest, counted from the shapes of the weights before any of them is read, a matrix is multiplied once for
//! each token, a convolution once for each position of the feature map it stands on. What is left out
//! (norms, activations, the encoder of what is given) is small beside what is counted.

use families::{Condition, EntersAs};
use folder::Weight;
use nn::Precision;
use parallel::Workload;
use parallel::cost::Run;

use crate::job::Job;
use crate::pipeline::{Pipeline, Residency};
use crate::request::{Decoding, Request};
use crate::stages::samples_together;

/// Bytes of a number that is computed.
const F32: u64 = 4;

/// What the program itself needs, with its threads and the allocator's own.
const PROGRAM: u64 = 46 << 20;

/// One part in so many of what is computed is lost to the allocator.
const LOST: u64 = 10;

/// Feature maps that a VAE's decoder has at once where they are largest: what goes into a block of it,
/// what it is normalised to, what comes out, and what is added.
const FEATURE_MAPS: u64 = 4;

/// The side of a tile in pixels.
const TILE: usize = 256;

/// What a request will take.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// Its stages with their floating-point operations.
    pub stages: Vec<StageWork>,
    /// Memory at its most, in bytes.
    pub bytes: u64,
    /// How much of that is mapped from files: the system can do without it, if slowly.
    pub mapped: u64,
}

/// The work of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageWork {
    /// The stage, as progress calls it.
    pub stage: &'static str,
    /// Floating-point operations.
    pub operations: f64,
}

impl Estimate {
    /// The same after an earlier run over the same prompts, whose clips are not decoded.
    pub(crate) fn after(mut self, earlier: Estimate) -> Estimate {
        for own in self.stages.iter_mut().filter(|own| matches!(own.stage, "condition" | "denoise"))
        {
            let more = earlier.stages.iter().filter(|more| more.stage == own.stage);
            own.operations += more.map(|more| more.operations).sum::<f64>();
        }
        Estimate { bytes: self.bytes.max(earlier.bytes), ..self }
    }

    /// The operations of all stages.
    pub fn operations(&self) -> f64 {
        self.stages.iter().map(|stage| stage.operations).sum()
    }
}

impl Pipeline {
    /// What a job will take, whose steps are `run`.
    pub(crate) fn estimate(
        &self,
        request: &Request,
        job: &Job,
        (run, workload): (&Run, &Workload),
    ) -> Estimate {
        let decode = if job.only_audio { 0.0 } else { self.decoding(job) };
        let enlarge =
            self.upsampler.as_ref().zip(job.first.as_ref()).map_or(0.0, |(own, first)| {
                let places = [&first.latents, &job.latents].map(|sides| sides.iter().product());
                own.operations(places) * job.samples as f64
            });
        let stages = [
            ("encode", if job.captions.is_some() { 0.0 } else { self.encoding(request, job) }),
            ("condition", self.conditioning(job, decode)),
            ("denoise", run.operations() * job.samples as f64),
            ("enlarge", enlarge),
            ("decode", decode * job.samples as f64),
        ];
        let stages = stages.map(|(stage, operations)| StageWork { stage, operations });
        let tokens: usize = workload.tokens.into_iter().sum();
        let together = samples_together(tokens).min(job.samples) as u64;
        let denoise = together * F32 * run.whole().activations() as u64;
        let computed = denoise.max(self.decoded_bytes(request, job));
        let (weights, mapped) = self.weight_bytes();
        let bytes = PROGRAM + weights + computed + computed / LOST;
        Estimate { stages: stages.to_vec(), bytes, mapped }
    }

    /// Operations of embedding all prompts.
    fn encoding(&self, request: &Request, job: &Job) -> f64 {
        let Some(rules) = job.rules else { return 0.0 };
        // The table of words is looked up, not multiplied.
        let all = self.text.weights();
        let is_table = |own: &&Weight| own.name.contains("embed") || own.name.contains("shared");
        let weights: f64 = all
            .iter()
            .filter(|own| !is_table(own))
            .filter_map(Weight::matrix)
            .map(|(rows, columns)| (rows * columns) as f64)
            .sum();
        let asked = job.asked();
        let texts = request.prompts.len() + usize::from(asked.sampler.is_guided(&asked.tracks));
        2.0 * weights * rules.max_tokens as f64 * texts as f64
    }

    /// Operations of encoding what is given, for all of it: about half of what decoding as many frames
    /// takes.
    fn conditioning(&self, job: &Job, decode: f64) -> f64 {
        let whole =
            self.description.conditions.enters(Condition::Image) == Some(EntersAs::Channels);
        let shares = job.given.iter().map(|given| match whole {
            true => f64::from(u8::from(given.image.is_some())),
            false => given.latent_frames(&self.description) as f64 / job.latents[0] as f64,
        });
        0.5 * decode * shares.sum::<f64>()
    }

    /// Operations of decoding one sample: a weight of the decoder stands for a product at each position of
    /// its feature map, which doubles its sides from one level to the next.
    fn decoding(&self, job: &Job) -> f64 {
        let factors = self.description.geometry.factors;
        let positions = job.latents.iter().product::<usize>() as f64;
        let pixels = job.size.iter().product::<usize>() as f64;
        let weights = self.vae.weights().iter().filter(|own| own.name.starts_with("decoder."));
        let work = weights.filter(|own| own.shape.len() > 2).map(|own| {
            let elements = own.shape.iter().product::<usize>() as f64;
            let level = own.name.strip_prefix("decoder.up_blocks.").and_then(|rest| {
                let (level, rest) = rest.split_once('.')?;
                Some(level.parse::<i32>().ok()? + i32::from(rest.starts_with("upsampler")))
            });
            let grown = level.unwrap_or(0);
            let times = f64::from(2_i32.pow(grown.clamp(0, 16) as u32)).min(factors[0] as f64);
            let at = match own.name.starts_with("decoder.conv_out") {
                true => pixels,
                false => (positions * 4_f64.powi(grown) * times).min(pixels),
            };
            2.0 * elements * at
        });
        work.sum()
    }

    /// Bytes of the feature maps where the decoder is largest.
    pub(crate) fn decoded_bytes(&self, request: &Request, job: &Job) -> u64 {
        let out = self.vae.weights().iter().find(|own| own.name == "decoder.conv_out.weight");
        let channels = out.and_then(|own| own.shape.get(1)).map_or(0, |channels| *channels as u64);
        let [frames, height, width] = job.size;
        let group = self.description.geometry.factors[0].min(frames) as u64;
        let side = |side: usize| match request.decoding {
            Decoding::Whole => side as u64,
            Decoding::Tiled => side.min(TILE) as u64,
        };
        channels * group * side(height) * side(width) * F32 * FEATURE_MAPS
    }

    /// Bytes of the weights that are in memory at once, and how many of them are mapped.
    pub(crate) fn weight_bytes(&self) -> (u64, u64) {
        let stored = |weights: &[Weight]| {
            let bytes = weights.iter().map(|own| own.bytes).sum::<u64>();
            (bytes, bytes)
        };
        let rounded = |weights: &[Weight]| match self.setup.precision {
            Precision::Stored => stored(weights),
            Precision::Bf16 => (weights.iter().map(|own| own.bytes.min(own.rounded())).sum(), 0),
        };
        let experts = self.transformers.iter().map(|own| rounded(own.weights()));
        let vision = self.vision.as_ref().map(|own| stored(own.weights()));
        let upsampler = self.upsampler.as_ref().map(|own| stored(own.weights()));
        let others = [
            stored(&self.text.weights()),
            stored(self.vae.weights()),
            stored(&self.sound.weights()),
        ];
        let all = experts.chain(vision).chain(upsampler).chain(others);
        match self.setup.residency {
            Residency::Kept => all.fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1)),
            Residency::OneAtATime => all.max().unwrap_or_default(),
        }
    }
}
