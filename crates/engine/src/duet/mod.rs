//! Duet, the shapes world's own family, as three stages: Encode, Denoise, Decode.
//!
//! There is neither a text encoder nor a VAE: words have vectors of their own, and blocks of pixels
//! are the latents. So a folder is small, and one that was trained in minutes is used like any other.

use std::path::Path;

use burn::tensor::{Device, Tensor};
use data::media::Frame;
use data::world::{SpaceToDepth, Words};
use diffusion::{Guidance, Part, Process, Scene, SchedulerConfig, Track};
use models::dit::duet::{Duet, DuetConfig, DuetPrediction};
use nn::{Context, Dit, Plain, Store, Weights, unpatchify};

use crate::component::{Component, Holding, Loras};
use crate::error::{Error, Result};
use crate::finite;
use crate::folder::{self, ModelFolder};
use crate::lora::Naming;
use crate::pipeline::{Answer, Frames, Latents, Residency, Setup};
use crate::progress::{Progress, Silent};
use crate::request::Request;
use crate::scene::{Batch, SceneSampler};

/// Denoising steps where none are asked for.
const STEPS: usize = 16;
/// Guidance where none is asked for.
const GUIDANCE: f64 = 2.0;
/// Frames, height and width where none are asked for.
const SIZE: [usize; 3] = [8, 32, 32];
/// Samples that share a forward pass; no sample's result depends on the others.
const BATCH: usize = 16;

/// The scheduler of a model that has no folder yet: what is written when it gets one.
pub const DUET_SCHEDULER: &str =
    r#"{"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0}"#;

/// What a network of this family predicts, as a process.
pub fn duet_process(config: &DuetConfig) -> Process {
    match config.prediction {
        DuetPrediction::Clean => Process::FlowClean,
        DuetPrediction::Velocity => Process::Flow,
    }
}

/// A Duet folder, checked and ready.
pub(crate) struct Pipeline {
    device: Device,
    residency: Residency,
    scheduler: SchedulerConfig,
    /// The timesteps of a distilled model, if the folder records them.
    timesteps: Option<Vec<f64>>,
    words: Words,
    codec: SpaceToDepth,
    frame_rate: f64,
    transformer: (Duet, Component),
}

/// A request that can be run.
pub(crate) struct Job {
    sampler: SceneSampler,
    /// Frames, rows and columns of latents.
    grid: [usize; 3],
    size: [usize; 3],
    /// The words of every sample, `[1, L, D]`.
    texts: Vec<Tensor<3>>,
    null: Tensor<3>,
    noise: Option<Tensor<5>>,
    seed: u64,
}

impl Pipeline {
    /// The classes that folders of this family have.
    pub(crate) const CLASSES: [&str; 1] = ["DuetPipeline"];

    /// Checks every component against its config. Weights stay on disk.
    ///
    /// # Errors
    /// A part of the folder is missing, damaged or unsupported.
    pub(crate) fn open(folder: &ModelFolder, setup: &Setup) -> Result<Pipeline> {
        let scheduler = folder.text("scheduler", "scheduler_config.json")?;
        let transformer =
            Duet { config: DuetConfig::from_json(&folder.text("transformer", "config.json")?)? };
        let codec = SpaceToDepth::new(folder.option("codec_block")?.unwrap_or([2, 8, 8]))
            .map_err(|err| Error::Request(err.to_string()))?;
        folder::agree(
            ("codec_block of the folder gives a token's width, which", codec.channels()),
            ("video_channels of transformer", transformer.config.video_channels),
        )?;
        let length = folder.option("words")?.unwrap_or(Words::default().length);
        let words = Words { length, width: transformer.config.text_width };
        let holding = Holding { precision: setup.precision, kept: &[] };
        let weights = Component::new(folder.weights("transformer")?, holding, &[], |weights| {
            transformer.declare(weights)
        })?
        .adapted(Loras { sources: setup.loras.clone(), naming: Naming::Diffusers })?;
        if !setup.second_loras.is_empty() {
            let reason = "--lora-2 is for models with two experts; Duet has one transformer";
            return Err(Error::Request(reason.to_owned()));
        }
        Ok(Pipeline {
            device: setup.device.clone(),
            residency: setup.residency,
            scheduler: SchedulerConfig::from_json(&scheduler)?,
            timesteps: folder.option("timesteps")?,
            words,
            codec,
            frame_rate: folder.option("frame_rate")?.unwrap_or(16.0),
            transformer: (transformer, weights),
        })
    }

    /// A model that is in memory only.
    ///
    /// # Errors
    /// The parameters are not those of such a model.
    pub(crate) fn of(config: DuetConfig, store: Store, device: &Device) -> Result<Pipeline> {
        config.check()?;
        let transformer = Duet { config };
        store.agree(&[], |weights| transformer.declare(weights))?;
        let words = Words { width: transformer.config.text_width, ..Words::default() };
        Ok(Pipeline {
            device: device.clone(),
            residency: Residency::Kept,
            scheduler: SchedulerConfig::from_json(DUET_SCHEDULER)?,
            timesteps: None,
            words,
            codec: SpaceToDepth::default(),
            frame_rate: 16.0,
            transformer: (transformer, Component::of(store)),
        })
    }

    /// Frames per second of its clips.
    pub(crate) fn frame_rate(&self) -> f64 {
        self.frame_rate
    }

    /// Puts other parameters in the place of the transformer's.
    ///
    /// # Errors
    /// They are not those of this transformer.
    pub(crate) fn replace_transformer(&mut self, store: Store) -> Result<()> {
        let (model, component) = &mut self.transformer;
        Ok(component.replace(store, |weights| model.declare(weights))?)
    }

    /// Runs a request. Everything about it that can be wrong is found before the network runs.
    ///
    /// # Errors
    /// The request does not fit the model, the network gave values that are not finite, a frame
    /// could not be kept, or the user interrupted.
    pub(crate) fn run(
        &mut self,
        request: &Request,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<Answer> {
        let job = self.check(request)?;
        frames.begin(job.texts.len(), job.size[0])?;
        let latents = self.latents(&job, progress)?;
        if self.residency == Residency::OneAtATime {
            self.transformer.1.close();
        }
        self.decode(&latents, progress, frames)?;
        Ok(Answer { latents: Latents::Clip(latents) })
    }

    /// Checks a request and prepares what it needs.
    ///
    /// # Errors
    /// It does not fit the model.
    pub(crate) fn check(&self, request: &Request) -> Result<Job> {
        request.refuse_beyond_text("Duet makes clips from text alone")?;
        let asked = [request.frames, request.height, request.width];
        let size = [0, 1, 2].map(|axis| asked[axis].unwrap_or(SIZE[axis]));
        let refuse = |err: data::Error| Error::Request(err.to_string());
        let grid = self.codec.grid(size).map_err(refuse)?;
        let guidance = Guidance::new(request.guidance_or(GUIDANCE, self.timesteps.as_deref()))?;
        let process = duet_process(&self.transformer.0.config);
        let tokens = grid.iter().product();
        let sampler = match request.few_timesteps(self.timesteps.as_deref()) {
            Some(timesteps) => SceneSampler::renoising(process, timesteps, guidance)?,
            None => {
                let steps = (&self.scheduler, request.steps.unwrap_or(STEPS));
                SceneSampler::scheduled(process, steps, tokens, guidance)?
            }
        };
        let embed = |text: &str| -> Result<Tensor<3>> {
            Ok(self.words.embed(text, &self.device).map_err(refuse)?.unsqueeze())
        };
        let samples = request.samples(request.prompts.len())?;
        let texts = (0..samples).map(|sample| embed(&request.prompts[sample / request.count]));
        let texts = texts.collect::<Result<Vec<_>>>()?;
        let null = match request.negative.trim() {
            "" => self.words.null(&self.device).unsqueeze(),
            negative => embed(negative)?,
        };
        let [frames, rows, columns] = grid;
        let want = [samples, self.codec.channels(), frames, rows, columns];
        let meaning = "clips, channels, frames, height and width of the latents";
        let noise = request.noise.as_deref().map(|path: &Path| {
            crate::tensors::shaped(path, "noise", (want, meaning), &self.device)
        });
        let (noise, seed) = (noise.transpose()?, request.seed);
        Ok(Job { sampler, grid, size, texts, null, noise, seed })
    }

    /// Noise to latents, `[clips, C, f, h, w]`.
    fn latents(&mut self, job: &Job, progress: &mut dyn Progress) -> Result<Tensor<5>> {
        let (model, component) = &mut self.transformer;
        let store = component.open(&self.device)?;
        let weights = Weights::new(store);
        let batches = job.texts.len().div_ceil(BATCH);
        progress.begin("denoise", batches);
        let mut latents = Vec::new();
        for (batch, texts) in job.texts.chunks(BATCH).enumerate() {
            crate::progress::check(progress)?;
            let scene = scene(job, texts, self.codec.channels(), &self.device);
            let first = batch * BATCH;
            let given = job.noise.as_ref().map(|noise| {
                nn::patchify(noise.clone().slice_dim(0, first..first + texts.len()), [1, 1, 1])
            });
            let place = Batch { seed: job.seed, first: first as u64 };
            let null = Context::text(job.null.clone(), None);
            let mut predict = |inputs: &nn::Inputs| {
                let said = nn::forward(model, &weights, inputs, &mut Plain)?;
                finite::check(&said.video, "the transformer", store)?;
                Ok(said)
            };
            let sampler = job.sampler.clone().starting_from(given);
            let tokens = sampler.run(&scene, Some(&null), place, &mut Silent, &mut predict)?;
            latents.push(unpatchify(tokens.video, job.grid, [1, 1, 1]));
            progress.reach(batch + 1);
        }
        Ok(Tensor::cat(latents, 0))
    }

    /// Latents to frames.
    fn decode(
        &self,
        latents: &Tensor<5>,
        progress: &mut dyn Progress,
        frames: &mut dyn Frames,
    ) -> Result<()> {
        let clips = self.codec.decode(latents.clone());
        let clips = clips.map_err(|err| Error::Request(err.to_string()))?;
        progress.begin("decode", clips.len());
        for (sample, clip) in clips.iter().enumerate() {
            let [count, height, width] = clip.size();
            for frame in 0..count {
                let values = clip.frame(frame).to_vec();
                frames.frame(sample, Frame::new(height, width, values)?)?;
            }
            progress.reach(sample + 1);
        }
        Ok(())
    }
}

/// Clips about the given texts, nothing of which is known yet.
fn scene(job: &Job, texts: &[Tensor<3>], channels: usize, device: &Device) -> Scene {
    let (samples, tokens) = (texts.len(), job.grid.iter().product());
    let clean = Tensor::zeros([samples, tokens, channels], device);
    let positions = nn::grid_positions(job.grid, [1.0; 3], samples, device);
    let context = Context::text(Tensor::cat(texts.to_vec(), 0), None);
    Scene::video(Track::new(Part::Generated, clean, job.grid, positions, context))
}
