//! A clip's job as clients see it.

use std::collections::BTreeMap;

use crate::json::Json;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use crate::jobs::{Job, Status};

/// The header that tells clients how long to wait before they ask again, in milliseconds.
const POLL_AFTER: &str = "openai-poll-after-ms";

/// A clip's job, with OpenAI's fields and some of ours.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Video {
    id: String,
    /// Always `video`.
    object: &'static str,
    model: String,
    /// `queued`, `in_progress`, `completed` or `failed`.
    status: &'static str,
    /// In percent, by the operations that are over.
    progress: u32,
    created_at: i64,
    completed_at: Option<i64>,
    /// When it is removed.
    expires_at: Option<i64>,
    /// How long the clip plays.
    seconds: String,
    /// Width x height.
    size: String,
    prompt: String,
    remixed_from_video_id: Option<String>,
    error: Option<VideoError>,
    /// The seed, which was drawn if none was given.
    seed: u64,
    num_frames: usize,
    fps: Option<f64>,
    /// Seconds of each stage.
    #[serde(skip_serializing_if = "Option::is_none")]
    stage_durations: Option<BTreeMap<String, f64>>,
    /// The most memory that the process has had until it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_memory_mb: Option<u64>,
    /// Seconds of all stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    inference_time_s: Option<f64>,
    /// What is good to know: text that is not read, pictures that are cropped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

/// Why a clip was not made.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct VideoError {
    code: String,
    message: String,
}

impl Video {
    /// A job as it is now.
    pub(crate) fn of(api: &Api, job: &Job) -> Video {
        let seen = api.jobs.live.of(&job.id);
        let progress = match job.status {
            Status::Queued | Status::Failed => 0,
            Status::InProgress => seen.as_ref().map_or(0, |seen| seen.percent()),
            Status::Completed => 100,
        };
        let made = job.made.as_ref();
        let error = job.failure.clone();
        Video {
            id: job.id.clone(),
            object: "video",
            model: job.ask.model.clone(),
            status: job.status.name(),
            progress,
            created_at: job.created_at,
            completed_at: job.completed_at,
            expires_at: job.completed_at.map(|ended| api.jobs.expires(ended)),
            seconds: job.seconds(),
            size: job.size_text(),
            prompt: job.ask.prompt.clone(),
            remixed_from_video_id: job.ask.remixed_from.clone(),
            error: error.map(|error| VideoError { code: error.code, message: error.message }),
            seed: job.ask.seed,
            num_frames: job.size[0],
            fps: job.fps,
            stage_durations: made.map(|made| made.stage_durations.iter().cloned().collect()),
            peak_memory_mb: made.and_then(|made| made.peak_memory_mb),
            inference_time_s: made
                .map(|made| made.stage_durations.iter().map(|(_, own)| own).sum()),
            notes: Vec::new(),
        }
    }

    /// The same with notes.
    pub(crate) fn with_notes(self, notes: Vec<String>) -> Video {
        Video { notes, ..self }
    }
}

/// The answer that shows a job, and when to ask again.
pub(crate) fn answer(api: &Api, video: &Video, job: &Job) -> Response {
    let mut response = Json(video).into_response();
    let left = api.jobs.live.of(&job.id).and_then(|seen| seen.seconds_left());
    // Four times until it is likely to be over, and no fewer than once in five seconds.
    let wait = left.map_or(1000, |seconds| (seconds * 250.0).clamp(100.0, 5000.0) as u64);
    if !job.status.is_over() {
        response.headers_mut().insert(POLL_AFTER, HeaderValue::from(wait));
    }
    response
}
