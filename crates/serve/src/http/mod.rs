//! The HTTP API.

mod access;
mod blocking;
mod drain;
mod events;
mod files;
mod images;
mod loras;
mod metrics;
mod models;
mod openapi;
mod query;
mod studio;
mod submit;
mod video;
mod videos;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::json::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;

use crate::error::{Answer, Refusal};
use crate::form::Reading;
use crate::given::Decoding;
use crate::jobs::Jobs;
use crate::keys::Keys;
use crate::worker::Engine;

pub(crate) use self::access::Client;
pub(crate) use self::blocking::blocking;

/// What pages show, and which other pages may ask.
pub(crate) struct Pages {
    /// The folder of training runs.
    pub(crate) runs: Option<PathBuf>,
    /// Whether who asks must have a key.
    pub(crate) has_keys: bool,
    /// Origins of other pages that may use the API from a browser.
    pub(crate) origins: Vec<String>,
}

/// What all calls share.
pub(crate) struct Api {
    pub(crate) engine: Arc<Engine>,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) keys: Option<Keys>,
    pub(crate) reading: Reading,
    pub(crate) decoding: Decoding,
    pub(crate) pages: Arc<Pages>,
    pub(crate) started: Instant,
}

/// The state of a call.
pub(crate) type Shared = State<Arc<Api>>;

impl Api {
    pub(crate) fn new(
        engine: Arc<Engine>,
        jobs: Arc<Jobs>,
        keys: Option<Keys>,
        pages: Arc<Pages>,
    ) -> Api {
        let reading = Reading::new(engine.limits.body, engine.limits.receive);
        let decoding = Decoding::new();
        Api { engine, jobs, keys, reading, decoding, pages, started: Instant::now() }
    }
}

/// All paths.
pub(crate) fn router(api: Arc<Api>) -> Router {
    let guarded = Router::new()
        .route("/v1/videos", post(videos::create).get(videos::list))
        .route("/v1/videos/extensions", post(videos::extend))
        .route("/v1/videos/edits", post(videos::edit))
        .route("/v1/videos/{id}", get(videos::retrieve).delete(videos::delete))
        .route("/v1/videos/{id}/content", get(files::content))
        .route("/v1/videos/{id}/remix", post(videos::remix))
        .route("/v1/videos/{id}/events", get(events::events))
        .route("/v1/images/generations", post(images::generate))
        .route("/v1/images/edits", post(images::edit))
        .route("/v1/images/{id}/{file}", get(files::picture))
        .route("/v1/models", get(models::list))
        .route("/v1/models/{*id}", get(models::retrieve))
        .route("/v1/loras", get(models::loras))
        .route("/metrics", get(metrics::metrics))
        .route("/studio/api/models", get(studio::models))
        .route("/studio/api/models/{*id}", get(studio::model))
        .route("/studio/api/plan", get(studio::plan))
        .route("/studio/api/about", get(|| studio::about(&["generate", "training", "plan"])))
        .merge(runs(&api.pages))
        .route_layer(middleware::from_fn_with_state(api.clone(), access::guard));
    let limit = api.engine.limits.body;
    let open = Router::new()
        .merge(guarded)
        .route("/ready", get(ready))
        .route("/openapi.json", get(openapi::document));
    let pages = api.pages.clone();
    let drain = middleware::from_fn_with_state(limit, drain::drain);
    around(open, pages).layer(DefaultBodyLimit::max(limit)).layer(drain).with_state(api)
}

/// The paths of a page that shows training runs and nothing else.
pub(crate) fn runs_only(pages: Arc<Pages>) -> Router {
    let about = Router::new().route("/studio/api/about", get(|| studio::about(&["training"])));
    around(about.merge(runs(&pages)), pages)
}

/// Training runs.
fn runs<S: Clone + Send + Sync + 'static>(pages: &Arc<Pages>) -> Router<S> {
    Router::new()
        .route("/studio/api/runs", get(studio::runs::list))
        .route("/studio/api/runs/{run}", get(studio::runs::retrieve))
        .route("/studio/api/runs/{run}/metrics", get(studio::runs::metrics))
        .route("/studio/api/runs/{run}/files/{*path}", get(studio::runs::file))
        .with_state(pages.clone())
}

/// What stands around all paths: the page, errors of one form, and who is not let in.
fn around<S: Clone + Send + Sync + 'static>(paths: Router<S>, pages: Arc<Pages>) -> Router<S> {
    paths
        .route("/", get(studio::page))
        .route("/studio/{*path}", get(studio::file))
        .route("/health", get(health))
        .fallback(nothing)
        .method_not_allowed_fallback(no_method)
        .layer(middleware::from_fn_with_state(pages, access::origins))
        .layer(middleware::from_fn(access::shape))
}

/// Whether the process lives.
#[utoipa::path(get, path = "/health", tag = "server", responses((status = 200, description = "The process lives")))]
pub(crate) async fn health() -> Response {
    Json(json!({ "status": "ok" })).into_response()
}

/// Whether jobs are taken.
#[utoipa::path(get, path = "/ready", tag = "server", responses((status = 200, description = "Jobs are taken"), (status = 429, description = "The queue is full"), (status = 503, description = "The server stops")))]
pub(crate) async fn ready(State(api): Shared) -> Answer {
    api.jobs.check_room()?;
    Ok(Json(json!({ "status": "ready" })).into_response())
}

async fn nothing(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(80).collect();
    Refusal::not_found(format!("there is nothing at {path}"))
}

async fn no_method(request: Request) -> Refusal {
    let path: String = request.uri().path().chars().take(80).collect();
    Refusal::method(format!("{} is not known at {path}", request.method()))
}
