//! Server-sent events: how a job gets on, as it does.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::video::Video;
use super::{Api, Client, Shared, videos};
use crate::error::{Answer, Refusal};

/// Something is sent at least this often, so that nobody between takes the connection for dead.
const ALIVE: Duration = Duration::from_secs(15);

/// Events of a job come no faster.
const PACE: Duration = Duration::from_millis(100);

/// A body that comes as it is sent.
struct Events(mpsc::Receiver<Bytes>);

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|part| part.map(|part| Ok(Frame::data(part))))
    }
}

/// Where events go.
pub(crate) struct Sender(mpsc::Sender<Bytes>);

impl Sender {
    /// Sends an event; whether anybody still listens.
    pub(crate) async fn send(&self, name: &str, value: &Value) -> bool {
        let text = format!("event: {name}\ndata: {value}\n\n");
        self.0.send(Bytes::from(text)).await.is_ok()
    }

    /// Whether nobody listens any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Sends nothing, which shows that the connection lives.
    pub(crate) async fn keep_alive(&self) -> bool {
        self.0.send(Bytes::from_static(b": \n\n")).await.is_ok()
    }
}

/// A response whose events are sent later.
pub(crate) fn stream() -> (Sender, Response) {
    let (sender, receiver) = mpsc::channel(8);
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    (Sender(sender), (headers, Body::new(Events(receiver))).into_response())
}

/// Progress of a job as events: `progress` while it lasts, then `completed` or `failed`.
#[utoipa::path(get, path = "/v1/videos/{id}/events", tag = "videos",
    responses((status = 200, description = "Events of type text/event-stream"), (status = 404, description = "There is no such job")))]
pub(crate) async fn events(
    State(api): Shared,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Answer {
    videos::clip(&api, &id, &client)?;
    let (sender, response) = stream();
    tokio::spawn(follow(api, client, id, sender));
    Ok(response)
}

async fn follow(api: Arc<Api>, client: Client, id: String, sender: Sender) {
    let mut changed = api.jobs.live.watch();
    let mut before = None;
    loop {
        let (name, value) = match videos::clip(&api, &id, &client) {
            Err(refusal) => ("deleted", refusal.value()),
            Ok(job) => {
                let video = serde_json::to_value(Video::of(&api, &job));
                let mut value = video.unwrap_or_else(|error| Refusal::ours(&error).value());
                if let Some(seen) = api.jobs.live.of(&id) {
                    value["stage"] = json!(seen.stage);
                    value["step"] = json!(seen.steps[0]);
                    value["steps"] = json!(seen.steps[1]);
                    value["seconds_left"] = json!(seen.seconds_left());
                }
                (if job.status.is_over() { job.status.name() } else { "progress" }, value)
            }
        };
        let shown = without_time(&value);
        if before.as_ref() != Some(&shown) && !sender.send(name, &value).await {
            return;
        }
        before = Some(shown);
        if name != "progress" || api.jobs.is_stopping() {
            return;
        }
        tokio::time::sleep(PACE).await;
        if tokio::time::timeout(ALIVE, changed.changed()).await.is_err()
            && !sender.keep_alive().await
        {
            return;
        }
    }
}

/// What must change for an event to be sent.
fn without_time(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(all) = value.as_object_mut() {
        all.remove("seconds_left");
    }
    value
}
