//! Server-sent events: how a job gets on, as it does.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::Extension;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::video::Video;
use super::{Api, Client, Shared, videos};
use crate::error::{Answer, Refusal};
use crate::jobs::{Job, Status};

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
pub(crate) struct Sender {
    parts: mpsc::Sender<Bytes>,
    /// How long nothing may be sent.
    alive: Duration,
    sent: Instant,
}

impl Sender {
    /// Sends an event; whether anybody still listens.
    pub(crate) async fn send(&mut self, name: &str, value: &Value) -> bool {
        self.put(Bytes::from(format!("event: {name}\ndata: {value}\n\n"))).await
    }

    async fn put(&mut self, part: Bytes) -> bool {
        self.sent = Instant::now();
        self.parts.send(part).await.is_ok()
    }

    /// Waits until something has changed, and shows meanwhile that the connection lives; whether anybody still listens.
    pub(crate) async fn wait(&mut self, changed: &mut watch::Receiver<u64>) -> bool {
        loop {
            let left = self.alive.saturating_sub(self.sent.elapsed());
            // What changes all the time may be of others only.
            if left.is_zero() && !self.put(Bytes::from_static(b": \n\n")).await {
                return false;
            }
            let left = self.alive.saturating_sub(self.sent.elapsed());
            if let Ok(is_heard) = tokio::time::timeout(left, self.heard(changed)).await {
                return is_heard;
            }
        }
    }

    /// Waits until something has changed, or nobody listens any more; whether somebody does.
    async fn heard(&self, changed: &mut watch::Receiver<u64>) -> bool {
        let (mut gone, mut change) = (pin!(self.parts.closed()), pin!(changed.changed()));
        poll_fn(|context| {
            if gone.as_mut().poll(context).is_ready() {
                return Poll::Ready(false);
            }
            change.as_mut().poll(context).map(|_| true)
        })
        .await
    }

    /// Lets a moment pass; whether anybody still listens.
    async fn pace(&self) -> bool {
        tokio::time::timeout(PACE, self.parts.closed()).await.is_err()
    }
}

/// A response whose events are sent later. Something is sent before a connection of this server would be idle for too
/// long.
pub(crate) fn stream(api: &Api) -> (Sender, Response) {
    let (parts, receiver) = mpsc::channel(8);
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
    let alive = ALIVE.min(api.engine.limits.idle / 2);
    let sender = Sender { parts, alive, sent: Instant::now() };
    (sender, (headers, Body::new(Events(receiver))).into_response())
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
    let (sender, response) = stream(&api);
    tokio::spawn(follow(api, client, id, sender));
    Ok(response)
}

async fn follow(api: Arc<Api>, client: Client, id: String, mut sender: Sender) {
    let mut changed = api.jobs.live.watch();
    let (mut row, mut before) = (None, None);
    loop {
        // The table is read only if something in it may have changed.
        let moves = *changed.borrow_and_update();
        let job = match row.take() {
            Some((then, job)) if then == moves => Ok(job),
            _ => videos::clip(&api, &id, &client),
        };
        let (name, value) = match &job {
            Err(refusal) => ("deleted", refusal.value()),
            Ok(job) => (event_name(job.status), shown(&api, job)),
        };
        let told = without_time(&value);
        if before.as_ref() != Some(&told) && !sender.send(name, &value).await {
            return;
        }
        before = Some(told);
        row = job.ok().map(|job| (moves, job));
        if name != "progress" || api.jobs.is_stopping() {
            return;
        }
        if !sender.pace().await || !sender.wait(&mut changed).await {
            return;
        }
    }
}

fn event_name(status: Status) -> &'static str {
    if status.is_over() { status.name() } else { "progress" }
}

/// A job with what is seen of it.
fn shown(api: &Api, job: &Job) -> Value {
    let video = serde_json::to_value(Video::of(api, job));
    let mut value = video.unwrap_or_else(|error| Refusal::ours(&error).value());
    if let Some(seen) = api.jobs.live.of(&job.id) {
        value["stage"] = json!(seen.stage);
        value["step"] = json!(seen.steps[0]);
        value["steps"] = json!(seen.steps[1]);
        value["seconds_left"] = json!(seen.seconds_left());
    }
    value
}

/// What must change for an event to be sent.
fn without_time(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(all) = value.as_object_mut() {
        all.remove("seconds_left");
    }
    value
}
