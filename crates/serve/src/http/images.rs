//! `/v1/images`: pictures, for which the client waits.

use std::fs;
use std::sync::Arc;

use crate::json::Json;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::response::IntoResponse;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use families::Condition;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::events::{self, Sender};
use super::{Api, Client, Shared, blocking};
use crate::ask::{Ask, Makes, PictureFormat};
use crate::error::{Answer, Refusal};
use crate::fields::Fields;
use crate::jobs::{Job, Made, Status, now};

/// Pictures of a request at the most.
const MOST: usize = 10;

/// Previews of a stream at the most.
const MOST_PREVIEWS: usize = 3;

/// How a proxy says what clients speak with it.
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// How pictures are answered.
#[derive(Clone, Debug)]
struct Wish {
    as_url: bool,
    stream: bool,
    /// How events begin.
    event: &'static str,
    /// Where this server is, as the client calls it: scheme and host.
    origin: String,
}

/// Make pictures.
#[utoipa::path(post, path = "/v1/images/generations", tag = "images",
    request_body(content((super::openapi::ImageForm = "application/json"), (super::openapi::ImageForm = "multipart/form-data"))),
    responses((status = 200, description = "The pictures, or events of them"), (status = 400, description = "A field cannot be"), (status = 429, description = "The queue is full")))]
pub(crate) async fn generate(
    State(api): Shared,
    Extension(client): Extension<Client>,
    request: Request,
) -> Answer {
    images(api, client, request, "image_generation", |_, _| Ok(())).await
}

/// Make parts of a picture anew.
#[utoipa::path(post, path = "/v1/images/edits", tag = "images",
    request_body(content((super::openapi::ImageEditForm = "multipart/form-data"))),
    responses((status = 200, description = "The pictures, or events of them"), (status = 400, description = "The model takes no picture")))]
pub(crate) async fn edit(
    State(api): Shared,
    Extension(client): Extension<Client>,
    request: Request,
) -> Answer {
    images(api, client, request, "image_edit", |fields, ask| {
        let mask = fields.media(&["mask"], Condition::Mask)?;
        // What a mask changes is the whole clip of one frame; without one the picture is what it begins with.
        let role = if mask.is_empty() { Condition::Image } else { Condition::Video };
        let pictures = fields.pictures("image", role)?;
        if pictures.len() != 1 {
            return Err(Refusal::field("image", "image: give one picture"));
        }
        ask.given.extend(pictures);
        ask.given.extend(mask);
        fields.neutral("input_fidelity", &["low", "high"])
    })
    .await
}

async fn images(
    api: Arc<Api>,
    client: Client,
    request: Request,
    event: &'static str,
    more: impl FnOnce(&mut Fields, &mut Ask) -> Answer<()> + Send + 'static,
) -> Answer {
    let origin = origin(request.headers());
    let (send, wish) = oneshot::channel();
    let submitted = api.clone().submit(client, (Makes::Images, request), move |api, fields, _| {
        let (mut ask, model) = api.ask(fields, Makes::Images)?;
        if !model.makes_pictures() {
            ask.numbers.frames = Some(1);
        }
        let (as_url, stream) = wishes(fields, &mut ask)?;
        more(fields, &mut ask)?;
        // Nobody listens any more if this fails.
        let _ = send.send(Wish { as_url, stream, event, origin });
        Ok(ask)
    });
    let job = submitted.await?.job;
    let wish = wish.await.map_err(|error| Refusal::ours(&error))?;
    let waiting = Waiting { api: api.clone(), id: job.id.clone(), moves: None, is_over: false };
    if wish.stream {
        let (sender, response) = events::stream(&api);
        tokio::spawn(follow(waiting, job, wish, sender));
        return Ok(response);
    }
    let made = waiting.wait().await?;
    blocking(move || answer(&api, &job, &made, &wish))
        .await
        .map(|value| Json(value).into_response())
}

/// Where a client finds this server: scheme and host.
fn origin(headers: &HeaderMap) -> String {
    let told = |name: HeaderName| headers.get(name).and_then(|own| own.to_str().ok());
    let host = told(header::HOST).unwrap_or("localhost");
    // A proxy that ends TLS says so; whoever lies is told a wrong address, and nobody else is.
    let scheme = told(FORWARDED_PROTO).filter(|own| own.eq_ignore_ascii_case("https"));
    format!("{}://{host}", scheme.map_or("http", |_| "https"))
}

/// The fields of pictures: how many, as what, and how they are sent.
fn wishes(fields: &mut Fields, ask: &mut Ask) -> Answer<(bool, bool)> {
    ask.count = fields.whole("n")?.unwrap_or(1);
    if !(1..=MOST).contains(&ask.count) {
        return Err(Refusal::field("n", format!("n: it is {}; give 1 to {MOST}", ask.count)));
    }
    let as_url = match fields.text("response_format")?.as_deref() {
        None | Some("b64_json") => false,
        Some("url") => true,
        Some(_) => {
            return Err(Refusal::field(
                "response_format",
                "response_format: give `b64_json` or `url`",
            ));
        }
    };
    if let Some(name) = fields.text("output_format")? {
        let found = PictureFormat::ALL.into_iter().find(|(known, _)| *known == name);
        let reason = "output_format: give `png`, `jpeg` or `webp`";
        ask.format = found.ok_or_else(|| Refusal::field("output_format", reason))?.1;
    }
    let stream: bool = fields.parsed("stream", "true or false")?.unwrap_or(false);
    ask.previews = fields.whole("partial_images")?.unwrap_or(0);
    if ask.previews > MOST_PREVIEWS || (ask.previews > 0 && !stream) {
        let reason = format!("partial_images: give 0 to {MOST_PREVIEWS}, with `stream`");
        return Err(Refusal::field("partial_images", reason));
    }
    if stream && (as_url || ask.count > 1) {
        return Err(Refusal::field(
            "stream",
            "stream: one picture is sent as b64_json; leave n and response_format out",
        ));
    }
    for (name, allowed) in NEUTRAL {
        fields.neutral(name, allowed)?;
    }
    Ok((as_url, stream))
}

/// Fields of OpenAI's that mean nothing here, and what they may be.
const NEUTRAL: [(&str, &[&str]); 5] = [
    ("background", &["auto", "opaque"]),
    ("moderation", &["auto", "low"]),
    ("quality", &["auto", "standard"]),
    ("style", &["vivid", "natural"]),
    ("output_compression", &["100"]),
];

/// A job that a client waits for. One that is not waited for any more is given up.
struct Waiting {
    api: Arc<Api>,
    id: String,
    /// How often rows of the table had changed when it was last looked at.
    moves: Option<u64>,
    is_over: bool,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_over && !self.api.jobs.is_stopping() {
            let (api, id) = (self.api.clone(), self.id.clone());
            tokio::task::spawn_blocking(move || api.jobs.remove(&id));
        }
    }
}

impl Waiting {
    /// What was made, if it is over and may not have been before.
    fn look(&mut self, moves: u64) -> Answer<Option<Made>> {
        if self.moves.replace(moves) == Some(moves) {
            return Ok(None);
        }
        let job = self.api.jobs.find(&self.id, None)?;
        self.is_over = job.status.is_over();
        match (job.status, job.made, job.failure) {
            (Status::Completed, Some(made), _) => Ok(Some(made)),
            (Status::Failed, _, Some(failure)) => {
                Err(Refusal::failed(&failure.code, failure.message))
            }
            _ if self.api.jobs.is_stopping() => Err(Refusal::stopping()),
            _ => Ok(None),
        }
    }

    async fn wait(mut self) -> Answer<Made> {
        let mut changed = self.api.jobs.live.watch();
        loop {
            let moves = *changed.borrow_and_update();
            if let Some(made) = self.look(moves)? {
                return Ok(made);
            }
            // The one who sends outlives this.
            let _ = changed.changed().await;
        }
    }
}

fn answer(api: &Api, job: &Job, made: &Made, wish: &Wish) -> Answer<Value> {
    let one = |name: &String| -> Answer<Value> {
        match wish.as_url {
            true => {
                let (origin, id) = (&wish.origin, &job.id);
                Ok(json!({ "url": format!("{origin}/v1/images/{id}/{name}") }))
            }
            false => Ok(json!({ "b64_json": encoded(api, job, name)? })),
        }
    };
    let data = made.files.iter().map(one).collect::<Answer<Vec<Value>>>()?;
    Ok(json!({
        "created": now(),
        "data": data,
        "background": "opaque",
        "output_format": job.ask.format.name(),
        "size": job.size_text(),
        "usage": usage(),
        "seed": job.ask.seed,
    }))
}

fn encoded(api: &Api, job: &Job, name: &str) -> Answer<String> {
    let bytes =
        fs::read(api.jobs.place(&job.id).join(name)).map_err(|error| Refusal::ours(&error))?;
    Ok(STANDARD.encode(bytes))
}

/// Nothing here is paid by the token; clients want the field.
fn usage() -> Value {
    json!({
        "input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
        "input_tokens_details": { "image_tokens": 0, "text_tokens": 0 },
    })
}

/// Sends what is seen of a picture on its way, then the picture.
async fn follow(mut waiting: Waiting, job: Job, wish: Wish, mut sender: Sender) {
    let api = waiting.api.clone();
    let mut changed = api.jobs.live.watch();
    let event = |name: &str, picture: String, index: Option<usize>| {
        let mut value = json!({
            "type": format!("{}.{name}", wish.event),
            "b64_json": picture,
            "background": "opaque",
            "created_at": now(),
            "output_format": job.ask.format.name(),
            "quality": "auto",
            "size": job.size_text(),
        });
        match index {
            Some(index) => value["partial_image_index"] = json!(index),
            None => value["usage"] = usage(),
        }
        value
    };
    let mut shown = 0;
    loop {
        let moves = *changed.borrow_and_update();
        let previews = api.jobs.live.of(&job.id).map(|seen| seen.previews).unwrap_or_default();
        while let Some(preview) = previews.get(shown) {
            let value = event("partial_image", STANDARD.encode(preview), Some(shown));
            if !sender.send(&format!("{}.partial_image", wish.event), &value).await {
                return;
            }
            shown += 1;
        }
        let done = match waiting.look(moves) {
            Ok(None) => None,
            Ok(Some(made)) => {
                let (own, job) = (api.clone(), job.clone());
                let name = made.files.first().cloned().unwrap_or_default();
                Some(blocking(move || encoded(&own, &job, &name)).await)
            }
            Err(refusal) => Some(Err(refusal)),
        };
        match done {
            Some(Ok(picture)) => {
                let value = event("completed", picture, None);
                sender.send(&format!("{}.completed", wish.event), &value).await;
                return;
            }
            Some(Err(refusal)) => {
                sender.send("error", &refusal.value()).await;
                return;
            }
            None => {}
        }
        if !sender.wait(&mut changed).await {
            return;
        }
    }
}
