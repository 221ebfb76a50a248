//! What was made, with ranges for players that seek.

use std::path::PathBuf;

use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use tower::ServiceExt;
use tower_http::services::ServeFile;

use super::query::{Asked, Parameters};
use super::{Client, Shared, videos};
use crate::ask::Makes;
use crate::error::{Answer, Refusal};
use crate::jobs::{Job, Status};

/// The files of a clip.
const VARIANTS: [&str; 4] = ["video", "thumbnail", "spritesheet", "audio"];

/// A clip, a still of it, a sheet of its frames or its sound.
#[utoipa::path(get, path = "/v1/videos/{id}/content", tag = "videos",
    params(("variant" = Option<String>, Query, description = "`video`, `thumbnail`, `spritesheet` or `audio`")),
    responses((status = 200, description = "The file"), (status = 206, description = "A part of it"), (status = 404, description = "There is no such file")))]
pub(crate) async fn content(
    State(api): Shared,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    query: Asked,
    request: Request,
) -> Answer {
    let asked = Parameters::of(query, &["variant"])?;
    let variant = asked.text("variant").unwrap_or("video");
    if !VARIANTS.contains(&variant) {
        let reason =
            format!("variant: there is none of this name; there are {}", VARIANTS.join(", "));
        return Err(Refusal::field("variant", reason));
    }
    let job = videos::clip(&api, &id, &client)?;
    let made = finished(&job)?;
    let name = match variant {
        "video" => made.files.first(),
        "thumbnail" => made.thumbnail.as_ref(),
        "spritesheet" => made.spritesheet.as_ref(),
        _ => made.audio.as_ref(),
    };
    let name = name.ok_or_else(|| Refusal::not_found(format!("`{id}` has no {variant}")))?;
    send(api.jobs.place(&job.id).join(name), request).await
}

/// A picture that was made.
#[utoipa::path(get, path = "/v1/images/{id}/{file}", tag = "images",
    responses((status = 200, description = "The picture"), (status = 404, description = "There is no such picture")))]
pub(crate) async fn picture(
    State(api): Shared,
    Extension(client): Extension<Client>,
    Path((id, file)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let job = api.jobs.find(&id, client.sees())?;
    let made = finished(&job)?;
    // Only names that the job knows.
    let name = made.files.iter().find(|name| job.ask.makes == Makes::Images && **name == file);
    let name = name.ok_or_else(|| Refusal::not_found(format!("`{id}` has no such picture")))?;
    send(api.jobs.place(&job.id).join(name), request).await
}

fn finished(job: &Job) -> Answer<&crate::jobs::Made> {
    match (&job.made, job.status) {
        (Some(made), Status::Completed) => Ok(made),
        (_, Status::Failed) => Err(Refusal::not_found(format!("`{}` has failed", job.id))),
        (_, status) => {
            let (id, name) = (&job.id, status.name());
            Err(Refusal::not_ready(format!("`{id}` is {name}; wait until it is completed")))
        }
    }
}

/// A file, or the range of it that is asked for.
pub(crate) async fn send(path: PathBuf, mut request: Request) -> Answer<Response> {
    // A range in a unit that is not known is none.
    let range = request.headers().get(header::RANGE).and_then(|own| own.to_str().ok());
    if range.is_some_and(|own| !own.trim_start().to_ascii_lowercase().starts_with("bytes=")) {
        request.headers_mut().remove(header::RANGE);
    }
    let sent = ServeFile::new(path).oneshot(request).await;
    let sent = sent.unwrap_or_else(|never| match never {});
    let mut response = sent.map(axum::body::Body::new).into_response();
    // No browser is to take a file for something else.
    let headers = response.headers_mut();
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    Ok(response)
}
