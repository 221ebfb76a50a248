//! From a body to a job that waits: read, checked against the model, accepted.

use std::path::Path;
use std::sync::Arc;

use axum::extract::Request;
use engine::{Fit, Seed};
use families::Condition;

use super::loras::loras;
use super::{Api, Client, blocking};
use crate::ask::{Ask, Makes, Numbers, PictureFormat};
use crate::error::{Answer, Refusal};
use crate::fields::{self, Fields};
use crate::jobs::{Job, Status, now};
use crate::model::Model;

/// A job that was accepted.
pub(crate) struct Accepted {
    pub(crate) job: Job,
    /// What whoever asked should know.
    pub(crate) notes: Vec<String>,
}

/// Who asks, and where what they sent is.
pub(crate) struct Asking<'a> {
    pub(crate) client: &'a Client,
    pub(crate) folder: &'a Path,
}

impl Api {
    /// Reads a body, makes of its fields what is asked for, checks that and lets it wait.
    ///
    /// # Errors
    /// Whatever is wrong with it; then nothing is left of it.
    pub(crate) async fn submit(
        self: Arc<Api>,
        client: Client,
        (makes, request): (Makes, Request),
        read: impl FnOnce(&Api, &mut Fields, &Asking<'_>) -> Answer<Ask> + Send + 'static,
    ) -> Answer<Accepted> {
        let (own, name) = (self.clone(), client.name.clone());
        let (id, folder, seat) = blocking(move || {
            let seat = own.jobs.reserve(&name)?;
            let id = own.jobs.new_id(makes)?;
            let folder = own.jobs.incoming(&id)?;
            Ok((id, folder, seat))
        })
        .await?;
        let place = folder.path().to_owned();
        // Where its files are is nobody's business.
        let hidden = |refusal: Refusal| refusal.without(&place);
        let form = self.reading.form(request, folder.path()).await?;
        let (own, asking_client) = (self.clone(), client.clone());
        let read = blocking(move || {
            let asking = Asking { client: &asking_client, folder: folder.path() };
            let mut fields = Fields::new(form, asking.folder);
            let ask = read(&own, &mut fields, &asking)?;
            let notes = fields.finish()?;
            let pixels = own.engine.given_pixels(&ask, asking.folder)?;
            Ok((ask, notes, pixels, folder))
        });
        let (ask, mut notes, pixels, folder) = read.await.map_err(hidden)?;
        let turn = self.decoding.turn(pixels).await?;
        let accept = blocking(move || {
            let checked = self.engine.check(&ask, folder.path())?;
            drop(turn);
            let job = Job {
                number: 0,
                id,
                client: client.name,
                ask,
                status: Status::Queued,
                created_at: now(),
                started_at: None,
                begun: 0,
                completed_at: None,
                size: checked.size,
                fps: checked.fps,
                failure: None,
                bytes: 0,
                made: None,
            };
            self.jobs.accept(&job, folder, seat)?;
            notes.extend(checked.notes);
            Ok(Accepted { job, notes })
        });
        accept.await.map_err(hidden)
    }

    /// The fields that clips and pictures share.
    pub(crate) fn ask(&self, fields: &mut Fields, makes: Makes) -> Answer<(Ask, &Model)> {
        let limits = &self.engine.limits;
        let prompt = fields.required("prompt")?;
        limits.check_prompt("prompt", &prompt)?;
        let negative = fields.text("negative_prompt")?.unwrap_or_default();
        limits.check_prompt("negative_prompt", &negative)?;
        let name = fields.text("model")?.filter(|name| !name.is_empty());
        let model = self.engine.models.find(name.as_deref())?;
        let seed: Option<Seed> =
            fields.parsed("seed", "a whole number from 0 on, or -1 to draw one")?;
        let seed = seed.unwrap_or(Seed::Random).number();
        let ask = Ask {
            makes,
            model: model.id().to_owned(),
            prompt,
            negative,
            seed,
            count: 1,
            numbers: numbers(fields)?,
            given: Vec::new(),
            loras: loras(fields)?,
            remixed_from: None,
            previews: 0,
            format: PictureFormat::Png,
        };
        // Who asks for themselves tells us nothing that is needed.
        fields.ignore("user");
        fields.ignore("safety_identifier");
        Ok((ask, model))
    }
}

/// Numbers of a request; the number of frames is a clip's own.
fn numbers(fields: &mut Fields) -> Answer<Numbers> {
    let size = fields.text("size")?;
    let size = fields::size(size)?;
    let (width, height) = (fields.whole("width")?, fields.whole("height")?);
    if size.is_some() && (width.is_some() || height.is_some()) {
        let reason = "size: width or height is given too; give one of them";
        return Err(Refusal::field("size", reason));
    }
    let fit = fields.text("fit")?;
    if let Some(name) = &fit
        && !Fit::ALL.iter().any(|(known, _)| known == name)
    {
        let all = Fit::ALL.map(|(name, _)| name).join(", ");
        return Err(Refusal::field("fit", format!("fit: there is no such way; there are {all}")));
    }
    Ok(Numbers {
        steps: fields.whole("num_inference_steps")?,
        guidance: fields.number("guidance_scale")?,
        second_guidance: fields.number("guidance_scale_2")?,
        height: size.map(|[_, height]| height).or(height),
        width: size.map(|[width, _]| width).or(width),
        frames: None,
        fps: None,
        flow_shift: fields.number("flow_shift")?,
        fit,
    })
}

/// The number of frames that a clip is to have: so many, or so many seconds of them beyond those that there are.
pub(crate) fn frames(
    fields: &mut Fields,
    model: &Model,
    fps: Option<f64>,
    there: usize,
) -> Answer<Option<usize>> {
    let frames = fields.whole("num_frames")?;
    let seconds = fields.number("seconds")?;
    match (frames, seconds) {
        (Some(_), Some(_)) => {
            let reason = "seconds: num_frames is given too; give one of them";
            Err(Refusal::field("seconds", reason))
        }
        (frames, None) => Ok(frames),
        (None, Some(seconds)) if !(seconds > 0.0 && seconds <= 3600.0) => {
            let reason = format!("seconds: it is {seconds}; give more than 0 and at most 3600");
            Err(Refusal::field("seconds", reason))
        }
        (None, Some(seconds)) => {
            let rate = fps.unwrap_or(model.description().defaults.frame_rate);
            Ok(Some(model.nearest_frames(there as f64 + seconds * rate)))
        }
    }
}

/// Everything that is given beside the prompt of a clip.
pub(crate) fn conditions(fields: &mut Fields, ask: &mut Ask) -> Answer<()> {
    let scale = fields.whole("reference_scale")?;
    let all: [(&[&str], Condition); 7] = [
        (&["input_reference", "image"], Condition::Image),
        (&["last_image"], Condition::LastImage),
        (&["video_prefix"], Condition::VideoPrefix),
        (&["video"], Condition::Video),
        (&["mask"], Condition::Mask),
        (&["reference"], Condition::Reference),
        (&["audio"], Condition::Audio),
    ];
    for (names, role) in all {
        let mut given = fields.media(names, role)?;
        if role == Condition::Reference {
            given.iter_mut().for_each(|own| own.scale = scale);
        } else if given.len() > 1 {
            let name = names[0];
            return Err(Refusal::field(name, format!("{name}: it is given more than once")));
        }
        ask.given.extend(given);
    }
    ask.given.extend(fields.keyframes()?);
    let has_reference = ask.given.iter().any(|own| own.role == Condition::Reference);
    match scale.is_some() && !has_reference {
        true => Err(Refusal::field(
            "reference_scale",
            "reference_scale: there is no reference; leave it out",
        )),
        false => Ok(()),
    }
}
