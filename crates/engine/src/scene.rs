//! Requests as scenes: what is given enters as clean tokens, channels beside the noise or an image
//! encoder's tokens; everything else is free.

use burn::tensor::{Device, Tensor};
use diffusion::{Reference, Scene, Track, TrackKind};
use families::{Condition, Description, EntersAs};
use nn::{Context, patchify};

use crate::error::Result;
use crate::given::GivenMedia;
use crate::job::Job;
use crate::media::Pictures;

/// Encodes clips `[1, 3, F, H, W]` from -1 to 1 to latents `[1, C, f, h, w]`.
pub(crate) type Encode<'a> = &'a mut dyn FnMut(Tensor<5>) -> Result<Tensor<5>>;

/// What is given beside one prompt, as tensors of one sample.
#[derive(Clone)]
pub(crate) struct Conditioning {
    kind: TrackKind,
    /// Clean latents `[1, C, f, h, w]`, zero where nothing is given.
    clean: Tensor<5>,
    /// Which tokens are given.
    fixed: Vec<bool>,
    /// Channels beside the noise, `[1, N, C']`.
    beside: Option<Tensor<3>>,
    references: Vec<Reference>,
    /// An image encoder's tokens, `[1, L, D]`.
    pub(crate) image: Option<Tensor<3>>,
    /// Latents `[1, C, T, bins]` of a given sound.
    pub(crate) sound: Option<Tensor<4>>,
}

impl Conditioning {
    /// Whether two samples can share a forward pass: they are given the same kinds of things.
    pub(crate) fn is_like(&self, other: &Conditioning) -> bool {
        let kind = |own: &Conditioning| {
            let sizes: Vec<[usize; 3]> =
                own.references.iter().map(|reference| reference.tokens.dims()).collect();
            (own.kind, sizes, own.beside.is_some(), own.image.is_some(), own.sound.is_some())
        };
        kind(self) == kind(other)
    }

    /// Encodes what is given.
    ///
    /// # Errors
    /// The VAE refuses a clip.
    pub(crate) fn new(
        given: &GivenMedia,
        model: &Description,
        job: &Job,
        device: &Device,
        encode: Encode<'_>,
    ) -> Result<Conditioning> {
        let [frames, rows, columns] = job.latents;
        let shape = [1, model.vae.latent_channels(), frames, rows, columns];
        let mut own = Conditioning {
            kind: TrackKind::Generated,
            clean: Tensor::zeros(shape, device),
            fixed: Vec::new(),
            beside: None,
            references: Vec::new(),
            image: None,
            sound: None,
        };
        match model.conditions.enters(Condition::Image) {
            Some(EntersAs::Channels) => {
                own.beside = Some(beside(given, model, job, device, encode)?);
                own.fixed = vec![false; tokens(model, job)];
            }
            _ => own.fix(given, model, job, device, encode)?,
        }
        own.refer(given, model, job, device, encode)?;
        Ok(own)
    }

    /// Puts clean latents in their places and fixes their tokens.
    fn fix(
        &mut self,
        given: &GivenMedia,
        model: &Description,
        job: &Job,
        device: &Device,
        encode: Encode<'_>,
    ) -> Result<()> {
        let (geometry, filter) = (&model.geometry, model.conditions.resampling);
        let [_, height, width] = job.size;
        let last = job.latents[0] - 1;
        let mut here = vec![false; job.latents[0]];
        let mut put = |clean: &mut Tensor<5>, at: usize, latents: Tensor<5>| {
            let [_, channels, count, rows, columns] = latents.dims();
            here[at..at + count].fill(true);
            let place = [0..1, 0..channels, at..at + count, 0..rows, 0..columns];
            *clean = clean.clone().slice_assign(place, latents);
        };
        let clip = given.video.as_ref().or(given.video_prefix.as_ref());
        if let Some(pictures) = clip {
            put(&mut self.clean, 0, encode(pictures.clip([height, width], filter, device))?);
        }
        let first = given.image.iter().map(|picture| (0, picture));
        let later = given.keyframes.iter().map(|(at, picture)| (*at, picture));
        let end = given.last_image.iter().map(|picture| (last, picture));
        for (at, picture) in first.chain(later).chain(end) {
            let latents = still(picture, at, model, job, device, encode)?;
            put(&mut self.clean, at, latents);
        }
        let free = given.mask.as_ref().map(|white| geometry.touched_tokens(white, job.size));
        let per_frame = tokens(model, job) / (job.latents[0] / geometry.patch[0]);
        let fixed = |token: usize| {
            let frame = token / per_frame * geometry.patch[0];
            let is_here = here[frame..frame + geometry.patch[0]].iter().all(|it| *it);
            is_here && free.as_ref().is_none_or(|free| !free[token])
        };
        self.fixed = (0..tokens(model, job)).map(fixed).collect();
        if given.is_whole_clip() {
            self.kind = TrackKind::Given;
        }
        Ok(())
    }

    fn refer(
        &mut self,
        given: &GivenMedia,
        model: &Description,
        job: &Job,
        device: &Device,
        encode: Encode<'_>,
    ) -> Result<()> {
        let target = model.geometry.video(&self.clean, &[job.frame_rate])?.positions;
        for own in &given.references {
            let latents = encode(own.pictures.clip(own.size, model.conditions.resampling, device))?;
            let tokens = model.geometry.video(&latents, &[job.frame_rate])?;
            let time = model.geometry.coordinates.time;
            let positions = own.scale.align(time, tokens.positions, &target);
            self.references.push(Reference { tokens: tokens.values, positions });
        }
        let [_, height, width] = job.size;
        for (frame, picture) in &given.beside {
            let clip = picture.clip([height, width], model.conditions.resampling, device);
            let tokens = model.geometry.still(&encode(clip)?, *frame, job.frame_rate)?;
            let (tokens, positions) = (tokens.values, tokens.positions);
            self.references.push(Reference { tokens, positions });
        }
        Ok(())
    }
}

/// Tokens of the clip.
fn tokens(model: &Description, job: &Job) -> usize {
    (0..3).map(|axis| job.latents[axis] / model.geometry.patch[axis]).product()
}

/// The latents `[1, C, 1, h, w]` of a picture that fills latent frame `at`: all frames of its group show it.
fn still(
    picture: &Pictures,
    at: usize,
    model: &Description,
    job: &Job,
    device: &Device,
    encode: Encode<'_>,
) -> Result<Tensor<5>> {
    let [_, height, width] = job.size;
    // A causal VAE treats the first latent frame apart, so another one is taken from behind it.
    let behind = usize::from(at > 0 && model.geometry.frames(2) != 2 * model.geometry.frames(1));
    let count = model.geometry.frames(behind + 1);
    let filter = model.conditions.resampling;
    let clip = picture.clip([height, width], filter, device).repeat_dim(2, count);
    Ok(encode(clip)?.slice_dim(2, behind..behind + 1))
}

/// Channels beside the noise, `[1, N, C']`: which frames are given, and the latents of the clip of given
/// pictures with grey between them.
fn beside(
    given: &GivenMedia,
    model: &Description,
    job: &Job,
    device: &Device,
    encode: Encode<'_>,
) -> Result<Tensor<3>> {
    let [_, height, width] = job.size;
    let pictures = [given.image.as_ref(), given.last_image.as_ref()];
    let filter = model.conditions.resampling;
    let pictures =
        pictures.into_iter().flatten().map(|it| it.clip([height, width], filter, device));
    let channels = picture_channels(pictures.collect(), job.size[0], model, encode)?;
    Ok(patchify(channels, model.geometry.patch))
}

/// Channels beside the noise, `[1, C', f, h, w]`, for a clip of so many frames of which the first is given,
/// `[1, 3, 1, H, W]`, and maybe the last.
pub(crate) fn picture_channels(
    mut pictures: Vec<Tensor<5>>,
    frames: usize,
    model: &Description,
    encode: Encode<'_>,
) -> Result<Tensor<5>> {
    let [_, _, _, height, width] = pictures[0].dims();
    let (given, device) = (pictures.len(), pictures[0].device());
    let between = frames.saturating_sub(given);
    if between > 0 {
        pictures.insert(1, Tensor::zeros([1, 3, between, height, width], &device));
    }
    let latents = encode(Tensor::cat(pictures, 2))?;
    let [_, _, deep, rows, columns] = latents.dims();
    let mask = given_frames((frames, given > 1), model, [deep, rows, columns], &device);
    Ok(Tensor::cat(vec![mask, latents], 1))
}

/// One where a frame is given, the first and maybe the last, and zero elsewhere, `[1, M, f, h, w]`: the first
/// frame counts `M` times.
fn given_frames(
    (all, with_last): (usize, bool),
    model: &Description,
    [frames, rows, columns]: [usize; 3],
    device: &Device,
) -> Tensor<5> {
    let channels = model.conditions.mask_channels;
    let is_given = |frame: usize| frame == 0 || (frame == all - 1 && with_last);
    let mut values = Vec::with_capacity(channels * frames);
    for channel in 0..channels {
        // Latent frame 0 holds the first frame alone, each later one as many as there are channels.
        let frame = |latent: usize| (latent * channels + channel + 1).saturating_sub(channels);
        values.extend((0..frames).map(|latent| f32::from(u8::from(is_given(frame(latent))))));
    }
    let values = Tensor::<1>::from_floats(&values[..], device);
    let mask: Tensor<5> = values.reshape([1, channels, frames, 1, 1]);
    mask.expand([1, channels, frames, rows, columns])
}

/// A scene of several samples, each with what is given beside it and its text `[1, L, D]`.
///
/// # Errors
/// The latents do not fit the model.
pub(crate) fn scene(
    samples: &[(&Conditioning, &Context)],
    model: &Description,
    job: &Job,
) -> Result<Scene> {
    let (first, _) = samples[0];
    // Where the sound alone is made, a clip is there only to be looked at.
    let video = match job.only_audio && first.kind == TrackKind::Generated {
        true => None,
        false => Some(video(samples, model, job)?),
    };
    Ok(Scene { video, audio: audio(samples, model, job) })
}

fn video(samples: &[(&Conditioning, &Context)], model: &Description, job: &Job) -> Result<Track> {
    let (first, _) = samples[0];
    let latents = Tensor::cat(samples.iter().map(|(own, _)| own.clean.clone()).collect(), 0);
    let tokens = model.geometry.video(&latents, &vec![job.frame_rate; samples.len()])?;
    let mut video = Track::new(first.kind, tokens, contexts(samples));
    video.size = model.geometry.size_condition(&latents);
    let fixed: Vec<bool> = samples.iter().flat_map(|(own, _)| own.fixed.iter().copied()).collect();
    video.fix(&fixed);
    video.beside = stacked(samples, |own| own.beside.clone());
    for at in 0..first.references.len() {
        let tokens = samples.iter().map(|(own, _)| own.references[at].tokens.clone());
        let positions = samples.iter().map(|(own, _)| own.references[at].positions.clone());
        video.refer(Reference {
            tokens: Tensor::cat(tokens.collect(), 0),
            positions: Tensor::cat(positions.collect(), 0),
        });
    }
    Ok(video)
}

fn audio(samples: &[(&Conditioning, &Context)], model: &Description, job: &Job) -> Option<Track> {
    let (sound, steps) = model.sound.as_ref().zip(job.sound)?;
    let given = samples.iter().filter_map(|(own, _)| own.sound.clone()).collect::<Vec<_>>();
    let (kind, latents) = match given.len() == samples.len() {
        true => (TrackKind::Given, Tensor::cat(given, 0)),
        false => {
            let [channels, bins] = sound.codec.latent_shape();
            let shape = [samples.len(), channels, steps, bins];
            (TrackKind::Generated, Tensor::zeros(shape, &samples[0].0.clean.device()))
        }
    };
    Some(Track::new(kind, model.geometry.audio(&latents), contexts(samples)))
}

/// The texts of all samples, with what their image encoder sees.
fn contexts(samples: &[(&Conditioning, &Context)]) -> Context {
    let tokens = samples.iter().map(|(_, text)| text.tokens.clone()).collect();
    let masks: Vec<_> = samples.iter().filter_map(|(_, text)| text.mask.clone()).collect();
    Context {
        tokens: Tensor::cat(tokens, 0),
        mask: (!masks.is_empty()).then(|| Tensor::cat(masks, 0)),
        image: stacked(samples, |own| own.image.clone()),
    }
}

fn stacked<const D: usize>(
    samples: &[(&Conditioning, &Context)],
    of: impl Fn(&Conditioning) -> Option<Tensor<D>>,
) -> Option<Tensor<D>> {
    let all: Option<Vec<Tensor<D>>> = samples.iter().map(|(own, _)| of(own)).collect();
    all.map(|all| Tensor::cat(all, 0))
}
