//! The requests: a listing of a revision, and downloads that are gone on with, checked and moved in.

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use ureq::http::{Response, StatusCode, header};
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::blob::{Blob, Hash};
use super::cache::{Cache, inner_path, make_folder_of, write_error};
use super::{Hub, HubEvent};
use crate::error::{Error, Result};

/// How often a download that breaks off is gone on with.
const ATTEMPTS: u32 = 5;

/// The pause before the second attempt; later ones are longer.
const PAUSE: Duration = Duration::from_millis(200);

/// A listing is never longer than this.
const LISTING_LIMIT: u64 = 64 << 20;

/// What stays as it is within one part of an address.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Why a model cannot be had.
pub(super) enum Failure {
    /// The hub does not answer, or breaks off; it may the next time, and a cache may have the model.
    Away(String),
    /// The hub does not give the model; a cache may have it.
    Denied(String),
    /// What the hub gave is wrong, or cannot be kept.
    Here(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Here(error)
    }
}

/// The files of a revision.
pub(super) struct Listing {
    /// The commit that the revision is now.
    pub(super) commit: String,
    /// All files of it.
    pub(super) files: Vec<Listed>,
}

/// A file as a listing has it.
#[derive(Deserialize)]
pub(super) struct Listed {
    /// Its path in the repository.
    #[serde(rename = "rfilename")]
    pub(super) path: String,
    size: Option<u64>,
    #[serde(rename = "blobId")]
    git_hash: Option<String>,
    lfs: Option<LargeFile>,
}

#[derive(Deserialize)]
struct LargeFile {
    sha256: String,
    size: u64,
}

#[derive(Deserialize)]
struct Revision {
    sha: String,
    #[serde(default)]
    siblings: Vec<Listed>,
}

/// Asks the hub about one model.
pub(super) struct Client<'a> {
    hub: &'a Hub,
    id: &'a str,
    agent: Agent,
}

impl<'a> Client<'a> {
    /// A client for the model `org/name`. Nothing is asked yet.
    pub(super) fn new(hub: &'a Hub, id: &'a str) -> Client<'a> {
        let certificates = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            .tls_config(certificates)
            .user_agent(concat!("moviola/", env!("CARGO_PKG_VERSION")))
            .redirect_auth_headers(ureq::config::RedirectAuthHeaders::SameHost)
            .timeout_connect(Some(Duration::from_secs(20)))
            .timeout_recv_response(Some(Duration::from_secs(60)))
            .timeout_per_read(Some(Duration::from_secs(60)))
            .build()
            .new_agent();
        Client { hub, id, agent }
    }

    /// The commit and the files of a branch, tag or commit.
    ///
    /// # Errors
    /// The hub does not answer, or has no such model for this user.
    pub(super) fn list(&self, revision: &str) -> Result<Listing, Failure> {
        let revision = utf8_percent_encode(revision, PLAIN);
        let address =
            format!("{}/api/models/{}/revision/{revision}?blobs=true", self.endpoint(), self.id);
        let mut response = self.get(&address, None)?;
        let text = response.body_mut().with_config().limit(LISTING_LIMIT).read_to_string();
        let text = text.map_err(|err| Failure::Away(format!("{address}: {err}")))?;
        let listing: Revision = serde_json::from_str(&text).map_err(|err| {
            Failure::Denied(format!("{address} answered with something else than a listing: {err}"))
        })?;
        // It becomes the name of a folder.
        if listing.sha.is_empty() || !listing.sha.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(self.refusal(&listing.sha, "this is no commit"));
        }
        Ok(Listing { commit: listing.sha, files: listing.siblings })
    }

    /// What a listed file must be. A mirror that lists no hashes is asked for the file's own.
    ///
    /// # Errors
    /// The hub does not say, or the file would lie outside the folder of the model.
    pub(super) fn identify(&self, commit: &str, file: &Listed) -> Result<Blob, Failure> {
        if inner_path(&file.path).is_none() {
            return Err(self.refusal(&file.path, "its path leaves the folder"));
        }
        let listed = match (&file.lfs, &file.git_hash, file.size) {
            (Some(large), ..) => Blob::new(&file.path, large.size, &large.sha256),
            (None, Some(hash), Some(size)) => Blob::new(&file.path, size, hash),
            _ => None,
        };
        match listed {
            Some(blob) => Ok(blob),
            None => self.identify_by_headers(commit, &file.path),
        }
    }

    fn identify_by_headers(&self, commit: &str, path: &str) -> Result<Blob, Failure> {
        let address = self.address(commit, path);
        // A redirect leads to a storage that knows other tags; the hub's own answer has the hash.
        let request = self.agent.head(&address).config().max_redirects(0);
        let request = self.signed(request.max_redirects_will_error(false).build());
        let response = request.call().map_err(|err| Failure::Away(format!("{address}: {err}")))?;
        let value = |names: [&str; 2]| {
            let found = names.iter().find_map(|name| response.headers().get(*name));
            found.and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let tag = value(["x-linked-etag", "etag"]);
        let size = value(["x-linked-size", "content-length"]).and_then(|text| text.parse().ok());
        let blob = tag.zip(size).and_then(|(tag, size)| Blob::new(path, size, &tag));
        blob.ok_or_else(|| self.refusal(path, "the hub does not say its length and hash"))
    }

    /// Brings a file into the cache. What an earlier attempt left is gone on with.
    ///
    /// # Errors
    /// The hub breaks off again and again, the file is not what it should be, or the disk refuses.
    pub(super) fn download(&self, commit: &str, blob: &Blob, cache: &Cache) -> Result<(), Failure> {
        let path = cache.incomplete(blob);
        make_folder_of(&path)?;
        let failed = |source| Failure::Here(write_error(&path, source));
        let mut download = Download::open(path.clone(), blob)?;
        let mut gone_on = download.done > 0;
        let mut last = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(PAUSE * attempt);
            }
            if download.done < blob.size {
                match self.go_on(commit, blob, &mut download) {
                    Err(Failure::Away(reason)) => {
                        (last, gone_on) = (reason, true);
                        continue;
                    }
                    other => other?,
                }
            }
            let hash = download.finish()?;
            if hash == blob.name {
                return fs::rename(&path, cache.blob(blob)).map_err(failed);
            }
            fs::remove_file(&path).map_err(failed)?;
            last = format!("its hash is {hash}, but the hub lists {}", blob.name);
            if !gone_on {
                return Err(self.refusal(&blob.path, &last));
            }
            // What lay here was of something else: once more from the first byte.
            gone_on = false;
            download = Download::open(path.clone(), blob)?;
        }
        Err(Failure::Away(format!(
            "{} broke off {ATTEMPTS} times ({last}); what came is kept, and the same command goes on",
            blob.path
        )))
    }

    /// Asks for the rest of a file and writes it down.
    fn go_on(&self, commit: &str, blob: &Blob, download: &mut Download) -> Result<(), Failure> {
        let address = self.address(commit, &blob.path);
        let mut response = self.get(&address, (download.done > 0).then_some(download.done))?;
        if !continues(&response, download.done) {
            download.restart(blob)?;
        }
        let mut body = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            let count = match body.read(&mut buffer) {
                Ok(0) if download.done < blob.size => {
                    let reason = format!("{} of {} bytes came", download.done, blob.size);
                    return Err(Failure::Away(reason));
                }
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(err) => return Err(Failure::Away(err.to_string())),
            };
            if download.done + count as u64 > blob.size {
                download.restart(blob)?;
                let reason = format!("it is longer than the {} bytes the hub lists", blob.size);
                return Err(self.refusal(&blob.path, &reason));
            }
            download.write(&buffer[..count])?;
            let (file, done, total) = (blob.path.as_str(), download.done, blob.size);
            (self.hub.report)(HubEvent::Fetching { file, done, total });
        }
    }

    /// An answer that is one; `from` asks for the bytes from there on.
    fn get(&self, address: &str, from: Option<u64>) -> Result<Response<Body>, Failure> {
        let mut request = self.signed(self.agent.get(address));
        if let Some(from) = from {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        let response = request.call().map_err(|err| Failure::Away(format!("{address}: {err}")))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let said = response.headers().get("x-error-message").and_then(|text| text.to_str().ok());
        let advice = match (status.as_u16(), &self.hub.token) {
            (401 | 403, None) => {
                "; a gated or private model needs a token (HF_TOKEN, or `hf auth login`) of a user who \
                 may read it"
            }
            (401 | 403, Some(_)) => {
                "; the token given (HF_TOKEN) is not of a user who may read it: accept the model's \
                 terms on its page, or check the token"
            }
            (404, _) => "; there is no such model, revision or file",
            _ => "",
        };
        let said = said.map(|text| format!(" ({text})")).unwrap_or_default();
        Err(Failure::Denied(format!("{address} answered {status}{said}{advice}")))
    }

    fn signed<T>(&self, request: ureq::RequestBuilder<T>) -> ureq::RequestBuilder<T> {
        match &self.hub.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }

    /// Where a file of a commit is.
    fn address(&self, commit: &str, path: &str) -> String {
        let parts: Vec<String> = path
            .split('/')
            .map(|download| utf8_percent_encode(download, PLAIN).to_string())
            .collect();
        format!("{}/{}/resolve/{commit}/{}", self.endpoint(), self.id, parts.join("/"))
    }

    fn endpoint(&self) -> &str {
        self.hub.endpoint.trim_end_matches('/')
    }

    fn refusal(&self, file: &str, reason: &str) -> Failure {
        Failure::Here(Error::Hub(format!("`{file}` of {} is refused: {reason}", self.id)))
    }
}

/// Whether an answer goes on after so many bytes, rather than beginning anew.
fn continues(response: &Response<Body>, done: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|text| text.to_str().ok());
    response.status() == StatusCode::PARTIAL_CONTENT
        && range.is_some_and(|range| range.starts_with(&format!("bytes {done}-")))
}

/// A file that is being downloaded, and the hash of what is here of it.
struct Download {
    path: PathBuf,
    file: File,
    hash: Hash,
    done: u64,
}

impl Download {
    /// What an earlier attempt left, or an empty file.
    fn open(path: PathBuf, blob: &Blob) -> Result<Download> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(|source| write_error(&path, source))?;
        let mut hash = blob.hash();
        let done = hash.update_from(&mut file).map_err(|source| Error::read(&path, source))?;
        Ok(Download { path, file, hash, done })
    }

    /// Drops what is here.
    fn restart(&mut self, blob: &Blob) -> Result<()> {
        (self.hash, self.done) = (blob.hash(), 0);
        let emptied = self.file.set_len(0).and_then(|()| self.file.rewind());
        emptied.map_err(|source| write_error(&self.path, source))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|source| write_error(&self.path, source))?;
        self.hash.update(bytes);
        self.done += bytes.len() as u64;
        Ok(())
    }

    /// Hands the bytes to the disk and says what their hash is.
    fn finish(self) -> Result<String> {
        self.file.sync_all().map_err(|source| write_error(&self.path, source))?;
        Ok(self.hash.finish())
    }
}
