//! A job, from the moment it is accepted.

use serde::{Deserialize, Serialize};

use crate::ask::Ask;

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Queued,
    InProgress,
    Completed,
    Failed,
}

impl Status {
    /// What clients call it. There is no other word: theirs stop polling at one that they do not know.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Status::Queued => "queued",
            Status::InProgress => "in_progress",
            Status::Completed => "completed",
            Status::Failed => "failed",
        }
    }

    pub(super) fn named(name: &str) -> Status {
        let all = [Status::Queued, Status::InProgress, Status::Completed];
        all.into_iter().find(|status| status.name() == name).unwrap_or(Status::Failed)
    }

    /// Whether nothing more will happen.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Status::Completed | Status::Failed)
    }
}

/// Why a job came to nothing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    pub(crate) code: String,
    pub(crate) message: String,
}

/// What a job has made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// The names of its files within its folder: the clip, or pictures in their order.
    pub(crate) files: Vec<String>,
    /// A still of the clip.
    #[serde(default)]
    pub(crate) thumbnail: Option<String>,
    /// Some of its frames on one picture.
    #[serde(default)]
    pub(crate) spritesheet: Option<String>,
    /// Its sound.
    #[serde(default)]
    pub(crate) audio: Option<String>,
    /// Bytes of all files.
    pub(crate) bytes: u64,
    /// How long each stage took, in seconds.
    pub(crate) stage_durations: Vec<(String, f64)>,
    /// The most memory that the process has had so far, in MB.
    #[serde(default)]
    pub(crate) peak_memory_mb: Option<u64>,
}

/// A job.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Job {
    /// Its place in the order of jobs.
    pub(crate) number: i64,
    pub(crate) id: String,
    pub(crate) client: String,
    pub(crate) ask: Ask,
    pub(crate) status: Status,
    pub(crate) created_at: i64,
    pub(crate) started_at: Option<i64>,
    /// How often it was begun.
    pub(crate) begun: i64,
    pub(crate) completed_at: Option<i64>,
    /// Frames, height and width that are delivered.
    pub(crate) size: [usize; 3],
    pub(crate) fps: Option<f64>,
    pub(crate) failure: Option<Failure>,
    pub(crate) bytes: u64,
    pub(crate) made: Option<Made>,
}

impl Job {
    /// Whether it was begun so often before that it may be why it was not finished.
    pub(crate) fn is_suspect(&self) -> bool {
        // Of one that was taken, the last time counts too.
        super::is_suspect(self.begun - i64::from(self.status == Status::InProgress))
    }

    /// The same, of which the table no longer tells what was asked for or made.
    pub(super) fn lost(self) -> Job {
        let message = "the table no longer tells what was asked for; delete it and ask again";
        let failure = Failure { code: "server_error".to_owned(), message: message.to_owned() };
        Job { status: Status::Failed, failure: Some(failure), made: None, ..self }
    }

    /// How long its clip plays, as clients write it.
    pub(crate) fn seconds(&self) -> String {
        let seconds = self.size[0] as f64 / self.fps.unwrap_or(1.0);
        let text = format!("{seconds:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }

    /// Width and height, as clients write them.
    pub(crate) fn size_text(&self) -> String {
        format!("{}x{}", self.size[2], self.size[1])
    }
}
