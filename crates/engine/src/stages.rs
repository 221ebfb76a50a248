//! The stages of a run: encode, condition, sample, decode.

use std::cell::RefCell;
use std::ops::ControlFlow;

use burn::tensor::Tensor;
use data::media::Waveform;
use diffusion::{Grouping, Noise, Sampled, Scene};
use families::Description;
use models::vae::DecodedFrame;
use nn::{Context, Inputs, Prediction, Weights, patchify};

use crate::captions::Captions;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::pipeline::{Answer, Frames, Latents, Pipeline, Residency};
use crate::progress::{self, Progress};
use crate::request::{Decoding, Request};
use crate::scene::{Conditioning, scene};
use crate::{finite, pixels, sizes};

/// Tokens that share a forward pass: small clips are run several at a time. No sample's result depends
/// on the others.
const TOKENS_TOGETHER: usize = 1024;

/// How many samples of so many tokens share a forward pass.
pub fn samples_together(tokens: usize) -> usize {
    (TOKENS_TOGETHER / tokens.max(1)).max(1)
}

/// What was sampled, for all samples.
pub(crate) struct Samples {
    /// `[samples, C, F, h, w]`.
    latents: Tensor<5>,
    /// The same without what was given put back.
    unpasted: Tensor<5>,
    /// `[samples, T, C]`, if there is sound.
    sound: Option<Tensor<3>>,
}

impl Samples {
    pub(crate) fn answer(self, model: &Description) -> Answer {
        let latents = match model.geometry.grouping {
            Grouping::Picture => Latents::Picture(self.latents.squeeze_dim(2)),
            Grouping::Causal | Grouping::Even => Latents::Clip(self.latents),
        };
        Answer { latents, unpasted: self.unpasted }
    }
}

impl Pipeline {
    /// Prompts to embeddings.
    pub(crate) fn encode(
        &mut self,
        request: &Request,
        job: &Job,
        progress: &mut dyn Progress,
    ) -> Result<Captions> {
        let negative = job.sampler.is_guided().then_some(request.negative.as_str());
        let device = self.device().clone();
        self.text.encode((&request.prompts, negative), job.rules.as_ref(), &device, progress)
    }

    /// What is given to tensors, one for each entry of the job.
    pub(crate) fn condition(
        &mut self,
        job: &Job,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Conditioning>> {
        let device = self.device().clone();
        let Pipeline { description, vae, vision, .. } = self;
        let given = job.given.iter().filter(|given| **given != Default::default()).count();
        if given > 0 {
            progress.begin("condition", given);
        }
        let mut all = Vec::with_capacity(job.given.len());
        for media in &job.given {
            progress::check(progress)?;
            let mut encode = |clip: Tensor<5>| -> Result<Tensor<5>> {
                let store = vae.open(&device)?;
                let latents = description.vae.encode_clip(&Weights::new(store), clip)?;
                finite::check(&latents, "the encoder of the VAE", store)?;
                Ok(latents)
            };
            let mut own = Conditioning::new(media, description, job, &device, &mut encode)?;
            if let Some(vision) = vision {
                let pictures = [&media.image, &media.last_image].into_iter().flatten();
                let pictures: Vec<_> = pictures.map(|picture| picture.first()).collect();
                own.image = Some(vision.encode(&pictures, &device)?);
            }
            all.push(own);
            if given > 0 {
                progress.reach(all.len().min(given));
            }
        }
        Ok(all)
    }

    /// Noise to latents.
    pub(crate) fn sample(
        &mut self,
        request: &Request,
        job: &Job,
        (captions, conditionings): (&Captions, &[Conditioning]),
        progress: &mut dyn Progress,
    ) -> Result<Samples> {
        let steps = job.sampler.steps().len();
        progress.begin("denoise", job.samples * steps);
        let patch = self.description.geometry.patch;
        let tokens: usize = (0..3).map(|axis| job.latents[axis] / patch[axis]).product();
        let together = samples_together(tokens);
        let (mut latents, mut unpasted, mut sound) = (Vec::new(), Vec::new(), Vec::new());
        let prompt = |sample: usize| sample / request.count;
        let conditioning =
            |sample: usize| conditionings.get(prompt(sample)).unwrap_or(&conditionings[0]);
        let mut next = 0;
        while next < job.samples {
            let first = next;
            let alike = |sample: &usize| conditioning(first).is_like(conditioning(*sample));
            let end = (first + together).min(job.samples);
            next = first + (first..end).take_while(alike).count();
            let samples = first..next;
            let own: Vec<_> = samples
                .clone()
                .map(|sample| (conditioning(sample), &captions.prompts[prompt(sample)]))
                .collect();
            let scene = scene(&own, &self.description, job)?;
            let negatives: Vec<&Context> = match captions.negatives.is_empty() {
                true => Vec::new(),
                false => samples.clone().map(|it| &captions.negatives[prompt(it)]).collect(),
            };
            let noise = Noise {
                initial: job
                    .noise
                    .as_ref()
                    .map(|noise| patchify(noise.clone().slice_dim(0, samples.clone()), patch)),
                ..Noise::from_seed(request.seed, request.first_sample + first as u64, samples.len())
            };
            let made = self.run_sampler(job, (&scene, &negatives), &noise, (progress, first))?;
            latents.push(scene.video.latents(made.tokens.video));
            unpasted.push(scene.video.latents(made.unpasted.video));
            sound.extend(made.tokens.audio);
        }
        let sound = (!sound.is_empty()).then(|| Tensor::cat(sound, 0));
        let (latents, unpasted) = (Tensor::cat(latents, 0), Tensor::cat(unpasted, 0));
        Ok(Samples { latents, unpasted, sound })
    }

    /// Samples a scene; `first` samples are done already.
    fn run_sampler(
        &mut self,
        job: &Job,
        (scene, negatives): (&Scene, &[&Context]),
        noise: &Noise,
        (progress, first): (&mut dyn Progress, usize),
    ) -> Result<Sampled> {
        let unconditional = joined(negatives);
        let steps = job.sampler.steps();
        let done = |step: usize| first * steps.len() + step * scene.samples();
        let made = job.sampler.run(scene, unconditional.as_ref(), noise, |step, inputs| {
            progress::check(progress)?;
            progress.reach(done(step));
            self.predict(step, steps[step].timestep, inputs)
        })?;
        progress.reach(done(steps.len()));
        Ok::<_, Error>(made)
    }

    /// What the expert of a timestep predicts.
    fn predict(&mut self, step: usize, timestep: f64, inputs: &Inputs) -> Result<Prediction> {
        let Pipeline { setup, description, transformers, .. } = self;
        let expert = description.expert(timestep);
        if setup.residency == Residency::OneAtATime {
            let others = transformers.iter_mut().enumerate().filter(|(index, _)| *index != expert);
            others.for_each(|(_, other)| other.close());
        }
        let store = transformers[expert].open(&setup.device)?;
        let network = &*description.transformers[expert].network;
        let prediction = setup.schedule.predict(network, store, inputs)?;
        finite::check(&prediction.video, &format!("the transformer at step {step}"), store)?;
        Ok(prediction)
    }

    /// Latents to sounds and frames, handed on as they are decoded.
    pub(crate) fn decode(
        &mut self,
        request: &Request,
        job: &Job,
        made: &Samples,
        (progress, frames): (&mut dyn Progress, &mut dyn Frames),
    ) -> Result<()> {
        let Pipeline { setup, description, vae, .. } = self;
        if let (Some(tokens), Some(sound)) = (&made.sound, description.sound) {
            let waves = sound.codec.decode(tokens.clone().swap_dims(1, 2))?;
            for (sample, samples) in waves.into_iter().enumerate() {
                frames.sound(sample, Waveform { sample_rate: sound.sample_rate, samples })?;
            }
        }
        let store = vae.open(&setup.device)?;
        let mut failure = None;
        // Both closures watch the same progress; only one of them runs at a time.
        let watched = RefCell::new((progress, false));
        let mut take = |frame: DecodedFrame| {
            let taken = progress::check(&*watched.borrow().0)
                .and_then(|()| finite::check(&frame.pixels, "the VAE", store))
                .and_then(|()| {
                    let pixels = sizes::resize_and_crop(frame.pixels, job.delivered);
                    frames.frame(frame.sample, pixels::frame(pixels)?)
                });
            match taken {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failure = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let mut tell = |done: usize, total: usize| {
            let (progress, begun) = &mut *watched.borrow_mut();
            if !*begun {
                progress.begin("decode", total);
                *begun = true;
            }
            progress.reach(done);
        };
        let tiled = request.decoding == Decoding::Tiled;
        let latents = made.latents.clone();
        let weights = Weights::new(store);
        description.vae.decode_clips(&weights, latents, tiled, &mut take, &mut tell)?;
        failure.map_or(Ok(()), Err::<(), Error>)
    }
}

/// The texts of the unconditional predictions, `[B, L, D]`; none where nothing is guided.
fn joined(texts: &[&Context]) -> Option<Context> {
    if texts.is_empty() {
        return None;
    }
    let masks: Vec<_> = texts.iter().filter_map(|text| text.mask.clone()).collect();
    let tokens = Tensor::cat(texts.iter().map(|text| text.tokens.clone()).collect(), 0);
    Some(Context::text(tokens, (!masks.is_empty()).then(|| Tensor::cat(masks, 0))))
}
