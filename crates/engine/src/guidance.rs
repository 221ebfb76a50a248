//! How a request is guided: what it asks for, checked against the model and filled in.

use diffusion::{Guidance, Terms};
use families::{CrossLevels, Description};
use nn::Tracks;

use crate::error::{Error, Field, Result};
use crate::request::Request;

/// Guidance beyond the scale, for models that have it; the model's own where nothing is said.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MoreGuidance {
    /// The scale of the sound.
    pub audio_scale: Option<f64>,
    /// Spatio-temporal guidance of the video: away from what is predicted without some attention.
    pub stg: Option<f64>,
    /// The same of the sound.
    pub audio_stg: Option<f64>,
    /// The blocks that it skips.
    pub stg_blocks: Option<Vec<usize>>,
    /// Modality guidance of the video: away from what is predicted without the sound.
    pub modality: Option<f64>,
    /// The same of the sound, without the video.
    pub audio_modality: Option<f64>,
    /// How much of what guidance adds to the video's deviation is taken back, 0 to 1.
    pub rescale: Option<f64>,
    /// The same of the sound.
    pub audio_rescale: Option<f64>,
    /// Whose noise levels count where the streams of a transformer meet.
    pub cross_levels: Option<CrossLevels>,
}

/// The guidance of a request.
pub(crate) struct GuidanceUsed {
    /// One for each expert.
    pub(crate) experts: Vec<Guidance>,
    pub(crate) stg_blocks: Vec<usize>,
    /// Everything that is used, for models that have it.
    pub(crate) more: Option<MoreGuidance>,
}

fn refuse<T>(field: Field, reason: &str) -> Result<T> {
    Err(Error::request(field, reason))
}

/// The guidance of a request for a model that makes these tracks; a distilled model of `few` steps has its
/// teacher's in itself, so that it is run without.
///
/// # Errors
/// Something cannot be, or would do nothing.
pub(crate) fn guidance(
    model: &Description,
    request: &Request,
    tracks: &Tracks<()>,
    few: bool,
) -> Result<GuidanceUsed> {
    if request.second_guidance.is_some() && model.transformers.len() == 1 {
        return refuse(Field::SecondGuidance, "this model has one expert; leave it out");
    }
    let usual = if few { 1.0 } else { model.defaults.guidance };
    let first = request.guidance.unwrap_or(usual);
    let Some(own) = model.defaults.terms else {
        alone(&request.more)?;
        let second = request.second_guidance.unwrap_or(first);
        let scales = [(Field::Guidance, first), (Field::SecondGuidance, second)];
        let scales = scales.into_iter().take(model.transformers.len());
        let experts = scales.map(|(field, scale)| Guidance::new(scale).map_err(of(field)));
        let experts = experts.collect::<Result<_>>()?;
        return Ok(GuidanceUsed { experts, stg_blocks: Vec::new(), more: None });
    };
    let more = &request.more;
    useful(more, tracks)?;
    let [video, audio] = if few { [Terms::NONE; 2] } else { [own.video, own.audio] };
    let video = Terms {
        scale: first,
        skip: more.stg.unwrap_or(video.skip),
        modality: more.modality.unwrap_or(video.modality),
        rescale: more.rescale.unwrap_or(video.rescale),
    };
    let audio = Terms {
        scale: more.audio_scale.unwrap_or(audio.scale),
        skip: more.audio_stg.unwrap_or(audio.skip),
        modality: more.audio_modality.unwrap_or(audio.modality),
        rescale: more.audio_rescale.unwrap_or(audio.rescale),
    };
    let video = checked(video, [Field::Guidance, Field::Stg, Field::Modality, Field::Rescale])?;
    let fields = [Field::AudioGuidance, Field::AudioStg, Field::AudioModality, Field::AudioRescale];
    let audio = checked(audio, fields)?;
    let guidance = Guidance::of(video, audio);
    let skips = guidance.branches(tracks).contains(&diffusion::Branch::Skipped);
    let stg_blocks = blocks(model, more, skips, own.skipped)?;
    if guidance.branches(tracks).len() == 1 {
        for (field, asked) in
            [(Field::Rescale, more.rescale), (Field::AudioRescale, more.audio_rescale)]
        {
            if asked.is_some_and(|rescale| rescale > 0.0) {
                return refuse(field, "nothing is guided, so nothing is taken back; leave it out");
            }
        }
    }
    let used = MoreGuidance {
        audio_scale: tracks.audio.map(|()| audio.scale),
        stg: tracks.video.map(|()| video.skip),
        audio_stg: tracks.audio.map(|()| audio.skip),
        stg_blocks: skips.then(|| stg_blocks.clone()),
        modality: both(tracks).then_some(video.modality),
        audio_modality: both(tracks).then_some(audio.modality),
        rescale: tracks.video.map(|()| video.rescale).filter(|_| guided(&guidance, tracks)),
        audio_rescale: tracks.audio.map(|()| audio.rescale).filter(|_| guided(&guidance, tracks)),
        cross_levels: more.cross_levels,
    };
    Ok(GuidanceUsed { experts: vec![guidance], stg_blocks, more: Some(used) })
}

fn guided(guidance: &Guidance, tracks: &Tracks<()>) -> bool {
    guidance.branches(tracks).len() > 1
}

fn both(tracks: &Tracks<()>) -> bool {
    tracks.video.is_some() && tracks.audio.is_some()
}

fn of(field: Field) -> impl Fn(diffusion::Error) -> Error {
    move |err| Error::request(field, err.to_string())
}

/// Terms that can be, or the field of the first that cannot.
fn checked(terms: Terms, [scale, skip, modality, rescale]: [Field; 4]) -> Result<Terms> {
    Terms::scaled(terms.scale).map_err(of(scale))?;
    Terms { skip: terms.skip, ..Terms::NONE }.checked().map_err(of(skip))?;
    Terms { modality: terms.modality, ..Terms::NONE }.checked().map_err(of(modality))?;
    Terms { rescale: terms.rescale, ..Terms::NONE }.checked().map_err(of(rescale))?;
    Ok(terms)
}

/// What was asked for, by field.
fn asked(more: &MoreGuidance) -> [(Field, bool); 9] {
    [
        (Field::AudioGuidance, more.audio_scale.is_some()),
        (Field::Stg, more.stg.is_some()),
        (Field::AudioStg, more.audio_stg.is_some()),
        (Field::StgBlocks, more.stg_blocks.is_some()),
        (Field::Modality, more.modality.is_some()),
        (Field::AudioModality, more.audio_modality.is_some()),
        (Field::Rescale, more.rescale.is_some()),
        (Field::AudioRescale, more.audio_rescale.is_some()),
        (Field::CrossTimestep, more.cross_levels.is_some()),
    ]
}

/// Refuses more guidance of a model that has a scale alone.
fn alone(more: &MoreGuidance) -> Result<()> {
    match asked(more).into_iter().find(|(_, is_asked)| *is_asked) {
        Some((field, _)) => refuse(field, "this model is guided by its prompt alone; leave it out"),
        None => Ok(()),
    }
}

/// Refuses guidance of what is not made.
fn useful(more: &MoreGuidance, tracks: &Tracks<()>) -> Result<()> {
    let needs = |field: Field| match field {
        Field::Stg | Field::Rescale if tracks.video.is_none() => Some("no video is made"),
        Field::AudioGuidance | Field::AudioStg | Field::AudioRescale if tracks.audio.is_none() => {
            Some("no sound is made")
        }
        Field::Modality | Field::AudioModality | Field::CrossTimestep if !both(tracks) => {
            Some("there are not both video and sound")
        }
        _ => None,
    };
    let is_asked = asked(more).into_iter().filter(|(_, is_asked)| *is_asked);
    for (field, _) in is_asked {
        if let Some(reason) = needs(field) {
            return refuse(field, &format!("{reason}; leave it out"));
        }
    }
    Ok(())
}

/// The blocks that are skipped, where any are.
fn blocks(
    model: &Description,
    more: &MoreGuidance,
    skips: bool,
    usual: usize,
) -> Result<Vec<usize>> {
    let Some(blocks) = &more.stg_blocks else { return Ok(vec![usual]) };
    if !skips {
        return refuse(Field::StgBlocks, "there is no spatio-temporal guidance; leave it out");
    }
    let depth = model.transformers[0].network.depth();
    if blocks.is_empty() || blocks.iter().any(|block| *block >= depth) {
        let reason = format!("it is {blocks:?}; the model has the blocks 0 to {}", depth - 1);
        return refuse(Field::StgBlocks, &reason);
    }
    Ok(blocks.clone())
}
