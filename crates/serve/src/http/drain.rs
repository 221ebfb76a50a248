//! Whoever is refused while still sending hears why: some of what comes is thrown away before the answer, because a
//! connection that closes with bytes unread takes the answer with it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Frame;

/// Bytes that are thrown away at the most.
const MOST: usize = 64 << 20;

/// How long nothing may come, and how long all of it may take.
const SILENCE: Duration = Duration::from_secs(1);
const TIME: Duration = Duration::from_secs(10);

/// A body that can still be read when whoever was given it has gone.
#[derive(Clone)]
struct Lent(Arc<Mutex<(Body, bool)>>);

impl Lent {
    /// Whether anything of it was asked for.
    fn is_begun(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

impl HttpBody for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        own.1 = true;
        Pin::new(&mut own.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.is_end_stream()
    }
}

/// Reads what is left of a body before a refusal is sent. `most` bounds it beside [`MOST`].
pub(crate) async fn drain(State(most): State<usize>, request: Request, next: Next) -> Response {
    // Whoever waits for leave to send has sent nothing.
    let waits = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    if body.is_end_stream() {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let lent = Lent(Arc::new(Mutex::new((body, false))));
    let response = next.run(Request::from_parts(parts, Body::new(lent.clone()))).await;
    let is_slow = response.status() == StatusCode::REQUEST_TIMEOUT;
    let is_refused = response.status().as_u16() >= 400;
    if is_refused && !is_slow && (lent.is_begun() || !waits) {
        let _ = tokio::time::timeout(TIME, throw_away(lent, most.min(MOST))).await;
    }
    response
}

async fn throw_away(mut body: Lent, most: usize) {
    let mut left = most;
    while let Ok(Some(Ok(part))) = tokio::time::timeout(SILENCE, body.frame()).await {
        let bytes = part.data_ref().map_or(0, Bytes::len);
        if bytes > left {
            return;
        }
        left -= bytes;
    }
}
