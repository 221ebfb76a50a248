//! What a user asks for.

use std::path::PathBuf;
use std::sync::Arc;

use data::media::Frame;
use families::{Condition, TextRules};

use crate::error::{Error, Field, Result};
use crate::guidance::MoreGuidance;

/// Samples of one run at the most; the latents of all of them are held until the end.
const MOST_SAMPLES: usize = 10_000;

/// A request as it was written; a pipeline checks it against its model.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// One clip or picture (or `count` of them) per prompt.
    pub prompts: Vec<String>,
    /// What is given beside each prompt: one for all of them, or one each.
    pub given: Vec<Given>,
    /// What the clips should not be.
    pub negative: String,
    /// Denoising steps; the model's own if not given.
    pub steps: Option<usize>,
    /// Guidance scale; at 1 and below the negative prompt plays no part. The model's own if not
    /// given.
    pub guidance: Option<f64>,
    /// Guidance scale of the second expert, for models that have two; the first one's if not given.
    pub second_guidance: Option<f64>,
    /// Guidance of models that are pushed away from more than a prompt.
    pub more: MoreGuidance,
    /// Height in pixels; the model's own if not given.
    pub height: Option<usize>,
    /// Width in pixels; the model's own if not given.
    pub width: Option<usize>,
    /// Frames of a clip; the model's own if not given.
    pub frames: Option<usize>,
    /// Frames per second; the model's own if not given.
    pub frame_rate: Option<f64>,
    /// Leave the sound out that the model would make.
    pub without_audio: bool,
    /// Make the sound alone; a clip that is given whole is looked at.
    pub only_audio: bool,
    /// The seed of all noise.
    pub seed: u64,
    /// A seed of its own for each prompt, if not empty: then the samples of each are numbered and made as if it were
    /// asked for alone.
    pub seeds: Vec<u64>,
    /// The number of the first sample: sample `n` of another request is sample `n` of this one too.
    pub first_sample: u64,
    /// Samples per prompt.
    pub count: usize,
    /// Text tokens at the most; the model's own if not given.
    pub max_tokens: Option<usize>,
    /// How much noise DDIM puts back.
    pub eta: Option<f64>,
    /// How far the noise levels of a flow are moved towards noise; the model's own if not given.
    pub flow_shift: Option<f64>,
    /// How steps are taken.
    pub solving: Solving,
    /// Initial latents instead of noise from the seed: a safetensors file with key `noise`, and
    /// `audio_noise` where sound is made.
    pub noise: Option<PathBuf>,
    /// Which row of the noise the first sample has, where the file holds more: for one sample of several
    /// that is made again.
    pub noise_row: Option<usize>,
    /// Text embeddings instead of prompts.
    pub prompt_embeds: Option<PathBuf>,
    /// The only row of them that is used: for one sample of several that is made again.
    pub prompt_embeds_row: Option<usize>,
    /// Repair captions scraped from the web.
    pub clean_caption: bool,
    /// Generate at the nearest size the model was trained on and resize.
    pub sizing: Sizing,
    /// How pictures of other proportions become those of the clip; cropped if it is not said.
    pub fit: Option<Fit>,
    /// Decode in tiles.
    pub decoding: Decoding,
    /// Leave out all blocks but the first where that one's change differs by less than this share from the
    /// step before.
    pub first_block_cache: Option<f64>,
    /// Make the clip smaller first, then its latents larger, and go on from there: with the upsampler that the model was
    /// opened with.
    pub enlarging: Option<Enlarging>,
}

/// The second of two stages: latents of a smaller clip are made larger, noised to the first of its levels and denoised
/// again, without guidance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enlarging {
    /// Noise levels of its steps; those of the family's own distilled checkpoints if not given.
    pub levels: Option<Vec<f64>>,
    /// How far the mean and deviation of every channel go back to what they were, 0 to 10; 1 is all the way.
    pub adain: f64,
    /// How strongly large values are drawn in, 0 to 1.
    pub tone_map: f64,
}

impl Default for Request {
    fn default() -> Request {
        Request {
            prompts: Vec::new(),
            given: vec![Given::default()],
            negative: String::new(),
            steps: None,
            guidance: None,
            second_guidance: None,
            more: MoreGuidance::default(),
            height: None,
            width: None,
            frames: None,
            frame_rate: None,
            without_audio: false,
            only_audio: false,
            seed: 0,
            seeds: Vec::new(),
            first_sample: 0,
            count: 1,
            max_tokens: None,
            eta: None,
            flow_shift: None,
            solving: Solving::Recorded,
            noise: None,
            noise_row: None,
            prompt_embeds: None,
            prompt_embeds_row: None,
            clean_caption: false,
            sizing: Sizing::Exact,
            fit: None,
            decoding: Decoding::Whole,
            first_block_cache: None,
            enlarging: None,
        }
    }
}

/// What is given beside a prompt.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Given {
    /// The picture a clip begins with.
    pub image: Option<Media>,
    /// The picture a clip ends with.
    pub last_image: Option<Media>,
    /// Pictures for frames in between, counted from 0.
    pub keyframes: Vec<(usize, Media)>,
    /// The first frames of a clip.
    pub video_prefix: Option<Media>,
    /// The whole clip.
    pub video: Option<Media>,
    /// What is made anew of what is given: white is, black stays.
    pub mask: Option<Media>,
    /// Other clips to look at, each with how many times smaller it is shown; the model's own scale if
    /// not said.
    pub references: Vec<(Media, Option<usize>)>,
    /// The sound: a WAV file, or samples from -1 to 1 at the model's own rate.
    pub audio: Option<Audio>,
}

impl Given {
    /// Gives a file as one more condition: a picture for a frame where it is a keyframe, a clip shown so many times
    /// smaller where it is a reference.
    pub fn give(
        &mut self,
        condition: Condition,
        path: PathBuf,
        frame: Option<usize>,
        scale: Option<usize>,
    ) {
        let media = |path| Media::File(path);
        match condition {
            Condition::Image => self.image = Some(media(path)),
            Condition::LastImage => self.last_image = Some(media(path)),
            Condition::Keyframe => self.keyframes.push((frame.unwrap_or(0), media(path))),
            Condition::VideoPrefix => self.video_prefix = Some(media(path)),
            Condition::Video => self.video = Some(media(path)),
            Condition::Mask => self.mask = Some(media(path)),
            Condition::Reference => self.references.push((media(path), scale)),
            Condition::Audio => self.audio = Some(Audio::File(path)),
        }
    }
}

/// Pictures or clips that are given.
#[derive(Clone, Debug, PartialEq)]
pub enum Media {
    /// A picture, a video, or a folder of frames.
    File(PathBuf),
    /// Frames in memory, of 8 bits as files have them.
    Frames(Arc<Vec<Frame>>),
}

/// A sound that is given.
#[derive(Clone, Debug, PartialEq)]
pub enum Audio {
    /// A WAV file.
    File(PathBuf),
    /// Samples from -1 to 1, mono, at the model's own rate.
    Samples(Arc<Vec<f32>>),
}

impl Request {
    /// The seed and the number that the noise of a sample belongs to.
    pub(crate) fn noise_of(&self, sample: usize) -> (u64, u64) {
        match self.seeds.get(sample / self.count.max(1)) {
            Some(seed) => (*seed, self.first_sample + (sample % self.count) as u64),
            None => (self.seed, self.first_sample + sample as u64),
        }
    }

    /// How many samples it makes of `prompts` prompts.
    ///
    /// # Errors
    /// None, or more than a run takes, or conditions for another number of prompts.
    pub fn samples(&self, prompts: usize) -> Result<usize> {
        let count = self.count;
        if prompts == 0 {
            return Err(Error::request(Field::Prompt, "there is nothing to make; give one"));
        }
        if count == 0 {
            return Err(Error::request(Field::Count, "there is nothing to make; give 1 or more"));
        }
        if self.given.len() != 1 && self.given.len() != prompts {
            let given = self.given.len();
            let reason = format!("there are conditions for {given} prompts, but {prompts} prompts");
            return Err(Error::request(Field::Prompt, reason));
        }
        if self.first_sample.checked_add(MOST_SAMPLES as u64).is_none() {
            let reason = format!("it is {}; choose a smaller number", self.first_sample);
            return Err(Error::request(Field::FirstSample, reason));
        }
        let samples = prompts.checked_mul(count).filter(|samples| *samples <= MOST_SAMPLES);
        samples.ok_or_else(|| {
            Error::request(
                Field::Count,
                format!(
                    "{count} for {prompts} prompt(s) is more than the {MOST_SAMPLES} samples of one \
                     run; lower it or run several times"
                ),
            )
        })
    }

    /// The text tokens to use, where the model has `own`.
    ///
    /// # Errors
    /// None or too many were asked for.
    pub(crate) fn text_tokens(&self, own: usize) -> Result<usize> {
        let (tokens, most) = (self.max_tokens.unwrap_or(own), TextRules::MOST_TOKENS);
        if (1..=most).contains(&tokens) {
            return Ok(tokens);
        }
        Err(Error::request(Field::MaxTokens, format!("it is {tokens}; choose 1 to {most}")))
    }

    /// The timesteps of the few-step solver, if it is to be used: those asked for, or those that a
    /// distilled model has `recorded`, as many of them as steps are asked for.
    ///
    /// # Errors
    /// More steps are asked for than the model was distilled for, or none.
    pub(crate) fn few_timesteps(&self, recorded: Option<&[f64]>) -> Result<Option<Vec<f64>>> {
        match (&self.solving, recorded) {
            (Solving::Scheduler | Solving::Levels(_) | Solving::Distilled(_), _)
            | (Solving::Recorded, None) => Ok(None),
            (Solving::Renoise(timesteps), _) => Ok(Some(timesteps.clone())),
            (Solving::Recorded, Some(own)) => thinned(own, self.steps).map(Some),
        }
    }
}

/// So many of a distilled model's own timesteps, the noisiest among them and the rest spread evenly.
fn thinned(own: &[f64], steps: Option<usize>) -> Result<Vec<f64>> {
    let steps = steps.unwrap_or(own.len());
    if steps == own.len() || (1..own.len()).contains(&steps) {
        return Ok((0..steps).map(|step| own[step * own.len() / steps]).collect());
    }
    let list: Vec<String> = own.iter().map(f64::to_string).collect();
    let fewer = if own.len() > 1 { format!(", or give 1 to {}", own.len()) } else { String::new() };
    Err(Error::request(
        Field::Steps,
        format!(
            "it is {steps}, but this model was distilled for {} step(s), at the timesteps {}; leave it \
             out{fewer}. With the solver `scheduler` it takes any number, which it was not trained for",
            own.len(),
            list.join(", ")
        ),
    ))
}

/// How a picture of other proportions becomes one of the clip's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// Its sides change by different factors.
    Stretch,
    /// What is too much is cut off on both sides.
    Crop,
    /// What is missing is black.
    Pad,
}

impl Fit {
    /// All of them, as users call them.
    pub const ALL: [(&'static str, Fit); 3] =
        [("stretch", Fit::Stretch), ("crop", Fit::Crop), ("pad", Fit::Pad)];

    /// What users call it.
    pub fn name(self) -> &'static str {
        match self {
            Fit::Stretch => "stretch",
            Fit::Crop => "crop",
            Fit::Pad => "pad",
        }
    }
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
    /// As the folder says: by its scheduler or, for a distilled model, at the timesteps that it records;
    /// where fewer steps are asked for, at so many of them.
    #[default]
    Recorded,
    /// By the folder's scheduler, whatever else it records.
    Scheduler,
    /// At falling timesteps clean latents are predicted and noised again: for distilled models.
    Renoise(Vec<f64>),
    /// By the folder's scheduler at these noise levels, falling from at most 1 to above 0. They are meant as they are:
    /// no shift moves them.
    Levels(Vec<f64>),
    /// The same at few levels of a distilled checkpoint, which is run without guidance unless it is asked for: those of
    /// the family's own checkpoints if none are said.
    Distilled(Option<Vec<f64>>),
}

/// How latents become pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoding {
    /// All at once.
    Whole,
    /// In tiles that overlap: less memory, slightly different pixels.
    Tiled,
}

#[cfg(test)]
mod tests {
    use super::{Request, Solving, thinned};

    #[test]
    fn a_student_takes_its_own_steps_and_no_others() {
        let own = [1000.0, 750.0, 500.0, 250.0];
        for (steps, want) in [
            (None, &own[..]),
            (Some(4), &own),
            (Some(3), &[1000.0, 750.0, 500.0]),
            (Some(2), &[1000.0, 500.0]),
            (Some(1), &[1000.0]),
        ] {
            assert_eq!(thinned(&own, steps).unwrap(), want, "{steps:?}");
        }
        for steps in [0, 5, usize::MAX] {
            let message = thinned(&own, Some(steps)).unwrap_err().to_string();
            assert!(message.contains("distilled for 4 step(s)"), "{message}");
            assert!(message.contains("1000, 750, 500, 250"), "{message}");
        }
    }

    #[test]
    fn the_scheduler_is_asked_for_by_name_only() {
        let recorded = Some(&[1000.0, 600.0][..]);
        let request = Request { steps: Some(2), ..Request::default() };
        assert_eq!(request.few_timesteps(recorded).unwrap().as_deref(), recorded);
        let request = Request { solving: Solving::Scheduler, ..request };
        assert_eq!(request.few_timesteps(recorded).unwrap(), None);
    }
}
