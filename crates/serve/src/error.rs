//! What can go wrong: before the server runs, and in an answer to a client.

use std::path::{Path, PathBuf};

use crate::json::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::Field;
use serde_json::json;

/// The result of what the binary calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file or folder of the server.
    #[error("cannot {verb} {}: {source}", path.display())]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The table of jobs.
    #[error(
        "the table of jobs: {0}; if it is damaged, move its folder away and start with a new one"
    )]
    Table(#[from] rusqlite::Error),
    /// Settings that cannot be.
    #[error("{0}")]
    Settings(String),
    /// Nothing can be run any more.
    #[error("{0}; what was being made begins again when the server is started again")]
    Lost(String),
    /// A model that cannot be opened.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}

impl Error {
    pub(crate) fn file(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_owned();
        move |source| Error::File { verb, path, source }
    }
}

/// The kinds of errors that clients of OpenAI know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Request,
    Key,
    NotFound,
    Busy,
    Ours,
}

/// An answer that says what is wrong: `{error: {message, type, param, code}}`.
#[derive(Debug, PartialEq)]
pub(crate) struct Refusal {
    status: StatusCode,
    kind: Kind,
    message: String,
    param: Option<String>,
    code: &'static str,
    retry_after: Option<u64>,
}

/// The result of a call of the API.
pub(crate) type Answer<T = Response> = std::result::Result<T, Refusal>;

impl Refusal {
    fn new(status: StatusCode, kind: Kind, code: &'static str, message: String) -> Refusal {
        Refusal { status, kind, message, param: None, code, retry_after: None }
    }

    /// A field that cannot be as it is.
    pub(crate) fn field(param: &str, message: impl Into<String>) -> Refusal {
        let message = message.into();
        let own = Refusal::new(StatusCode::BAD_REQUEST, Kind::Request, "invalid_value", message);
        Refusal { param: Some(param.to_owned()), ..own }
    }

    /// A field that nobody knows.
    pub(crate) fn unknown_field(param: &str, message: String) -> Refusal {
        Refusal { code: "unknown_parameter", ..Refusal::field(param, message) }
    }

    /// A body that cannot be read.
    pub(crate) fn body(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, Kind::Request, "invalid_body", message.into())
    }

    /// A body or an upload that is too large.
    pub(crate) fn too_large(message: impl Into<String>) -> Refusal {
        let status = StatusCode::PAYLOAD_TOO_LARGE;
        Refusal::new(status, Kind::Request, "request_too_large", message.into())
    }

    /// A body that did not come in time.
    pub(crate) fn too_slow(message: impl Into<String>) -> Refusal {
        let status = StatusCode::REQUEST_TIMEOUT;
        Refusal::new(status, Kind::Request, "request_timeout", message.into())
    }

    /// A body of a kind that is not read.
    pub(crate) fn media_type(message: impl Into<String>) -> Refusal {
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        Refusal::new(status, Kind::Request, "unsupported_media_type", message.into())
    }

    /// Something that is not there.
    pub(crate) fn not_found(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::NOT_FOUND, Kind::NotFound, "not_found", message.into())
    }

    /// A path that has no such method.
    pub(crate) fn method(message: impl Into<String>) -> Refusal {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        Refusal::new(status, Kind::Request, "method_not_allowed", message.into())
    }

    /// Something that is not there yet.
    pub(crate) fn not_ready(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::BAD_REQUEST, Kind::Request, "not_ready", message.into())
    }

    /// A key that is missing or wrong.
    pub(crate) fn key(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, Kind::Key, "invalid_api_key", message.into())
    }

    /// Something that this client may not do.
    pub(crate) fn forbidden(message: impl Into<String>) -> Refusal {
        Refusal::new(StatusCode::FORBIDDEN, Kind::Key, "forbidden", message.into())
    }

    /// A queue that is full; it may be tried again after so many seconds.
    pub(crate) fn busy(message: impl Into<String>, seconds: u64) -> Refusal {
        let status = StatusCode::TOO_MANY_REQUESTS;
        let own = Refusal::new(status, Kind::Busy, "queue_full", message.into());
        Refusal { retry_after: Some(seconds), ..own }
    }

    /// The server is going down.
    pub(crate) fn stopping() -> Refusal {
        let message = "the server is stopping; try again when it is up".to_owned();
        let status = StatusCode::SERVICE_UNAVAILABLE;
        let own = Refusal::new(status, Kind::Ours, "stopping", message);
        Refusal { retry_after: Some(5), ..own }
    }

    /// A job that failed while its client waited.
    pub(crate) fn failed(code: &str, message: String) -> Refusal {
        let code = if code == "timeout" { "timeout" } else { "generation_failed" };
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, Kind::Ours, code, message)
    }

    /// Our own fault; what happened is told on the server's side only.
    pub(crate) fn ours(error: &dyn std::fmt::Display) -> Refusal {
        eprintln!("error: {error}");
        let message = "the server could not do it; its log says why".to_owned();
        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, Kind::Ours, "server_error", message)
    }

    /// What a status says by itself.
    pub(crate) fn worded(status: StatusCode) -> Refusal {
        let kind = match status.as_u16() {
            404 => Kind::NotFound,
            400..500 => Kind::Request,
            _ => Kind::Ours,
        };
        let words = status.canonical_reason().unwrap_or("it cannot be done").to_lowercase();
        Refusal::new(status, kind, "invalid_request", words)
    }

    /// What the engine says of a request.
    pub(crate) fn of_engine(error: engine::Error) -> Refusal {
        match error {
            engine::Error::Request { field, reason } => {
                let param = wire_name(field);
                Refusal::field(param, format!("{param}: {reason}"))
            }
            engine::Error::Folder(_) | engine::Error::File { .. } => Refusal::ours(&error),
            other => Refusal::body(other.to_string()),
        }
    }

    /// The same about a field that has another name here.
    pub(crate) fn about(mut self, param: &str) -> Refusal {
        let Some(known) = self.param.replace(param.to_owned()) else { return self };
        if let Some(rest) = self.message.strip_prefix(&format!("{known}:")) {
            self.message = format!("{param}:{rest}");
        }
        self
    }

    /// What it says.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The same without the path of a folder: what is in it stays with its name, the folder itself is `the folder`.
    pub(crate) fn without(mut self, folder: &Path) -> Refusal {
        let path = folder.display().to_string();
        if !matches!(&*path, "" | "." | ".." | "/") {
            let below = format!("{path}{}", std::path::MAIN_SEPARATOR);
            self.message = self.message.replace(&below, "");
        }
        // A relative one may be a part of words.
        if folder.is_absolute() && path.len() > 1 {
            self.message = self.message.replace(&path, "the folder");
        }
        self
    }

    /// Whether it is our own fault.
    pub(crate) fn is_ours(&self) -> bool {
        self.kind == Kind::Ours
    }

    /// As the value of a server-sent event.
    pub(crate) fn value(&self) -> serde_json::Value {
        let kind = match self.kind {
            Kind::Request => "invalid_request_error",
            Kind::Key => "authentication_error",
            Kind::NotFound => "not_found_error",
            Kind::Busy => "rate_limit_error",
            Kind::Ours => "server_error",
        };
        let Refusal { message, param, code, .. } = self;
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::ours(&error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.value())).into_response();
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// What a field of a request is called on the wire.
pub(crate) fn wire_name(field: Field) -> &'static str {
    match field {
        Field::Negative => "negative_prompt",
        Field::Count => "n",
        Field::Steps => "num_inference_steps",
        Field::Guidance => "guidance_scale",
        Field::SecondGuidance => "guidance_scale_2",
        Field::Frames => "num_frames",
        Field::Image => "input_reference",
        Field::Lora | Field::SecondLora => "lora",
        other => other.name(),
    }
}
