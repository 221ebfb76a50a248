//! `/metrics`, in the words of Prometheus.

use std::fmt::Write;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use engine::most_memory;

use super::Shared;
use crate::error::Answer;

/// What the server does and has done.
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, description = "Text of Prometheus", body = String)))]
pub(crate) async fn metrics(State(api): Shared) -> Answer {
    let mut text = String::new();
    let put = "a string takes all that is written";
    text += "# HELP moviola_jobs Jobs in the table by status.\n# TYPE moviola_jobs gauge\n";
    let counts = api.jobs.counts()?;
    for status in ["queued", "in_progress", "completed", "failed"] {
        let count = counts.iter().find(|(known, _)| known == status).map_or(0, |(_, count)| *count);
        writeln!(text, "moviola_jobs{{status=\"{status}\"}} {count}").expect(put);
    }
    let totals = api.jobs.live.totals();
    text += "# HELP moviola_jobs_ended_total Jobs that have ended since the start, by outcome.\n# TYPE moviola_jobs_ended_total counter\n";
    for (outcome, count) in &totals.ended {
        writeln!(text, "moviola_jobs_ended_total{{outcome=\"{outcome}\"}} {count}").expect(put);
    }
    text += "# HELP moviola_stage_seconds_total Seconds that stages took since the start.\n# TYPE moviola_stage_seconds_total counter\n";
    for (stage, seconds) in &totals.stages {
        writeln!(text, "moviola_stage_seconds_total{{stage=\"{stage}\"}} {seconds}").expect(put);
    }
    text += "# HELP moviola_denoising_steps_total Denoising steps since the start.\n# TYPE moviola_denoising_steps_total counter\n";
    writeln!(text, "moviola_denoising_steps_total {}", totals.steps).expect(put);
    text += "# HELP moviola_runs_total Runs since the start; jobs that are alike and wait together share one.\n# TYPE moviola_runs_total counter\n";
    writeln!(text, "moviola_runs_total {}", totals.runs).expect(put);
    text += "# HELP moviola_progress_ratio How much of the job that runs is done.\n# TYPE moviola_progress_ratio gauge\n";
    writeln!(text, "moviola_progress_ratio {}", api.jobs.live.share()).expect(put);
    text += "# HELP moviola_watchers Clients that follow jobs or wait for pictures.\n# TYPE moviola_watchers gauge\n";
    writeln!(text, "moviola_watchers {}", api.jobs.live.watchers()).expect(put);
    if let Some(bytes) = most_memory() {
        text += "# HELP moviola_peak_memory_bytes The most memory that the process has had.\n# TYPE moviola_peak_memory_bytes gauge\n";
        writeln!(text, "moviola_peak_memory_bytes {bytes}").expect(put);
    }
    Ok(([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response())
}
