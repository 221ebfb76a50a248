//! A request checked against the model: everything that can be wrong is wrong here.

use burn::tensor::Tensor;
use diffusion::{Grouping, Guidance, Sampler, SchedulerConfig};
use families::{Description, Preparation, Sound, TextRules};
use nn::{Tracks, patchify};
use parallel::Workload;

use crate::captions::{self, Captions};
use crate::error::{Error, Field, Result};
use crate::fit::Frame;
use crate::given::{GivenMedia, GivenReference};
use crate::guidance::{GuidanceUsed, MoreGuidance, guidance};
use crate::pipeline::Pipeline;
use crate::plan::SolverUsed;
use crate::request::{Decoding, Request, Sizing, Solving};
use crate::{sizes, tensors};

/// A request that can be run.
pub(crate) struct Job {
    /// Frames, height and width to generate.
    pub(crate) size: [usize; 3],
    /// Height and width to deliver.
    pub(crate) delivered: [usize; 2],
    /// Latent frames, rows and columns.
    pub(crate) latents: [usize; 3],
    pub(crate) frame_rate: f64,
    pub(crate) sampler: Sampler,
    /// What takes its steps.
    pub(crate) solver: SolverUsed,
    /// Steps that were asked for.
    pub(crate) steps: usize,
    /// Guidance scales, one for each expert.
    pub(crate) guidance: Vec<f64>,
    /// The rest of guidance, for models that have it.
    pub(crate) more: Option<MoreGuidance>,
    /// What is made or looked at.
    pub(crate) tracks: Tracks<()>,
    pub(crate) rules: Option<TextRules>,
    /// Embedded captions, if given.
    pub(crate) captions: Option<Captions>,
    /// What is given beside the prompts: one for all of them, or one each.
    pub(crate) given: Vec<GivenMedia>,
    /// Initial tokens `[samples, N, C]`, if given.
    pub(crate) noise: Tracks<Tensor<3>>,
    pub(crate) samples: usize,
    /// Steps of sound latents, if sound is made or given.
    pub(crate) sound: Option<usize>,
    /// Whether only the sound is made.
    pub(crate) only_audio: bool,
    /// How pictures come to have the size of the clip.
    pub(crate) frame: Frame,
    /// What whoever asked should know before the work begins.
    pub(crate) notes: Vec<String>,
}

/// The latents that are made: frames, rows and columns of the video, steps of the sound.
struct Made {
    video: Option<[usize; 3]>,
    audio: Option<usize>,
}

impl Pipeline {
    /// Checks a request and reads what it gives; nothing runs.
    pub(crate) fn job(&self, request: &Request) -> Result<Job> {
        let model = self.description();
        let frame = Frame::of(request, model)?;
        let (size, delivered, latents) = sizes(model, request, frame.size)?;
        let frame_rate = frame_rate(model, request)?;
        let sound = sound_steps(model, request, size[0], frame_rate)?;
        let sees = !request.only_audio || request.given.iter().any(|own| own.video.is_some());
        let tracks = Tracks { video: sees.then_some(()), audio: sound.map(|_| ()) };
        let Sampling { sampler, solver, steps, guidance, more } =
            sampling(model, request, latents, &tracks)?;
        let is_guided = sampler.is_guided(&tracks);
        let rules = self.rules(request)?;
        unused(model, request)?;
        check_cache(model, request)?;
        let captions = match &request.prompt_embeds {
            Some(path) => {
                let given = captions::given(path, self.text_width(), is_guided, self.device());
                let given = given.and_then(|all| all.only(path, request.prompt_embeds_row));
                Some(given.map_err(|err| err.of_field(Field::PromptEmbeds))?)
            }
            None => None,
        };
        let prompts = captions.as_ref().map_or(request.prompts.len(), |given| given.prompts.len());
        let samples = request.samples(prompts)?;
        let mut notes: Vec<String> = frame.notes().collect();
        if captions.is_none() {
            notes.extend(self.check_prompts(request, rules.as_ref(), is_guided)?);
        }
        if request.decoding == Decoding::Tiled {
            model.vae.check_tiling().map_err(|err| of(Field::Decoding, &err))?;
        }
        let framed = (size, frame.fit);
        let heard = sound.map(|steps| (steps, size[0] as f64 / frame_rate));
        let read = |given| GivenMedia::read(given, model, framed, heard, request.only_audio);
        let given = request.given.iter().map(read).collect::<Result<Vec<_>>>()?;
        let makes = Made {
            video: (!request.only_audio && !given.iter().all(GivenMedia::is_whole_clip))
                .then_some(latents),
            audio: sound.filter(|_| given.iter().any(|own| own.audio.is_none())),
        };
        let noise = self.given_noise(request, samples, makes);
        let noise = noise.map_err(|err| err.of_field(Field::Noise))?;
        if let Some(vision) = &self.vision {
            given.iter().try_for_each(|given| vision.check(given))?;
        }
        Ok(Job {
            size,
            delivered,
            latents,
            frame_rate,
            sampler,
            solver,
            steps,
            guidance,
            more,
            tracks,
            rules,
            captions,
            given,
            noise,
            samples,
            sound,
            only_audio: request.only_audio,
            frame,
            notes,
        })
    }

    /// What a request asks of the transformer, for those who lay it out over ranks.
    ///
    /// # Errors
    /// It does not fit the model.
    pub fn workload(&self, request: &Request) -> Result<Workload> {
        self.workload_of(request, &self.job(request)?)
    }

    /// The same of a request that is checked.
    pub(crate) fn workload_of(&self, request: &Request, job: &Job) -> Result<Workload> {
        let model = self.description();
        let patch = model.geometry.patch;
        let tokens =
            |latents: [usize; 3]| (0..3).map(|axis| latents[axis] / patch[axis]).product::<usize>();
        let references = |given: &GivenMedia| -> Result<usize> {
            let one = |own: &GivenReference| {
                let [height, width] = own.size;
                Ok(tokens(model.geometry.latents([own.pictures.len(), height, width])?))
            };
            given.references.iter().map(one).sum()
        };
        let most = job.given.iter().map(references).collect::<Result<Vec<_>>>()?;
        let own = (!job.only_audio).then(|| tokens(job.latents));
        let references = most.into_iter().max().unwrap_or(0);
        let network = &model.transformers[0].network;
        Ok(Workload {
            depth: network.depth(),
            heads: network.heads(),
            tokens: Tracks { video: own.map(|own| own + references), audio: job.sound },
            own_tokens: Tracks { video: own, audio: job.sound },
            tiled: request.decoding == Decoding::Tiled,
            caches_steps: request.first_block_cache.is_some(),
            whole_rows: self.setup.quantization.is_some(),
            needs_whole: needs_whole(&job.sampler, &job.tracks),
            latent_rows: (!job.only_audio).then_some(job.latents[1]),
            branches: job.sampler.most_predictions(&job.tracks),
            samples: job.samples,
        })
    }

    /// The rules for captions, as the request changes them; none where there is no encoder.
    fn rules(&self, request: &Request) -> Result<Option<TextRules>> {
        let Some(own) = self.text_rules() else {
            if request.max_tokens.is_some() {
                return Err(Error::request(
                    Field::MaxTokens,
                    "the model's words are counted; leave it out",
                ));
            }
            if request.clean_caption {
                return Err(Error::request(
                    Field::CleanCaption,
                    "the model has no text encoder; leave it out",
                ));
            }
            return Ok(None);
        };
        let preparation = match (request.clean_caption, own.preparation) {
            (false, own) => own,
            (true, Preparation::Plain | Preparation::Cleaned) => Preparation::Cleaned,
            (true, Preparation::Repaired | Preparation::Stripped) => {
                let reason = "the model's captions are read in a way of their own; leave it out";
                return Err(Error::request(Field::CleanCaption, reason));
            }
        };
        let max_tokens = request.text_tokens(own.max_tokens)?;
        Ok(Some(TextRules { preparation, max_tokens, ..own }))
    }

    /// Initial latents of a file as tokens, `[samples, N, C]`, of every track that `makes` counts the
    /// latents of.
    fn given_noise(
        &self,
        request: &Request,
        samples: usize,
        makes: Made,
    ) -> Result<Tracks<Tensor<3>>> {
        let Some(path) = &request.noise else { return Ok(Tracks::default()) };
        let (model, device, row) = (self.description(), self.device(), request.noise_row);
        let channels = model.vae.latent_channels();
        let video = |[frames, rows, columns]: [usize; 3]| -> Result<Tensor<3>> {
            let noise: Tensor<5> = match model.geometry.grouping {
                Grouping::Picture => {
                    let want = [samples, channels, rows, columns];
                    let meaning = "pictures, channels, height and width of the latents";
                    tensors::rows::<4>(path, "noise", (want, meaning), row, device)?
                        .unsqueeze_dim(2)
                }
                Grouping::Causal | Grouping::Even => {
                    let want = [samples, channels, frames, rows, columns];
                    let meaning = "clips, channels, frames, height and width of the latents";
                    tensors::rows(path, "noise", (want, meaning), row, device)?
                }
            };
            Ok(patchify(noise, model.geometry.patch))
        };
        let audio = |(own, steps): (&Sound, usize)| -> Result<Tensor<3>> {
            let [channels, bins] = own.codec.latent_shape();
            let want = [samples, channels, steps, bins];
            let meaning = "sounds, channels, time and frequency of the latents";
            let noise = tensors::rows(path, "audio_noise", (want, meaning), row, device)?;
            Ok(model.geometry.audio(&noise).values)
        };
        Ok(Tracks {
            video: makes.video.map(video).transpose()?,
            audio: model.sound.as_ref().zip(makes.audio).map(audio).transpose()?,
        })
    }
}

/// What of guidance needs more than the tokens at hand where stages work on some of them.
fn needs_whole(sampler: &Sampler, tracks: &Tracks<()>) -> Option<&'static str> {
    let rescales = sampler.sees_whole_tracks(tracks) && sampler.most_predictions(tracks) > 1;
    rescales.then_some("the rescale of guidance is about all tokens; give 0")
}

/// Refuses a cache that could leave out nothing, or everything.
fn check_cache(model: &Description, request: &Request) -> Result<()> {
    let Some(threshold) = request.first_block_cache else { return Ok(()) };
    if !(threshold > 0.0 && threshold < 1.0) {
        let reason = format!("a share of {threshold} is not between 0 and 1; 0.08 is usual");
        return Err(Error::request(Field::Cache, reason));
    }
    match model.transformers.iter().all(|own| own.network.depth() > 1) {
        true => Ok(()),
        false => {
            let reason = "the model has one block, and nothing to leave out; leave it out";
            Err(Error::request(Field::Cache, reason))
        }
    }
}

/// Refuses what would do nothing beside the rest of a request.
fn unused(model: &Description, request: &Request) -> Result<()> {
    let refuse = |field, reason: &str| Err(Error::request(field, reason));
    let few = request.few_timesteps(model.timesteps.as_deref())?.is_some();
    if request.eta.is_some() && few {
        let reason =
            "the few steps of a distilled model put noise back by themselves; leave it out";
        return refuse(Field::Eta, reason);
    }
    if request.prompt_embeds.is_some() {
        let all = [
            (Field::Negative, !request.negative.is_empty()),
            (Field::MaxTokens, request.max_tokens.is_some()),
            (Field::CleanCaption, request.clean_caption),
        ];
        if let Some((field, _)) = all.into_iter().find(|(_, is_there)| *is_there) {
            return refuse(field, "the captions are given as embeddings; leave it out");
        }
    }
    Ok(())
}

fn of(field: Field, err: &dyn std::fmt::Display) -> Error {
    Error::request(field, err.to_string())
}

/// The size to generate, the height and width to deliver, and the latents of the former.
fn sizes(
    model: &Description,
    request: &Request,
    [height, width]: [usize; 2],
) -> Result<([usize; 3], [usize; 2], [usize; 3])> {
    let frames = request.frames.unwrap_or(model.defaults.size[0]);
    sizes::check_frames(frames)?;
    sizes::check_length(Field::Height, height)?;
    sizes::check_length(Field::Width, width)?;
    let [high, wide] = match request.sizing {
        Sizing::Exact => [height, width],
        Sizing::Binned => sizes::nearest_trained([height, width], &model.trained_sizes)?,
    };
    let size = [frames, high, wide];
    let latents = model.geometry.latents(size).map_err(|err| {
        let field = match &err {
            diffusion::Error::Size { what: "height", .. } => Field::Height,
            diffusion::Error::Size { .. } => Field::Width,
            _ => Field::Frames,
        };
        of(field, &err)
    })?;
    sizes::check_tokens(latents, model.geometry.patch)?;
    Ok((size, [height, width], latents))
}

fn frame_rate(model: &Description, request: &Request) -> Result<f64> {
    if request.frame_rate.is_some() && model.geometry.grouping == Grouping::Picture {
        let reason = "this model makes pictures, which do not move; leave it out";
        return Err(Error::request(Field::FrameRate, reason));
    }
    let rate = request.frame_rate.unwrap_or(model.defaults.frame_rate);
    match rate.is_finite() && rate > 0.0 {
        true => Ok(rate),
        false => {
            Err(Error::request(Field::FrameRate, format!("it is {rate}; give a number above 0")))
        }
    }
}

/// The steps of a request, what takes them, and the guidance of each expert.
struct Sampling {
    sampler: Sampler,
    solver: SolverUsed,
    steps: usize,
    guidance: Vec<f64>,
    more: Option<MoreGuidance>,
}

fn sampling(
    model: &Description,
    request: &Request,
    latents: [usize; 3],
    tracks: &Tracks<()>,
) -> Result<Sampling> {
    let few = request.few_timesteps(model.timesteps.as_deref())?;
    let guidance = guidance(model, request, tracks, few.is_some())?;
    let (sampler, solver, steps) = match few {
        Some(timesteps) => {
            renoises(request)?;
            let sampler = Sampler::renoising(model.process.clone(), &timesteps);
            let sampler = sampler.map_err(|err| match request.solving {
                Solving::Renoise(_) => of(Field::Timesteps, &err),
                _ => folder::Error::Unfit(format!("the timesteps that the model records: {err}"))
                    .into(),
            })?;
            (sampler, SolverUsed::renoise(), timesteps.len())
        }
        None => {
            let patch = model.geometry.patch;
            let tokens = (0..3).map(|axis| latents[axis] / patch[axis]).product();
            let steps = request.steps.unwrap_or(model.defaults.steps);
            let scheduler = scheduler(model, request)?;
            let process = model.process.clone();
            let sampler = match model.ladder.levels(steps) {
                Some(levels) => Sampler::at_levels(process, &scheduler, &levels, tokens),
                None => Sampler::scheduled(process, &scheduler, steps, tokens),
            };
            let sampler = sampler.map_err(|err| of(Field::Steps, &err))?;
            (sampler, SolverUsed::of(&scheduler), steps)
        }
    };
    let GuidanceUsed { experts, stg_blocks, more } = guidance;
    let scales = experts.iter().map(Guidance::scale).collect();
    let sampler = sampler.guided(|timestep| experts[model.expert(timestep)]).skipping(stg_blocks);
    Ok(Sampling { sampler, solver, steps, guidance: scales, more })
}

/// Refuses what only a scheduler has.
fn renoises(request: &Request) -> Result<()> {
    let reason = "the steps are a distilled model's, which no scheduler takes; leave it out";
    match request.flow_shift {
        Some(_) => Err(Error::request(Field::FlowShift, reason)),
        None => Ok(()),
    }
}

/// The scheduler of the folder as a request changes it.
fn scheduler(model: &Description, request: &Request) -> Result<SchedulerConfig> {
    let mut scheduler = model.scheduler.clone();
    if let Some(eta) = request.eta {
        scheduler = scheduler.with_eta(eta).map_err(|err| of(Field::Eta, &err))?;
    }
    if let Some(shift) = request.flow_shift {
        scheduler = scheduler.with_flow_shift(shift).map_err(|err| of(Field::FlowShift, &err))?;
    }
    Ok(scheduler)
}

/// Steps of sound latents that go with so many frames, if there is sound.
fn sound_steps(
    model: &Description,
    request: &Request,
    frames: usize,
    frame_rate: f64,
) -> Result<Option<usize>> {
    let given = request.given.iter().any(|given| given.audio.is_some());
    if request.only_audio && (model.sound.is_none() || request.without_audio) {
        let reason = match &model.sound {
            None => "this model makes no sound; give the name of a picture or a video",
            Some(_) => "the sound is left out, so nothing would be made",
        };
        return Err(Error::request(Field::OnlyAudio, reason));
    }
    match (&model.sound, request.without_audio) {
        (None, true) => {
            Err(Error::request(Field::WithoutAudio, "this model makes no sound; leave it out"))
        }
        (Some(_), true) if given => {
            Err(Error::request(Field::WithoutAudio, "a sound is given; leave one of them out"))
        }
        (None, false) | (Some(_), true) => Ok(None),
        (Some(_), false) => {
            let steps = frames as f64 / frame_rate * model.geometry.clock.latents_per_second();
            sizes::check_sound(steps.round_ties_even()).map(Some)
        }
    }
}
