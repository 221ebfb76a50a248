//! What is given beside a prompt, read and checked against the model.

use data::media::Waveform;
use diffusion::{Geometry, ReferenceScale};
use families::{Condition, Description, EntersAs};

use crate::error::{Error, Field, Result};
use crate::media::{self, Pictures};
use crate::request::{Fit, Given};

/// What is given beside a prompt, in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GivenMedia {
    pub(crate) image: Option<Pictures>,
    pub(crate) last_image: Option<Pictures>,
    /// Pictures by the latent frame they stand for.
    pub(crate) keyframes: Vec<(usize, Pictures)>,
    /// Pictures by the frame that they show, whose tokens stand beside those of the clip.
    pub(crate) beside: Vec<(usize, Pictures)>,
    pub(crate) video_prefix: Option<Pictures>,
    pub(crate) video: Option<Pictures>,
    /// Which pixels of the whole clip are made anew.
    pub(crate) mask: Option<Vec<bool>>,
    /// Clips with their height and width in pixels, and how they relate to the target.
    pub(crate) references: Vec<GivenReference>,
    /// As long as the clip.
    pub(crate) audio: Option<GivenSound>,
}

/// A sound, channel by channel.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GivenSound {
    pub(crate) channels: Vec<Vec<f32>>,
    pub(crate) sample_rate: u32,
}

/// A reference, cut to the frames that are used.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GivenReference {
    pub(crate) pictures: Pictures,
    /// Height and width it is shown at.
    pub(crate) size: [usize; 2],
    pub(crate) scale: ReferenceScale,
}

impl GivenMedia {
    /// Reads and checks everything; `size` is that of the clip, `sound` the steps and seconds of its sound. Pictures
    /// of other proportions become those of the clip by `fit`.
    ///
    /// # Errors
    /// The model does not take a condition or lacks one, a file cannot be read, or does not fit.
    pub(crate) fn read(
        given: &Given,
        model: &Description,
        (size, fit): ([usize; 3], Fit),
        sound: Option<(usize, f64)>,
        only_audio: bool,
    ) -> Result<GivenMedia> {
        takes(given, model)?;
        together(given, model, sound.is_some())?;
        if given.image.is_some() && given.last_image.is_some() && size[0] == 1 {
            let reason = "the clip has one frame, which is given already; leave it out";
            return Err(Error::request(Field::LastImage, reason));
        }
        if only_audio {
            sound_alone(given)?;
        }
        let [frames, height, width] = size;
        let geometry = &model.geometry;
        let fitted = |pictures: Pictures| pictures.fitted([height, width], fit);
        let still = |media, field| Pictures::still(media, field).map(fitted).map(Some);
        let (keyframes, mut beside) = keyframes(given, model, frames, &fitted)?;
        let mut last_image =
            given.last_image.as_ref().map_or(Ok(None), |own| still(own, Field::LastImage))?;
        let last = geometry.latent_frames(frames)? - 1;
        if model.conditions.enters(Condition::LastImage) == Some(EntersAs::TokensBeside) && last > 0
        {
            // It stands for the first frame of the last group, as diffusers has it.
            beside.extend(last_image.take().map(|picture| (geometry.frames(last), picture)));
        }
        let read = GivenMedia {
            image: given.image.as_ref().map_or(Ok(None), |own| still(own, Field::Image))?,
            last_image,
            keyframes,
            beside,
            video_prefix: match &given.video_prefix {
                Some(media) => {
                    let clip = Pictures::read(media, Field::VideoPrefix, frames)?;
                    Some(fitted(prefix(clip, frames, geometry)?))
                }
                None => None,
            },
            video: match &given.video {
                Some(media) => {
                    let clip = Pictures::read(media, Field::Video, frames)?;
                    Some(fitted(whole(clip, frames, Field::Video)?))
                }
                None => None,
            },
            mask: match &given.mask {
                Some(media) => {
                    let clip = fitted(Pictures::read(media, Field::Mask, frames)?);
                    Some(mask(&clip, [frames, height, width])?)
                }
                None => None,
            },
            references: references(given, model, (size, fit))?,
            audio: heard(given, model, sound)?,
        };
        read.image_tokens(model)?;
        read.apart(model, frames, sound.is_some() && given.audio.is_none())?;
        Ok(read)
    }

    /// Whether no part of the clip is made.
    pub(crate) fn is_whole_clip(&self) -> bool {
        self.video.is_some() && self.mask.is_none()
    }

    /// Latent frames that are encoded.
    pub(crate) fn latent_frames(&self, model: &Description) -> usize {
        let stills = self.keyframes.len()
            + self.beside.len()
            + usize::from(self.image.is_some())
            + usize::from(self.last_image.is_some());
        let clips = [&self.video_prefix, &self.video].into_iter().flatten();
        let references = self.references.iter().map(|own| &own.pictures);
        let frames =
            clips.chain(references).map(|clip| clip.len().div_ceil(model.geometry.factors[0]));
        stills + frames.sum::<usize>()
    }

    /// Refuses pictures that would stand for the same latent frame, and a clip that is given whole by
    /// its pictures, unless its sound is made.
    fn apart(&self, model: &Description, frames: usize, sounds: bool) -> Result<()> {
        if model.conditions.enters(Condition::Image) == Some(EntersAs::Channels) {
            return Ok(());
        }
        for (at, (frame, _)) in self.beside.iter().enumerate() {
            let prefix = self.video_prefix.as_ref().map_or(0, Pictures::len);
            if *frame < prefix || self.beside[..at].iter().any(|(other, _)| other == frame) {
                let reason = format!("frame {frame} is given already; give one picture for it");
                return Err(Error::request(Field::Keyframe, reason));
            }
        }
        if self.mask.is_some() && !self.beside.is_empty() {
            let reason = "a picture of a later frame stands beside the clip, where no mask reaches; leave one of \
                          them out";
            return Err(Error::request(Field::Mask, reason));
        }
        let all = model.geometry.latent_frames(frames)?;
        let prefix = match &self.video_prefix {
            Some(clip) => model.geometry.latent_frames(clip.len())?,
            None => usize::from(self.image.is_some()),
        };
        let mut taken: Vec<usize> = (0..prefix).collect();
        let keyframes = self.keyframes.iter().map(|(at, _)| (*at, Field::Keyframe));
        let last = self.last_image.iter().map(|_| (all - 1, Field::LastImage));
        for (at, field) in keyframes.chain(last) {
            if taken.contains(&at) {
                let first = if at == 0 { 0 } else { model.geometry.frames(at) };
                let end = model.geometry.frames(at + 1) - 1;
                let reason = format!(
                    "frames {first} to {end} become one latent frame, for which something is given \
                     already; give one picture for all of them"
                );
                return Err(Error::request(field, reason));
            }
            taken.push(at);
        }
        match taken.len() == all && self.mask.is_none() && !sounds {
            true => Err(Error::request(
                Field::Frames,
                "pictures are given for the whole clip, and nothing is left to make; give fewer",
            )),
            false => Ok(()),
        }
    }

    /// Checks that the pictures give as many image tokens as the transformer looks at.
    fn image_tokens(&self, model: &Description) -> Result<()> {
        let Some(Some(wanted)) = model.image_tokens else { return Ok(()) };
        match (&self.image, &self.last_image) {
            (Some(_), Some(_)) => Ok(()),
            _ => Err(Error::request(
                Field::LastImage,
                format!(
                    "this model looks at {wanted} image tokens, those of a first and a last picture; give both"
                ),
            )),
        }
    }
}

/// Pictures by the latent frame that they stand for.
type Stills = Vec<(usize, Pictures)>;

/// Pictures for frames: by the latent frame that they fill, and by the frame that they show beside the clip.
fn keyframes(
    given: &Given,
    model: &Description,
    frames: usize,
    fitted: &dyn Fn(Pictures) -> Pictures,
) -> Result<(Stills, Stills)> {
    let (mut filling, mut beside) = (Vec::new(), Vec::new());
    let stands_beside =
        model.conditions.enters(Condition::Keyframe) == Some(EntersAs::TokensBeside);
    for (frame, media) in &given.keyframes {
        if *frame >= frames {
            let reason = format!("there is no frame {frame}; the clip has {frames}, from 0 on");
            return Err(Error::request(Field::Keyframe, reason));
        }
        let picture = fitted(Pictures::still(media, Field::Keyframe)?);
        match stands_beside && *frame > 0 {
            true => beside.push((*frame, picture)),
            false => filling.push((model.geometry.latent_frame(*frame), picture)),
        }
    }
    Ok((filling, beside))
}

/// Refuses a condition that a model does not take, before anything of it is read.
///
/// # Errors
/// It does not; those that it takes are named.
pub fn check_taken(condition: Condition, model: &Description) -> Result<()> {
    if model.conditions.enters(condition).is_some() {
        return Ok(());
    }
    let taken: Vec<String> = model.conditions.taken().map(|it| it.to_string()).collect();
    let taken = match taken.is_empty() {
        true => "prompts alone".to_owned(),
        false => format!("{} beside prompts", taken.join(", ")),
    };
    let reason = format!("this model was not made for one; it takes {taken}: leave it out");
    Err(Error::request(condition.into(), reason))
}

/// Refuses conditions that the model does not take, and the lack of one that it needs.
fn takes(given: &Given, model: &Description) -> Result<()> {
    let here = [
        (Condition::Image, given.image.is_some()),
        (Condition::LastImage, given.last_image.is_some()),
        (Condition::Keyframe, !given.keyframes.is_empty()),
        (Condition::VideoPrefix, given.video_prefix.is_some()),
        (Condition::Video, given.video.is_some()),
        (Condition::Mask, given.mask.is_some()),
        (Condition::Reference, !given.references.is_empty()),
        (Condition::Audio, given.audio.is_some()),
    ];
    for (condition, is_given) in here {
        if is_given {
            check_taken(condition, model)?;
        }
        if !is_given && model.conditions.required == Some(condition) {
            let reason = "this model makes clips from a picture; give one";
            return Err(Error::request(condition.into(), reason));
        }
    }
    Ok(())
}

/// Refuses conditions that contradict each other.
fn together(given: &Given, model: &Description, sounds: bool) -> Result<()> {
    let channels = model.conditions.enters(Condition::Image) == Some(EntersAs::Channels);
    if channels && given.last_image.is_some() && given.image.is_none() {
        return Err(Error::request(Field::LastImage, "it needs a first picture as well"));
    }
    if given.image.is_some() && given.video_prefix.is_some() {
        let reason = "a picture to begin with is given too; give one of them";
        return Err(Error::request(Field::VideoPrefix, reason));
    }
    let parts = given.image.is_some()
        || given.last_image.is_some()
        || given.video_prefix.is_some()
        || !given.keyframes.is_empty();
    if given.video.is_some() && parts {
        let reason = "the whole clip is given; leave out the pictures and the prefix";
        return Err(Error::request(Field::Video, reason));
    }
    if given.mask.is_some() && !parts && given.video.is_none() {
        let reason = "nothing is given that it could leave; give the clip too";
        return Err(Error::request(Field::Mask, reason));
    }
    if given.video.is_some() && given.mask.is_none() && (!sounds || given.audio.is_some()) {
        let reason = "the whole clip is given and nothing is left to make; give a mask";
        return Err(Error::request(Field::Video, reason));
    }
    Ok(())
}

/// Refuses what only a clip can be given where none is made.
fn sound_alone(given: &Given) -> Result<()> {
    let all = [
        (Field::Image, given.image.is_some()),
        (Field::LastImage, given.last_image.is_some()),
        (Field::Keyframe, !given.keyframes.is_empty()),
        (Field::VideoPrefix, given.video_prefix.is_some()),
        (Field::Mask, given.mask.is_some()),
        (Field::Reference, !given.references.is_empty()),
        (Field::Audio, given.audio.is_some()),
    ];
    match all.into_iter().find(|(_, is_given)| *is_given) {
        Some((field, _)) => {
            let reason = "the sound alone is made, which may be given a whole video; leave it out";
            Err(Error::request(field, reason))
        }
        None => Ok(()),
    }
}

/// The first frames of a clip: whole groups, and fewer than the clip has.
fn prefix(pictures: Pictures, frames: usize, geometry: &Geometry) -> Result<Pictures> {
    let count = pictures.len();
    if count >= frames {
        let reason =
            format!("it has {count} frames, and the clip {frames}; nothing would be left to make");
        return Err(Error::request(Field::VideoPrefix, reason));
    }
    geometry
        .latent_frames(count)
        .map_err(|err| Error::request(Field::VideoPrefix, err.to_string()))?;
    Ok(pictures)
}

/// The first `frames` frames, which must be there.
fn whole(pictures: Pictures, frames: usize, field: Field) -> Result<Pictures> {
    match pictures.len() >= frames {
        true => Ok(pictures.cut(frames)),
        false => {
            let reason = format!("it has {} frames, but the clip has {frames}", pictures.len());
            Err(Error::request(field, reason))
        }
    }
}

fn mask(pictures: &Pictures, [frames, height, width]: [usize; 3]) -> Result<Vec<bool>> {
    let pictures = match pictures.len() {
        1 => pictures.clone(),
        _ => whole(pictures.clone(), frames, Field::Mask)?,
    };
    let white = pictures.white(frames, [height, width]);
    match white.contains(&true) {
        true => Ok(white),
        false => {
            Err(Error::request(Field::Mask, "nothing in it is white, so nothing would be made"))
        }
    }
}

/// References, as many times smaller as they or the model say, with as many frames as the clip or fewer.
fn references(
    given: &Given,
    model: &Description,
    (size, fit): ([usize; 3], Fit),
) -> Result<Vec<GivenReference>> {
    let refuse = |reason: String| Error::request(Field::Reference, reason);
    let target = model.geometry.latents(size)?;
    let [frames, height, width] = size;
    let one = |(media, scale): &(_, Option<usize>)| -> Result<GivenReference> {
        let scale = scale.unwrap_or(model.conditions.reference_scale);
        if scale == 0 || !height.is_multiple_of(scale) || !width.is_multiple_of(scale) {
            return Err(refuse(format!("{height} x {width} cannot be {scale} times smaller")));
        }
        let pictures = Pictures::read(media, Field::Reference, frames)?;
        let pictures = pictures.fitted([height, width], fit);
        let own = [pictures.len(), height / scale, width / scale];
        let latents = model.geometry.latents(own).map_err(|err| refuse(err.to_string()))?;
        let scale =
            ReferenceScale::between(target, latents).map_err(|err| refuse(err.to_string()))?;
        Ok(GivenReference { pictures, size: [own[1], own[2]], scale })
    };
    given.references.iter().map(one).collect()
}

/// The sound that is given, where the model has one.
fn heard(
    given: &Given,
    model: &Description,
    sound: Option<(usize, f64)>,
) -> Result<Option<GivenSound>> {
    let (Some(audio), Some(own), Some((_, seconds))) = (&given.audio, &model.sound, sound) else {
        return Ok(None);
    };
    let [rate, _, _] = own.codec.clock();
    let wave = media::sound(audio, rate as u32)?;
    let refused = |err: nn::Error| Error::request(Field::Audio, err.to_string());
    own.codec.accepts(wave.sample_rate).map_err(refused)?;
    fitting(&wave, seconds).map(Some)
}

/// So many seconds of a sound: what is too long is cut, what is too short refused.
fn fitting(sound: &Waveform, seconds: f64) -> Result<GivenSound> {
    let mut channels = sound.split();
    let wanted = (seconds * f64::from(sound.sample_rate)).round() as usize;
    let length = channels.first().map_or(0, Vec::len);
    if length < wanted {
        let reason = format!("it has {length} samples, but the clip lasts {wanted}");
        return Err(Error::request(Field::Audio, reason));
    }
    channels.iter_mut().for_each(|own| own.truncate(wanted));
    Ok(GivenSound { channels, sample_rate: sound.sample_rate })
}
