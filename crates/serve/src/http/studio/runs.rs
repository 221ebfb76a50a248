//! Training runs of a folder, for the page: what there is, its log as it grows, its clips.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::json::Json;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::error::{Answer, Refusal};
use crate::http::query::{Asked, Parameters};
use crate::http::{Pages, blocking, files};

/// The state of a call.
type Shown = State<Arc<Pages>>;

/// The log of a run.
const LOG: &str = "metrics.jsonl";

/// What a run was told.
const RECIPE: &str = "recipe.yaml";

/// Bytes of a log that are sent at once.
const PART: u64 = 1 << 20;

/// No recipe is longer.
const LONGEST_RECIPE: u64 = 4 << 20;

/// Folders of a run whose files may be looked at.
const SHOWN: [&str; 1] = ["validation"];

/// Folders that are runs, by name.
fn found(pages: &Pages) -> Answer<Vec<(String, PathBuf)>> {
    let Some(folder) = &pages.runs else { return Ok(Vec::new()) };
    let is_run = |path: &FilePath| path.join(LOG).is_file() || path.join(RECIPE).is_file();
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| is_run(&entry.path()));
    let named =
        named.filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
    let mut all: Vec<(String, PathBuf)> = named.collect();
    // The folder may be a run itself. It is called by its own name, as a dot alone is not sent by a browser.
    if is_run(folder) {
        let own = folder.canonicalize().ok();
        let own = own.and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
        let mut name = own.unwrap_or_else(|| "run".to_owned());
        while all.iter().any(|(known, _)| *known == name) {
            name.push('_');
        }
        all.push((name, folder.clone()));
    }
    all.sort();
    Ok(all)
}

fn one(pages: &Pages, name: &str) -> Answer<PathBuf> {
    let found = found(pages)?.into_iter().find(|(known, _)| known == name);
    found.map(|(_, path)| path).ok_or_else(|| Refusal::not_found("there is no such run"))
}

/// All runs.
pub(crate) async fn list(State(pages): Shown) -> Answer {
    blocking(move || {
        let shown = |(name, path): (String, PathBuf)| {
            let log = fs::metadata(path.join(LOG)).ok();
            let changed = log.as_ref().and_then(|log| log.modified().ok());
            let changed =
                changed.and_then(|at| at.duration_since(UNIX_EPOCH).ok()).map(|at| at.as_secs());
            let last = last_line(&path.join(LOG));
            json!({
                "name": name,
                "changed_at": changed,
                "bytes": log.map_or(0, |log| log.len()),
                "step": last.as_ref().map(|last| last["step"].clone()),
                "losses": last.as_ref().map(|last| last["losses"].clone()),
            })
        };
        let data: Vec<Value> = found(&pages)?.into_iter().map(shown).collect();
        Ok(Json(json!({ "data": data })).into_response())
    })
    .await
}

/// The last whole line of a log.
fn last_line(path: &FilePath) -> Option<Value> {
    let mut file = kernels::open_file(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(PART))).ok()?;
    let mut bytes = Vec::new();
    file.take(PART).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let whole = &text[..text.rfind('\n')?];
    serde_json::from_str(whole.lines().next_back()?).ok()
}

/// A run: its recipe, checkpoints and clips.
pub(crate) async fn retrieve(State(pages): Shown, Path(run): Path<String>) -> Answer {
    blocking(move || {
        let path = one(&pages, &run)?;
        let recipe = kernels::open_file(&path.join(RECIPE)).ok().and_then(|file| {
            let mut text = String::new();
            file.take(LONGEST_RECIPE).read_to_string(&mut text).ok().map(|_| text)
        });
        let value = json!({
            "name": run,
            "recipe": recipe,
            "checkpoints": steps(&path.join("checkpoints"), "checkpoint-"),
            "validation": steps(&path.join("validation"), "").into_iter().map(|step| clips(&path, step)).collect::<Vec<_>>(),
            "has_report": path.join("report.html").is_file(),
        });
        Ok(Json(value).into_response())
    })
    .await
}

/// The steps that folders are named after.
fn steps(folder: &FilePath, prefix: &str) -> Vec<u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let step = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok();
    let mut all: Vec<u64> = entries.filter_map(step).collect();
    all.sort_unstable();
    all
}

/// The clips that were made after a step.
fn clips(run: &FilePath, step: u64) -> Value {
    let folder = format!("validation/{step:08}");
    let list = kernels::read_text(&run.join(&folder).join("clips.json"), LONGEST_RECIPE).ok();
    let list: Option<Value> = list.and_then(|list| serde_json::from_str(&list).ok());
    let entries = fs::read_dir(run.join(&folder)).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| !name.starts_with('.') && name != "clips.json");
    names.sort();
    json!({ "step": step, "folder": folder, "files": names, "clips": list })
}

/// The lines of a log from a place on, and where the next begin. A run that has not made its first step has none.
pub(crate) async fn metrics(State(pages): Shown, Path(run): Path<String>, query: Asked) -> Answer {
    let asked = Parameters::of(query, &["offset"])?;
    let offset: u64 = asked.parsed("offset", "a number of bytes")?.unwrap_or(0);
    blocking(move || {
        let path = one(&pages, &run)?.join(LOG);
        if !path.exists() {
            let none = json!({ "offset": 0, "restarted": offset > 0, "more": false, "lines": [] });
            return Ok(Json(none).into_response());
        }
        let gone = |_| Refusal::not_found("the run's log cannot be read");
        let mut file = kernels::open_file(&path).map_err(gone)?;
        let length = file.metadata().map_err(gone)?.len();
        // A run that goes on from a checkpoint has cut its log: begin anew.
        let is_cut = offset > length;
        let offset = if is_cut { 0 } else { offset };
        file.seek(SeekFrom::Start(offset)).map_err(gone)?;
        let mut bytes = Vec::new();
        file.take(PART).read_to_end(&mut bytes).map_err(gone)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let text = String::from_utf8_lossy(&bytes[..whole]);
        let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let next = offset + whole as u64;
        let value = json!({ "offset": next, "restarted": is_cut, "more": next < length && whole > 0, "lines": lines });
        Ok(Json(value).into_response())
    })
    .await
}

/// A file that a run shows. Nothing outside of its folder is, whatever it is called or linked to.
pub(crate) async fn file(
    State(pages): Shown,
    Path((run, path)): Path<(String, String)>,
    request: Request,
) -> Answer {
    let place = blocking(move || {
        let gone = || Refusal::not_found("the run has no such file");
        let folder = one(&pages, &run)?.canonicalize().map_err(|_| gone())?;
        let parts = FilePath::new(&path).components();
        let is_plain = parts.clone().all(|part| matches!(part, Component::Normal(_)));
        let is_shown = SHOWN
            .iter()
            .any(|shown| parts.clone().next() == Some(Component::Normal(shown.as_ref())));
        if !is_plain || !(is_shown || path == "report.html") {
            return Err(gone());
        }
        let place = folder.join(&path).canonicalize().map_err(|_| gone())?;
        match place.starts_with(&folder) && place.is_file() {
            true => Ok(place),
            false => Err(gone()),
        }
    })
    .await?;
    let mut response = files::send(place, request).await?;
    // A report is a page of the run's, not of the server's.
    let policy = HeaderValue::from_static(
        "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'",
    );
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    Ok(response)
}
