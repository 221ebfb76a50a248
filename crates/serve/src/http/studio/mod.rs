//! The studio: a page of files that are part of the binary, and what it asks for beside the API.

pub(crate) mod runs;

use crate::json::Json;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use engine::{Media, Request};
use serde_json::{Value, json};

use super::query::{Asked, Parameters};
use super::{Shared, blocking};
use crate::error::{Answer, Refusal};

/// The files of the page: name, type and bytes.
const FILES: [(&str, &str, &[u8]); 3] = [
    ("index.html", "text/html; charset=utf-8", include_bytes!("../../../studio/index.html")),
    ("studio.css", "text/css; charset=utf-8", include_bytes!("../../../studio/studio.css")),
    ("studio.js", "text/javascript; charset=utf-8", include_bytes!("../../../studio/studio.js")),
];

/// What the page may load: its own files, and clips that it was sent.
const POLICY: &str = "default-src 'self'; img-src 'self' data: blob:; media-src 'self' data: blob:; \
                      style-src 'self' 'unsafe-inline'; frame-ancestors 'none'";

/// Ranks that layouts are weighed for at the most.
const MOST_RANKS: usize = 64;

/// The page.
pub(crate) async fn page() -> Answer {
    sent("index.html")
}

/// A file of the page.
pub(crate) async fn file(Path(path): Path<String>) -> Answer {
    sent(&path)
}

fn sent(name: &str) -> Answer<Response> {
    let found = FILES.iter().find(|(known, _, _)| *known == name);
    let (_, kind, bytes) = found.ok_or_else(|| Refusal::not_found("the page has no such file"))?;
    let headers = [
        (header::CONTENT_TYPE, *kind),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, *bytes).into_response())
}

/// What forms for all models need to know.
pub(crate) async fn models(State(api): Shared) -> Answer {
    let data: Vec<Value> = api.engine.models.0.iter().map(crate::Model::facts).collect();
    Ok(Json(json!({ "data": data })).into_response())
}

/// What a form for a model needs to know.
pub(crate) async fn model(State(api): Shared, Path(id): Path<String>) -> Answer {
    let model = api.engine.models.find(Some(&id));
    let model = model.map_err(|refusal| Refusal::not_found(refusal.message()))?;
    let mut facts = model.facts();
    facts["loras"] = api.engine.loras.list().keys().cloned().collect();
    let limits = &api.engine.limits;
    facts["limits"] = json!({ "pixel_steps": limits.work, "prompt_bytes": limits.prompt, "body_bytes": limits.body });
    Ok(Json(facts).into_response())
}

/// What layouts of so many ranks would take.
pub(crate) async fn plan(State(api): Shared, query: Asked) -> Answer {
    let known = [
        "model",
        "ranks",
        "width",
        "height",
        "num_frames",
        "num_inference_steps",
        "guidance_scale",
        "n",
    ];
    let asked = Parameters::of(query, &known)?;
    blocking(move || {
        let model = api.engine.models.find(asked.text("model"))?;
        let ranks = asked.parsed("ranks", "1 to 64")?.unwrap_or(1);
        if !(1..=MOST_RANKS).contains(&ranks) {
            return Err(Refusal::field(
                "ranks",
                format!("ranks: it is {ranks}; give 1 to {MOST_RANKS}"),
            ));
        }
        let whole = "a whole number";
        let (height, width) = (asked.parsed("height", whole)?, asked.parsed("width", whole)?);
        let pipeline = model.pipeline();
        let mut request = Request {
            prompts: vec!["a plan".to_owned()],
            height,
            width,
            frames: asked.parsed("num_frames", whole)?,
            steps: asked.parsed("num_inference_steps", whole)?,
            guidance: asked.parsed("guidance_scale", "a number")?,
            count: asked.parsed("n", whole)?.unwrap_or(1),
            ..Request::default()
        };
        if let Some(grey) = pipeline.needed_picture(height, width).map_err(Refusal::of_engine)? {
            request.given[0].image = Some(Media::Frames(grey));
        }
        let value = api.engine.executor.layouts(&pipeline, &request, ranks);
        Ok(Json(value.map_err(Refusal::of_engine)?).into_response())
    })
    .await
}
