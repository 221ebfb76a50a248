//! `/v1/videos`.

use std::fs;
use std::sync::Arc;

use crate::json::Json;
use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::{IntoResponse, Response};
use families::Condition;
use serde::Serialize;
use utoipa::ToSchema;

use super::query::{Asked, Parameters};
use super::submit::{self, Asking};
use super::video::{self, Video};
use super::{Api, Client, Shared, blocking};
use crate::ask::{Ask, GivenFile, Makes};
use crate::error::{Answer, Refusal};
use crate::fields::Fields;
use crate::given::Clip;
use crate::jobs::{Job, Page, Status};

/// Jobs of a page, unless told otherwise and at the most.
const USUAL_PAGE: usize = 20;
const LARGEST_PAGE: usize = 100;

/// A page of jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VideoList {
    /// Always `list`.
    object: &'static str,
    data: Vec<Video>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// A job that is no more.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VideoDeleted {
    id: String,
    /// Always `video.deleted`.
    object: &'static str,
    deleted: bool,
}

/// The answer to something that was accepted.
async fn accepted(
    api: Arc<Api>,
    client: Client,
    request: Request,
    read: impl FnOnce(&Api, &mut Fields, &Asking<'_>) -> Answer<Ask> + Send + 'static,
) -> Answer {
    let accepted = api.clone().submit(client, (Makes::Video, request), read).await?;
    let video = Video::of(&api, &accepted.job).with_notes(accepted.notes);
    Ok(video::answer(&api, &video, &accepted.job))
}

/// What a clip is asked for, but for its frames.
fn clip_ask<'a>(api: &'a Api, fields: &mut Fields) -> Answer<(Ask, &'a crate::Model)> {
    let (mut ask, model) = api.ask(fields, Makes::Video)?;
    if model.makes_pictures() {
        let reason = format!("model: `{}` makes pictures; ask /v1/images/generations", model.id());
        return Err(Refusal::field("model", reason));
    }
    ask.numbers.fps = fields.number("fps")?;
    fields.neutral("n", &["1"])?;
    Ok((ask, model))
}

/// Let a clip be made.
#[utoipa::path(post, path = "/v1/videos", tag = "videos",
    request_body(content((super::openapi::VideoForm = "multipart/form-data"), (super::openapi::VideoForm = "application/json"))),
    responses((status = 200, description = "It waits", body = Video), (status = 400, description = "A field cannot be"), (status = 429, description = "The queue is full")))]
pub(crate) async fn create(
    State(api): Shared,
    Extension(client): Extension<Client>,
    request: Request,
) -> Answer {
    accepted(api, client, request, |api, fields, _| {
        let (mut ask, model) = clip_ask(api, fields)?;
        ask.numbers.frames = submit::frames(fields, model, ask.numbers.fps, 0)?;
        submit::conditions(fields, &mut ask)?;
        Ok(ask)
    })
    .await
}

/// Make a clip again with another prompt: the same seed and settings.
#[utoipa::path(post, path = "/v1/videos/{id}/remix", tag = "videos",
    request_body(content((super::openapi::RemixForm = "application/json"))),
    responses((status = 200, description = "It waits", body = Video), (status = 404, description = "There is no such clip")))]
pub(crate) async fn remix(
    State(api): Shared,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    accepted(api, client, request, move |api, fields, asking| {
        let source = completed(api, &id, asking.client)?;
        let prompt = fields.required("prompt")?;
        api.engine.limits.check_prompt("prompt", &prompt)?;
        for GivenFile { file, .. } in &source.ask.given {
            copy(&api.jobs.place(&source.id).join(file), &asking.folder.join(file))?;
        }
        Ok(Ask { prompt, remixed_from: Some(source.id), ..source.ask })
    })
    .await
}

/// Go on with a clip.
#[utoipa::path(post, path = "/v1/videos/extensions", tag = "videos",
    request_body(content((super::openapi::ExtensionForm = "multipart/form-data"))),
    responses((status = 200, description = "It waits", body = Video), (status = 400, description = "The model takes no prefix")))]
pub(crate) async fn extend(
    State(api): Shared,
    Extension(client): Extension<Client>,
    request: Request,
) -> Answer {
    accepted(api, client, request, |api, fields, asking| {
        let (mut ask, model) = clip_ask(api, fields)?;
        let source = Source::take(api, fields, (Condition::VideoPrefix, model), asking)?;
        source.settle(&mut ask, model, fields);
        ask.numbers.frames = submit::frames(fields, model, ask.numbers.fps, source.frames)?;
        if ask.numbers.frames.is_none() {
            return Err(Refusal::field(
                "seconds",
                "seconds: it is missing; say how long the new part is",
            ));
        }
        ask.given.push(source.given);
        Ok(ask)
    })
    .await
}

/// Make a part of a clip anew: what a mask shows white.
#[utoipa::path(post, path = "/v1/videos/edits", tag = "videos",
    request_body(content((super::openapi::EditForm = "multipart/form-data"))),
    responses((status = 200, description = "It waits", body = Video), (status = 400, description = "The model takes no mask")))]
pub(crate) async fn edit(
    State(api): Shared,
    Extension(client): Extension<Client>,
    request: Request,
) -> Answer {
    accepted(api, client, request, |api, fields, asking| {
        let (mut ask, model) = clip_ask(api, fields)?;
        let source = Source::take(api, fields, (Condition::Video, model), asking)?;
        source.settle(&mut ask, model, fields);
        ask.numbers.frames = Some(model.frames_within(source.frames));
        ask.given.push(source.given);
        ask.given.extend(fields.media(&["mask"], Condition::Mask)?);
        Ok(ask)
    })
    .await
}

/// A clip that another begins with.
struct Source {
    given: GivenFile,
    frames: usize,
    /// Frames per second.
    rate: Option<f64>,
    /// Height and width, if it was made here.
    size: Option<[usize; 2]>,
}

impl Source {
    /// The clip of the field `video`: a file, or the id of one that was made here.
    fn take(
        api: &Api,
        fields: &mut Fields,
        (role, model): (Condition, &crate::Model),
        asking: &Asking<'_>,
    ) -> Answer<Source> {
        // Nothing is read for a model that would not take it.
        let taken = engine::check_taken(role, model.description());
        taken.map_err(|error| Refusal::of_engine(error).about("video"))?;
        if let Some(id) = fields.text("video[id]")? {
            let job = completed(api, &id, asking.client)?;
            let own = job.made.as_ref().and_then(|made| made.files.first()).cloned();
            let own = own.ok_or_else(|| Refusal::not_found(format!("`{id}` has no clip")))?;
            let file = "source.mp4".to_owned();
            copy(&api.jobs.place(&id).join(own), &asking.folder.join(&file))?;
            let given = GivenFile { role, file, frame: None, scale: None };
            let [frames, height, width] = job.size;
            return Ok(Source { given, frames, rate: job.fps, size: Some([height, width]) });
        }
        let mut all = fields.media(&["video"], role)?;
        let (Some(given), true) = (all.pop(), all.is_empty()) else {
            return Err(Refusal::field("video", "video: give one clip, as a file or as video[id]"));
        };
        let clip = Clip::probe(&asking.folder.join(&given.file), "video")?;
        Ok(Source { given, frames: clip.frames, rate: Some(clip.rate), size: None })
    }

    /// Lets a clip have the size and rate of the one that it begins with, where nothing else is said: it plays as fast as
    /// it did.
    fn settle(&self, ask: &mut Ask, model: &crate::Model, fields: &mut Fields) {
        let numbers = &mut ask.numbers;
        if let Some([height, width]) = self.size
            && numbers.width.is_none()
            && numbers.height.is_none()
        {
            (numbers.height, numbers.width) = (Some(height), Some(width));
        }
        let Some(rate) = self.rate else { return };
        let (asked, own) = (numbers.fps, model.description().defaults.frame_rate);
        let is_other = |fps: f64| (fps - rate).abs() > 1e-3 * rate;
        match asked {
            Some(fps) if is_other(fps) => fields.note(format!(
                "the clip has {rate} frames a second and plays at {fps} here: at another speed than it did"
            )),
            None if is_other(own) => fields.note(format!(
                "fps is {rate}, that of the clip; this model was made for {own} frames a second"
            )),
            _ => {}
        }
        numbers.fps = asked.or(Some(rate));
    }
}

/// A job of a client that is finished.
fn completed(api: &Api, id: &str, client: &Client) -> Answer<Job> {
    let job = api.jobs.find(id, client.sees())?;
    match job.status {
        Status::Completed if job.ask.makes == Makes::Video => Ok(job),
        Status::Completed => Err(Refusal::not_found(format!("`{id}` is no clip"))),
        status => Err(Refusal::not_ready(format!(
            "`{id}` is {}; wait until it is completed",
            status.name()
        ))),
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) -> Answer<()> {
    fs::copy(from, to).map(drop).map_err(|error| Refusal::ours(&error))
}

/// A clip's job as it is now.
#[utoipa::path(get, path = "/v1/videos/{id}", tag = "videos",
    responses((status = 200, description = "The job", body = Video), (status = 404, description = "There is no such job")))]
pub(crate) async fn retrieve(
    State(api): Shared,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Answer {
    let job = clip(&api, &id, &client)?;
    Ok(video::answer(&api, &Video::of(&api, &job), &job))
}

/// A clip's job of a client.
pub(crate) fn clip(api: &Api, id: &str, client: &Client) -> Answer<Job> {
    let job = api.jobs.find(id, client.sees())?;
    match job.ask.makes {
        Makes::Video => Ok(job),
        Makes::Images => Err(Refusal::not_found(format!("there is no `{id}`"))),
    }
}

/// Pages of jobs.
#[utoipa::path(get, path = "/v1/videos", tag = "videos",
    params(("after" = Option<String>, Query, description = "The last id of the page before"), ("limit" = Option<usize>, Query, description = "1 to 100"), ("order" = Option<String>, Query, description = "`asc` or `desc`")),
    responses((status = 200, description = "A page", body = VideoList)))]
pub(crate) async fn list(
    State(api): Shared,
    Extension(client): Extension<Client>,
    query: Asked,
) -> Answer {
    let asked = Parameters::of(query, &["after", "limit", "order"])?;
    let limit = asked.parsed("limit", "1 to 100")?.unwrap_or(USUAL_PAGE);
    if !(1..=LARGEST_PAGE).contains(&limit) {
        return Err(Refusal::field(
            "limit",
            format!("limit: it is {limit}; give 1 to {LARGEST_PAGE}"),
        ));
    }
    let ascending = match asked.text("order") {
        None | Some("desc") => false,
        Some("asc") => true,
        Some(_) => return Err(Refusal::field("order", "order: give `asc` or `desc`")),
    };
    let after = match asked.text("after") {
        None => None,
        Some(id) => {
            let number = api.jobs.number(id, client.sees())?;
            Some(number.ok_or_else(|| Refusal::field("after", "after: there is no such job"))?)
        }
    };
    // One more tells whether there are more.
    let page = Page {
        client: client.sees(),
        makes: Makes::Video.name(),
        after,
        ascending,
        limit: limit + 1,
    };
    let mut jobs = api.jobs.list(&page)?;
    let has_more = jobs.len() > limit;
    jobs.truncate(limit);
    let data: Vec<Video> = jobs.iter().map(|job| Video::of(&api, job)).collect();
    let (first_id, last_id) =
        (jobs.first().map(|job| job.id.clone()), jobs.last().map(|job| job.id.clone()));
    Ok(Json(VideoList { object: "list", data, first_id, last_id, has_more }).into_response())
}

/// Remove a job; one that runs is given up at its next step.
#[utoipa::path(delete, path = "/v1/videos/{id}", tag = "videos",
    responses((status = 200, description = "It is no more", body = VideoDeleted), (status = 404, description = "There is no such job")))]
pub(crate) async fn delete(
    State(api): Shared,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Answer<Response> {
    blocking(move || {
        let job = clip(&api, &id, &client)?;
        api.jobs.remove(&job.id)?;
        Ok(Json(VideoDeleted { id: job.id, object: "video.deleted", deleted: true })
            .into_response())
    })
    .await
}
