//! A clip's job as clients see it.

use std::collections::BTreeMap;

use crate::json::Json;
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use families::Condition;
use serde::Serialize;
use utoipa::ToSchema;

use super::Api;
use crate::ask::{Ask, GivenFile};
use crate::error::wire_name;
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
    /// What was asked for beside; the model's own where it is not here.
    #[serde(flatten)]
    asked: Asked,
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

/// What a clip was asked for and the model would do otherwise.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Asked {
    #[serde(skip_serializing_if = "String::is_empty")]
    negative_prompt: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    num_inference_steps: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guidance_scale: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guidance_scale_2: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flow_shift: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fit: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    lora: Vec<AskedLora>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<AskedCondition>,
}

/// A LoRA of a clip.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AskedLora {
    name: String,
    scale: f32,
}

/// A file that was given beside a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AskedCondition {
    #[schema(value_type = String)]
    name: Condition,
    /// The field that it was sent as.
    field: &'static str,
    /// The name that the server gave it.
    file: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    frame: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scale: Option<usize>,
}

impl Asked {
    fn of(ask: &Ask) -> Asked {
        let condition = |given: &GivenFile| AskedCondition {
            name: given.role,
            field: wire_name(given.role.into()),
            file: given.file.clone(),
            frame: given.frame,
            scale: given.scale,
        };
        let numbers = &ask.numbers;
        Asked {
            negative_prompt: ask.negative.clone(),
            num_inference_steps: numbers.steps,
            guidance_scale: numbers.guidance,
            guidance_scale_2: numbers.second_guidance,
            flow_shift: numbers.flow_shift,
            fit: numbers.fit.clone(),
            lora: ask
                .loras
                .iter()
                .map(|own| AskedLora { name: own.name.clone(), scale: own.scale })
                .collect(),
            conditions: ask.given.iter().map(condition).collect(),
        }
    }
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
            asked: Asked::of(&job.ask),
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
