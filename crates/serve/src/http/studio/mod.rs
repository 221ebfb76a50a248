//! The studio: a page of files that are part of the binary, and what it asks for beside the API.

pub(crate) mod runs;

use crate::json::Json;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use engine::{Media, Request};
use serde_json::{Value, json};

use super::query::{Asked, Parameters};
use super::{Client, Shared, blocking};
use crate::error::{Answer, Refusal};

const PAGE: &str = "text/html; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const DRAWING: &str = "image/svg+xml";

/// A file below `crates/serve/studio`.
macro_rules! file {
    ($name:literal, $kind:expr) => {
        ($name, $kind, include_bytes!(concat!("../../../studio/", $name)))
    };
}

/// The files of the page, each with its type and bytes.
const FILES: [(&str, &str, &[u8]); 22] = [
    file!("index.html", PAGE),
    file!("studio.css", STYLE),
    file!("generate.css", STYLE),
    file!("training.css", STYLE),
    file!("studio.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("jobs.js", SCRIPT),
    file!("form.js", SCRIPT),
    file!("given.js", SCRIPT),
    file!("commands.js", SCRIPT),
    file!("card.js", SCRIPT),
    file!("board.js", SCRIPT),
    file!("locked.js", SCRIPT),
    file!("generate.js", SCRIPT),
    file!("chart.js", SCRIPT),
    file!("log.js", SCRIPT),
    file!("looks.js", SCRIPT),
    file!("recipe.js", SCRIPT),
    file!("training.js", SCRIPT),
    file!("plan.js", SCRIPT),
    file!("icon.svg", DRAWING),
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

/// What there is to be seen.
pub(crate) async fn about(views: &[&str]) -> Answer {
    Ok(Json(json!({ "views": views })).into_response())
}

/// What forms for all models need to know.
pub(crate) async fn models(State(api): Shared) -> Answer {
    let data: Vec<Value> = api.engine.models.0.iter().map(crate::Model::facts).collect();
    Ok(Json(json!({ "data": data })).into_response())
}

/// What a form for a model needs to know.
pub(crate) async fn model(
    State(api): Shared,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Answer {
    let model = api.engine.models.find(Some(&id));
    let model = model.map_err(|refusal| Refusal::not_found(refusal.message()))?;
    let mut facts = model.facts();
    facts["loras"] = api.engine.loras.list().keys().cloned().collect();
    let limits = &api.engine.limits;
    facts["limits"] = json!({ "pixel_steps": limits.work, "prompt_bytes": limits.prompt, "body_bytes": limits.body });
    // Where files are is for those who have them.
    if client.has_machine() && !model.command().is_empty() {
        let loras = api.engine.loras.folder();
        facts["command"] = json!({ "arguments": model.command(), "loras": loras });
    }
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
