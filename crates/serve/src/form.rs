//! Bodies: multipart forms and JSON, both as named fields.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Multipart, Request};
use axum::http::{StatusCode, header};
use http_body_util::BodyExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Answer, Refusal};
use crate::json_form;

/// Fields of a form at the most.
pub(crate) const MOST_FIELDS: usize = 128;

/// The longest name of a field.
const LONGEST_NAME: usize = 256;

/// Bytes of all texts of a body together: pictures as data URLs are texts.
const MOST_TEXT: usize = 16 << 20;

/// Texts of all bodies that are held, in units of [`UNIT`]: 512 MiB.
const BUDGET: usize = 8192;

/// Bytes that are counted together.
const UNIT: usize = 64 << 10;

/// What a field holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// As it was written.
    Text(String),
    /// Received into this file.
    File(PathBuf),
}

/// A body that was read: fields in their order, `key[sub]` for what is nested and `key[]` for what is listed.
#[derive(Debug, Default)]
pub(crate) struct Form {
    pub(crate) fields: Vec<(String, Value)>,
    /// The room that its texts take, for as long as they are there.
    pub(crate) held: Vec<OwnedSemaphorePermit>,
}

/// How bodies are read.
#[derive(Clone)]
pub(crate) struct Reading {
    /// Bytes of a body.
    most: usize,
    /// How long a body may take.
    time: Duration,
    budget: Arc<Semaphore>,
}

impl Reading {
    pub(crate) fn new(most: usize, time: Duration) -> Reading {
        Reading { most, time, budget: Arc::new(Semaphore::new(BUDGET)) }
    }

    /// Reads a body; files go into `folder`.
    ///
    /// # Errors
    /// It is of no known kind, damaged, too large or too slow.
    pub(crate) async fn form(&self, request: Request, folder: &Path) -> Answer<Form> {
        let slow = |_| {
            let seconds = self.time.as_secs();
            Refusal::too_slow(format!(
                "the body did not come within {seconds} seconds; send it faster"
            ))
        };
        tokio::time::timeout(self.time, self.read(request, folder)).await.map_err(slow)?
    }

    async fn read(&self, request: Request, folder: &Path) -> Answer<Form> {
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_owned();
        match kind.to_ascii_lowercase().as_str() {
            "multipart/form-data" => self.multipart(request, folder).await,
            "application/json" => self.json(request.into_body()).await,
            other => Err(Refusal::media_type(format!(
                "a body of type `{other}` is not read; send multipart/form-data or application/json"
            ))),
        }
    }

    async fn multipart(&self, request: Request, folder: &Path) -> Answer<Form> {
        let multipart = Multipart::from_request(request, &()).await;
        let mut multipart = multipart.map_err(|error| Refusal::body(error.to_string()))?;
        let mut form = Form::default();
        let mut texts = Texts::new(self.budget.clone());
        let damaged = |error: axum::extract::multipart::MultipartError| match error.status() {
            StatusCode::PAYLOAD_TOO_LARGE => self.too_large(),
            _ => Refusal::body(format!("the form is damaged: {}", error.body_text())),
        };
        while let Some(mut field) = multipart.next_field().await.map_err(damaged)? {
            let name = field.name().unwrap_or_default().to_owned();
            check_name(&name, form.fields.len())?;
            let value = match field.file_name().is_some() {
                true => {
                    let path = folder.join(format!("{:03}", form.fields.len()));
                    let mut file =
                        File::create_new(&path).map_err(|error| Refusal::ours(&error))?;
                    while let Some(part) = field.chunk().await.map_err(damaged)? {
                        file.write_all(&part).map_err(|error| Refusal::ours(&error))?;
                    }
                    Value::File(path)
                }
                false => {
                    let mut bytes = Vec::new();
                    while let Some(part) = field.chunk().await.map_err(damaged)? {
                        texts.take(part.len())?;
                        bytes.extend(part);
                    }
                    Value::Text(text(bytes, &name)?)
                }
            };
            form.fields.push((name, value));
        }
        form.held = texts.held;
        Ok(form)
    }

    async fn json(&self, mut body: Body) -> Answer<Form> {
        let mut texts = Texts::new(self.budget.clone());
        let mut bytes = Vec::new();
        while let Some(part) = body.frame().await {
            let part =
                part.map_err(|error| Refusal::body(format!("the body ended early: {error}")))?;
            let Ok(part) = part.into_data() else { continue };
            if bytes.len() + part.len() > self.most {
                return Err(self.too_large());
            }
            texts.take(part.len())?;
            bytes.extend(part);
        }
        Ok(Form { held: texts.held, ..json_form::read(&bytes)? })
    }

    fn too_large(&self) -> Refusal {
        Refusal::too_large(format!("the body is larger than {} bytes; send less", self.most))
    }
}

/// Refuses a field of no name, or one too many.
///
/// # Errors
/// It is one.
pub(crate) fn check_name(name: &str, fields: usize) -> Answer<()> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(Refusal::body(format!(
            "a field has no name, or one of more than {LONGEST_NAME} bytes"
        )));
    }
    match fields < MOST_FIELDS {
        true => Ok(()),
        false => Err(Refusal::body(format!("there are more than {MOST_FIELDS} fields"))),
    }
}

fn text(bytes: Vec<u8>, name: &str) -> Answer<String> {
    String::from_utf8(bytes).map_err(|_| Refusal::field(name, format!("{name}: it is not UTF-8")))
}

/// Counts the bytes of texts that are held.
struct Texts {
    budget: Arc<Semaphore>,
    held: Vec<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Texts {
    fn new(budget: Arc<Semaphore>) -> Texts {
        Texts { budget, held: Vec::new(), bytes: 0 }
    }

    /// Counts some more.
    fn take(&mut self, bytes: usize) -> Answer<()> {
        self.bytes += bytes;
        if self.bytes > MOST_TEXT {
            return Err(Refusal::too_large(format!(
                "the texts of the body have more than {MOST_TEXT} bytes; upload files as a multipart form"
            )));
        }
        while self.held.len() * UNIT < self.bytes {
            let permit = Arc::clone(&self.budget).try_acquire_owned();
            let busy = |_| Refusal::busy("too many large bodies at once; try again in a moment", 1);
            self.held.push(permit.map_err(busy)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Body;
    use axum::extract::Request;

    use super::{BUDGET, Reading, UNIT};

    /// What texts take is counted for as long as they are there, and not only while they come.
    #[test]
    fn texts_are_counted_until_they_are_gone() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        runtime.expect("a runtime").block_on(async {
            let reading = Reading::new(64 << 20, Duration::from_secs(60));
            let folder = tempfile::tempdir().expect("a folder");
            let long = "x".repeat(10 * UNIT);
            let json = format!("{{\"prompt\": \"{long}\"}}");
            let form = format!(
                "--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n{long}\r\n--b--\r\n"
            );
            let kinds = ["application/json", "multipart/form-data; boundary=b"];
            for (kind, body) in kinds.into_iter().zip([json, form]) {
                let request = Request::post("/").header("content-type", kind);
                let request = request.body(Body::from(body)).expect("a request");
                let form = reading.form(request, folder.path()).await.expect("a form");
                assert_eq!(form.fields.len(), 1);
                assert!(reading.budget.available_permits() <= BUDGET - 10, "{kind}");
                drop(form);
                assert_eq!(reading.budget.available_permits(), BUDGET, "{kind}");
            }
        });
    }
}
