//! A request checked against the model: everything that can be wrong is wrong here.

use burn::tensor::Tensor;
use diffusion::{Grouping, Sampler};
use families::{Description, Preparation, Sound, TextRules};
use nn::{Tracks, patchify};
use parallel::Workload;

use crate::captions::{self, Captions};
use crate::error::{Error, Field, Result};
use crate::fit::Frame;
use crate::given::{GivenMedia, GivenReference};
use crate::guidance::MoreGuidance;
use crate::pipeline::Pipeline;
use crate::plan::SolverUsed;
use crate::request::{Decoding, Request, Sizing};
use crate::sampling::{Sampling, sampling};
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
    /// Noise levels that were asked for, or are the family's.
    pub(crate) levels: Option<Vec<f64>>,
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
    /// The same clip, smaller, from whose latents this one goes on: the first of two stages.
    pub(crate) first: Option<Box<Job>>,
}

/// Which of two stages a job is, and what its initial latents are called in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    First,
    Second,
}

impl Stage {
    /// Of the video and of the sound.
    fn noise(self) -> [&'static str; 2] {
        match self {
            Stage::First => ["noise", "audio_noise"],
            Stage::Second => ["enlarged_noise", "enlarged_audio_noise"],
        }
    }
}

impl Job {
    /// What the prompts, the steps and the guidance of the request are for.
    pub(crate) fn asked(&self) -> &Job {
        self.first.as_deref().unwrap_or(self)
    }
}

/// The latents that are made: frames, rows and columns of the video, steps of the sound.
struct Made {
    video: Option<[usize; 3]>,
    audio: Option<usize>,
}

impl Pipeline {
    /// Checks a request and reads what it gives; nothing runs.
    pub(crate) fn job(&self, request: &Request) -> Result<Job> {
        let Some(enlarging) = &request.enlarging else { return self.stage(request, Stage::First) };
        let [smaller, larger] = self.stages(request, enlarging)?;
        let first = self.stage(&smaller, Stage::First)?;
        let second = self.stage(&larger, Stage::Second).map_err(|err| match err {
            Error::Request { field: Field::Levels, reason } => {
                Error::request(Field::UpsamplerLevels, reason)
            }
            other => other,
        })?;
        // What is said of the prompts is said where they are guided, and of pictures where they are largest.
        let said = first.notes.iter().skip(first.frame.notes().count()).cloned();
        let notes = second.frame.notes().chain(said).collect();
        Ok(Job { notes, first: Some(Box::new(first)), ..second })
    }

    /// Checks a request, or one of its stages.
    fn stage(&self, request: &Request, stage: Stage) -> Result<Job> {
        let model = self.description();
        let frame = Frame::of(request, model, 1)?;
        let (size, delivered, latents) = sizes(model, request, frame.size)?;
        let frame_rate = frame_rate(model, request)?;
        let sound = sound_steps(model, request, size[0], frame_rate)?;
        let sees = !request.only_audio || request.given.iter().any(|own| own.video.is_some());
        let tracks = Tracks { video: sees.then_some(()), audio: sound.map(|_| ()) };
        let framed = (size, frame.fit);
        let heard = sound.map(|steps| (steps, size[0] as f64 / frame_rate));
        let read = |given| GivenMedia::read(given, model, framed, heard, request.only_audio);
        let given = request.given.iter().map(read).collect::<Result<Vec<_>>>()?;
        let tokens = tokens(model, latents) + beside(model, &given, latents)?;
        let Sampling { sampler, solver, steps, levels, guidance, more } =
            sampling(model, request, tokens, &tracks)?;
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
        let makes = Made {
            video: (!request.only_audio && !given.iter().all(GivenMedia::is_whole_clip))
                .then_some(latents),
            audio: sound.filter(|_| given.iter().any(|own| own.audio.is_none())),
        };
        let noise = self.given_noise(request, samples, makes, stage);
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
            levels,
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
            first: None,
        })
    }

    /// What a request asks of the transformer, for those who lay it out over ranks.
    ///
    /// # Errors
    /// It does not fit the model.
    pub fn workload(&self, request: &Request) -> Result<Workload> {
        self.least_workload(request, &self.job(request)?)
    }

    /// The same of a request that is checked. Where a clip is made smaller first, a layout must fit that one too, which has
    /// fewer tokens.
    pub(crate) fn least_workload(&self, request: &Request, job: &Job) -> Result<Workload> {
        let own = self.workload_of(request, job)?;
        let Some(first) = &job.first else { return Ok(own) };
        let Workload { tokens, own_tokens, .. } = self.workload_of(request, first)?;
        Ok(Workload { tokens, own_tokens, ..own })
    }

    /// What one of the stages of a request asks of it.
    pub(crate) fn workload_of(&self, request: &Request, job: &Job) -> Result<Workload> {
        let model = self.description();
        // A clip that is only looked at has tokens too.
        let own = job.tracks.video.map(|()| tokens(model, job.latents));
        let references = beside(model, &job.given, job.latents)?;
        let network = &model.transformers[0].network;
        Ok(Workload {
            depth: network.depth(),
            heads: network.heads(),
            tokens: Tracks { video: own.map(|own| own + references), audio: job.sound },
            own_tokens: Tracks { video: own, audio: job.sound },
            tiled: request.decoding == Decoding::Tiled,
            caches_steps: request.first_block_cache.is_some(),
            whole_rows: self.setup.quantization.is_some(),
            needs_whole: needs_whole(job),
            latent_rows: (!job.only_audio).then_some(job.latents[1]),
            branches: job.asked().sampler.most_predictions(&job.tracks),
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
        stage: Stage,
    ) -> Result<Tracks<Tensor<3>>> {
        let Some(path) = &request.noise else { return Ok(Tracks::default()) };
        let [of_video, of_sound] = stage.noise();
        let (model, device, row) = (self.description(), self.device(), request.noise_row);
        let channels = model.vae.latent_channels();
        let video = |[frames, rows, columns]: [usize; 3]| -> Result<Tensor<3>> {
            let noise: Tensor<5> = match model.geometry.grouping {
                Grouping::Picture => {
                    let want = [samples, channels, rows, columns];
                    let meaning = "pictures, channels, height and width of the latents";
                    tensors::rows::<4>(path, of_video, (want, meaning), row, device)?
                        .unsqueeze_dim(2)
                }
                Grouping::Causal | Grouping::Even => {
                    let want = [samples, channels, frames, rows, columns];
                    let meaning = "clips, channels, frames, height and width of the latents";
                    tensors::rows(path, of_video, (want, meaning), row, device)?
                }
            };
            Ok(patchify(noise, model.geometry.patch))
        };
        let audio = |(own, steps): (&Sound, usize)| -> Result<Tensor<3>> {
            let [channels, bins] = own.codec.latent_shape();
            let want = [samples, channels, steps, bins];
            let meaning = "sounds, channels, time and frequency of the latents";
            let noise = tensors::rows(path, of_sound, (want, meaning), row, device)?;
            Ok(model.geometry.audio(&noise).values)
        };
        Ok(Tracks {
            video: makes.video.map(video).transpose()?,
            audio: model.sound.as_ref().zip(makes.audio).map(audio).transpose()?,
        })
    }
}

/// Tokens of so many latent frames, rows and columns.
fn tokens(model: &Description, latents: [usize; 3]) -> usize {
    (0..3).map(|axis| latents[axis] / model.geometry.patch[axis]).product()
}

/// Tokens that stand beside those of a clip: references, and pictures with places of their own. The most of any prompt.
fn beside(model: &Description, given: &[GivenMedia], latents: [usize; 3]) -> Result<usize> {
    let reference = |own: &GivenReference| -> Result<usize> {
        let [height, width] = own.size;
        Ok(tokens(model, model.geometry.latents([own.pictures.len(), height, width])?))
    };
    let [_, rows, columns] = latents;
    let still = tokens(model, [model.geometry.patch[0], rows, columns]);
    let one = |given: &GivenMedia| -> Result<usize> {
        let references = given.references.iter().map(reference).sum::<Result<usize>>()?;
        Ok(references + given.beside.len() * still)
    };
    let all = given.iter().map(one).collect::<Result<Vec<_>>>()?;
    Ok(all.into_iter().max().unwrap_or(0))
}

/// What of a job needs more than the tokens at hand where stages work on some of them.
fn needs_whole(job: &Job) -> Option<&'static str> {
    if job.first.is_some() {
        return Some("latents are made larger as a whole; leave the upsampler out");
    }
    let asked = job.asked();
    let rescales = asked.sampler.sees_whole_tracks(&asked.tracks)
        && asked.sampler.most_predictions(&asked.tracks) > 1;
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

pub(crate) fn of(field: Field, err: &dyn std::fmt::Display) -> Error {
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
            sizes::check_sound(model.geometry.clock.steps(frames as f64 / frame_rate)).map(Some)
        }
    }
}
