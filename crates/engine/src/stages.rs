//! The stages of a run: encode, condition, sample, decode.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;
use comm::Mesh;
use diffusion::{Grouping, Noise, Sampled, Scene, Step};
use nn::{
    CacheReport, Context, FirstBlockCache, Inputs, Network, Precision, Prediction, Provider,
    Rounded, Store, Tracks, Weights,
};
use parallel::Experts;

use crate::captions::Captions;
use crate::error::{Error, Result};
use crate::finite;
use crate::job::Job;
use crate::pipeline::{Latents, Pipeline, PipelineOutput, Residency};
use crate::progress::{self, Progress};
use crate::replica::{self, Deal, Replica};
use crate::request::Request;
use crate::scene::{Conditioning, scene};

/// Tokens that share a forward pass: small clips are run several at a time. No sample's result depends
/// on the others.
const TOKENS_TOGETHER: usize = 1024;

/// How many samples of so many tokens share a forward pass.
pub fn samples_together(tokens: usize) -> usize {
    (TOKENS_TOGETHER / tokens.max(1)).max(1)
}

/// What is asked of a replica.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) request: &'a Request,
    /// Its samples.
    pub(crate) deal: &'a Deal,
    /// Of the prompts of these.
    pub(crate) captions: &'a Captions,
}

/// What a sampler starts from.
pub(crate) struct Prepared {
    /// One for each prompt, or one for all.
    pub(crate) conditionings: Vec<Conditioning>,
    /// What an earlier stage has made, if there was one.
    pub(crate) begun: Option<Begun>,
}

/// What an earlier stage has made.
pub(crate) struct Begun {
    /// Clean tokens `[samples of this replica, N, C]` to go on from.
    pub(crate) tokens: Tracks<Tensor<3>>,
    /// What a step cache saved there.
    pub(crate) cache: Option<CacheReport>,
}

/// Who looks on while samples are denoised together.
struct Watched<'a> {
    progress: &'a mut dyn Progress,
    mesh: Mesh,
    replica: Replica,
    /// Steps of all samples of this replica.
    total: usize,
    /// Steps that earlier samples took.
    done: usize,
    /// How many samples there are now.
    samples: usize,
}

impl Watched<'_> {
    /// Tells that so many steps are taken; what is shown is how far the slowest replica is.
    ///
    /// # Errors
    /// The user interrupted.
    fn reach(&mut self, steps: usize) -> Result<()> {
        if replica::agree(self.mesh.stage(), self.progress.interrupted())? {
            return Err(Error::Interrupted);
        }
        let done = self.done + steps * self.samples;
        self.replica.tell(done as f64 / self.total as f64);
        let slowest = (self.replica.slowest() * self.total as f64).round() as usize;
        self.progress.reach(done.min(slowest));
        Ok(())
    }
}

/// What was sampled, for all samples: latents `[samples, C, F, h, w]`, of a sound `[samples, C, T, bins, 1]`.
pub(crate) struct Samples {
    pub(crate) latents: Tracks<Tensor<5>>,
    /// The video's without what was given put back.
    unpasted: Option<Tensor<5>>,
    /// What a step cache saved on the ranks of this replica, and cost.
    pub(crate) cache: Option<CacheReport>,
}

impl Pipeline {
    /// What a run leaves, as diffusers hands it out.
    pub(crate) fn output(&mut self, made: Samples, job: &Job) -> Result<PipelineOutput> {
        let device = self.device().clone();
        let Pipeline { description, vae, sound, .. } = self;
        let mut released = |latents: Tensor<5>| -> Result<Tensor<5>> {
            let store = vae.open(&device)?;
            Ok(description.vae.released(&Weights::new(store), latents)?)
        };
        // A clip that was only looked at was not made.
        let video = made.latents.video.filter(|_| !job.only_audio);
        let video = video.map(&mut released).transpose()?;
        let video = video.map(|latents| match description.geometry.grouping {
            Grouping::Picture => Latents::Picture(latents.squeeze_dim(2)),
            Grouping::Causal | Grouping::Even => Latents::Clip(latents),
        });
        let unpasted = made.unpasted.map(&mut released).transpose()?;
        let audio = match (made.latents.audio, &description.sound) {
            (Some(latents), Some(own)) => {
                Some(sound.released(own, latents.squeeze_dim(4), &device)?)
            }
            _ => None,
        };
        let cache = made.cache;
        Ok(PipelineOutput { latents: video, audio_latents: audio, unpasted, cache })
    }

    /// Prompts to embeddings.
    pub(crate) fn encode(
        &mut self,
        request: &Request,
        job: &Job,
        prompts: Range<usize>,
        progress: &mut dyn Progress,
    ) -> Result<Captions> {
        let negative = job.sampler.is_guided(&job.tracks).then_some(request.negative.as_str());
        let device = self.device().clone();
        let prompts = &request.prompts[prompts];
        let mut progress = progress::Heard::by(&self.setup.mesh, progress);
        self.text.encode((prompts, negative), job.rules.as_ref(), &device, &mut progress)
    }

    /// What is given to tensors, one for each entry of the job.
    pub(crate) fn condition(
        &mut self,
        job: &Job,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Conditioning>> {
        let progress = &mut progress::Heard::by(&self.setup.mesh, progress);
        let device = self.device().clone();
        let Pipeline { description, vae, vision, sound, .. } = self;
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
            if let (Some(given), Some(codec), Some(steps)) =
                (&media.audio, &description.sound, job.sound)
            {
                let given = (&given.channels[..], given.sample_rate);
                own.sound = Some(sound.encode(codec, given, steps, &device)?);
            }
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
        Ask { request, deal, captions }: Ask<'_>,
        job: &Job,
        prepared: Prepared,
        progress: &mut dyn Progress,
    ) -> Result<Samples> {
        let Prepared { conditionings, begun } = &prepared;
        let steps = job.sampler.steps().len();
        progress.begin("denoise", deal.samples.len() * steps);
        let patch = self.description.geometry.patch;
        let tokens: usize = (0..3).map(|axis| job.latents[axis] / patch[axis]).product();
        // What a cache leaves out must not depend on who shares a pass.
        let together = match request.first_block_cache {
            Some(_) => 1,
            None => samples_together(tokens),
        };
        let earlier = begun.as_ref().and_then(|own| own.cache).unwrap_or_default();
        let mut report = request.first_block_cache.map(|_| earlier);
        let (mut made, mut unpasted) = (Vec::new(), Vec::new());
        let first_prompt = deal.prompts(request).start;
        let prompt = |sample: usize| sample / request.count - first_prompt;
        let conditioning =
            |sample: usize| conditionings.get(sample / request.count).unwrap_or(&conditionings[0]);
        let mut next = deal.samples.start;
        while next < deal.samples.end {
            let first = next;
            let alike = |sample: &usize| conditioning(first).is_like(conditioning(*sample));
            let end = (first + together).min(deal.samples.end);
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
            let noise = noise((request, job), &samples, (deal, begun.as_ref()));
            let unconditional = joined_texts(&negatives);
            let mut watched = Watched {
                progress,
                mesh: self.setup.mesh.clone(),
                replica: Replica::of(&self.setup.mesh, job.samples),
                total: deal.samples.len() * steps,
                done: (first - deal.samples.start) * steps,
                samples: scene.samples(),
            };
            let cache = request.first_block_cache.map(FirstBlockCache::new);
            let given = (unconditional.as_ref(), &noise, cache.as_ref());
            let own = self.run_sampler(job, &scene, given, &mut watched)?;
            report = replica::counted(report, cache.as_ref(), &watched.mesh);
            let latents = |tokens: Tracks<Tensor<3>>| {
                scene.tracks().zip(tokens).map(|(track, tokens)| track.latents(tokens))
            };
            made.push(latents(own.tokens));
            unpasted.extend(latents(own.unpasted).video);
        }
        let all = |of: fn(&Tracks<Tensor<5>>) -> Option<Tensor<5>>| {
            joined(made.iter().filter_map(of).collect())
        };
        let (video, audio) = (all(|it| it.video.clone()), all(|it| it.audio.clone()));
        let cache = replica::summed(report, &self.setup.mesh)?;
        Ok(Samples { latents: Tracks { video, audio }, unpasted: joined(unpasted), cache })
    }

    fn run_sampler(
        &mut self,
        job: &Job,
        scene: &Scene,
        (unconditional, noise, cache): (Option<&Context>, &Noise, Option<&FirstBlockCache>),
        watched: &mut Watched<'_>,
    ) -> Result<Sampled> {
        let (sampler, steps) = (&job.sampler, job.sampler.steps());
        let made = match self.setup.pipefusion.clone() {
            None => sampler.run(scene, unconditional, noise, |step, inputs| {
                watched.reach(step)?;
                let is_last = step + 1 == steps.len();
                let cache = cache.map(|it| (it, is_last));
                let predictions = self.predict((step, steps[step].timestep), inputs, cache)?;
                if watched.done == 0 && watched.progress.wants_look(step, steps.len()) {
                    let seen = sampler.glimpse(scene, &inputs[0], predictions.clone(), step)?;
                    if let Some(frame) = self.first_frame(job, seen)? {
                        watched.progress.look(frame);
                    }
                }
                Ok::<_, Error>(predictions)
            })?,
            Some(pipe) => {
                let mut experts = PipelineExperts { own: self, steps, watched: &mut *watched };
                pipe.run(sampler, scene, unconditional, noise, &mut experts)?
            }
        };
        watched.reach(steps.len())?;
        Ok::<_, Error>(made)
    }

    /// What the expert of a timestep predicts.
    fn predict(
        &mut self,
        (step, timestep): (usize, f64),
        inputs: &[Inputs],
        cache: Option<(&FirstBlockCache, bool)>,
    ) -> Result<Vec<Prediction>> {
        let schedule = Arc::clone(&self.setup.schedule);
        let sequence = self.setup.mesh.sequence().clone();
        let taken = (self.description.expert(timestep), inputs.len());
        let predictions = self.with_expert(timestep, |network, store| {
            let Some((cache, is_last)) = cache else {
                return Ok(schedule.predict_all(network, store, inputs)?);
            };
            let sum = |own| replica::sum(&sequence, own);
            let network = cache.step(network, taken, is_last, &sum);
            Ok(schedule.predict_all(&network, store, inputs)?)
        })?;
        for prediction in &predictions {
            self.inspect(step, timestep, prediction)?;
        }
        Ok(predictions)
    }

    /// Does `work` with the transformer of a timestep.
    fn with_expert<T>(
        &mut self,
        timestep: f64,
        work: impl FnOnce(&dyn Network, &Store) -> Result<T>,
    ) -> Result<T> {
        let Pipeline { setup, description, transformers, .. } = self;
        let expert = description.expert(timestep);
        if setup.residency == Residency::OneAtATime {
            let others = transformers.iter_mut().enumerate().filter(|(index, _)| *index != expert);
            others.for_each(|(_, other)| other.close());
        }
        let store = transformers[expert].open(&setup.device)?;
        let network = &*description.transformers[expert].network;
        match setup.precision {
            Precision::Stored => work(network, store),
            Precision::Bf16 => work(&Rounded(network), store),
        }
    }

    /// Refuses predictions that are not finite.
    fn inspect(&mut self, step: usize, timestep: f64, prediction: &Prediction) -> Result<()> {
        self.with_expert(timestep, |_, store| {
            prediction.as_ref().into_iter().try_for_each(|prediction| {
                finite::check(prediction, &format!("the transformer at step {step}"), store)
            })
        })
    }
}

/// The transformers of a pipeline, as a run over stages asks for them.
struct PipelineExperts<'a, 'b> {
    own: &'a mut Pipeline,
    steps: &'a [Step],
    watched: &'a mut Watched<'b>,
}

impl Experts for PipelineExperts<'_, '_> {
    type Error = Error;

    fn expert(&self, step: usize) -> usize {
        self.own.description.expert(self.steps[step].timestep)
    }

    fn with<T>(
        &mut self,
        step: usize,
        work: impl FnOnce(&dyn Network, &dyn Provider) -> Result<T>,
    ) -> Result<T> {
        self.own.with_expert(self.steps[step].timestep, |network, store| work(network, store))
    }

    fn check(&mut self, step: usize) -> Result<()> {
        self.watched.reach(step)
    }

    fn inspect(&mut self, step: usize, prediction: &Prediction) -> Result<()> {
        self.own.inspect(step, self.steps[step].timestep, prediction)
    }

    fn stopped(&self) -> Error {
        Error::Interrupted
    }
}

/// What some samples of a replica start from.
fn noise(
    (request, job): (&Request, &Job),
    samples: &Range<usize>,
    (deal, begun): (&Deal, Option<&Begun>),
) -> Noise {
    let first = deal.samples.start;
    let own = samples.start - first..samples.end - first;
    let clean = begun.map_or_else(Tracks::default, |begun| begun.tokens.clone());
    Noise {
        initial: job.noise.clone().map(|noise| noise.slice_dim(0, samples.clone())),
        samples: samples.clone().map(|sample| request.noise_of(sample)).collect(),
        clean: clean.map(|all| all.slice_dim(0, own.clone())),
        round: u64::from(begun.is_some()),
    }
}

/// Those of all samples, if there are any.
fn joined(parts: Vec<Tensor<5>>) -> Option<Tensor<5>> {
    (!parts.is_empty()).then(|| Tensor::cat(parts, 0))
}

/// The texts of the unconditional predictions, `[B, L, D]`; none where nothing is guided.
fn joined_texts(texts: &[&Context]) -> Option<Context> {
    if texts.is_empty() {
        return None;
    }
    let masks: Vec<_> = texts.iter().filter_map(|text| text.mask.clone()).collect();
    let tokens = Tensor::cat(texts.iter().map(|text| text.tokens.clone()).collect(), 0);
    Some(Context::text(tokens, (!masks.is_empty()).then(|| Tensor::cat(masks, 0))))
}
