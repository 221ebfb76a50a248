//! Models by hub id: a small client of the Hugging Face hub that shares the hub's own cache.
//!
//! One request lists the files of a revision with their hashes; what the cache lacks is downloaded
//! beside it, checked, and moved in. Python's `huggingface_hub` and this client can use one cache, also
//! at the same time.

mod blob;
mod cache;
mod client;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{Error, Result};
use cache::Cache;
use client::{Client, Failure};

/// What a model folder needs: configs, weights, tokenizers.
const EXTENSIONS: [&str; 4] = ["json", "safetensors", "model", "txt"];

/// The revision that an id without one means.
const DEFAULT_REVISION: &str = "main";

/// How the hub is reached and where its cache lies.
#[derive(Clone)]
pub struct Hub {
    /// Where the hub answers, like `https://huggingface.co`.
    pub endpoint: String,
    /// The folder of the hub's cache, which holds `models--org--name`.
    pub cache: PathBuf,
    /// The token of the user, for models that ask who wants them.
    pub token: Option<String>,
    /// Use only what the cache holds.
    pub offline: bool,
    /// Who is told how a download gets on.
    pub report: Arc<dyn Fn(HubEvent<'_>) + Send + Sync>,
}

/// What a user may want to know while a model is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubEvent<'a> {
    /// So much of a file is here.
    Fetching {
        /// Its path in the repository.
        file: &'a str,
        /// Bytes that are here.
        done: u64,
        /// Bytes of the whole file.
        total: u64,
    },
    /// The hub did not give the model; what an earlier run downloaded is used.
    FromCache {
        /// What the hub said.
        reason: &'a str,
    },
}

impl Hub {
    /// The cache in this folder, and no network.
    pub fn offline(cache: impl Into<PathBuf>) -> Hub {
        Hub {
            endpoint: String::new(),
            cache: cache.into(),
            token: None,
            offline: true,
            report: Arc::new(|_| ()),
        }
    }
}

/// The folder a user means: a path as it is, or `org/name[@revision]` through the hub's cache.
///
/// # Errors
/// It is neither, a downloaded file is not what the hub says it is, or the hub cannot be reached and the
/// cache does not have it.
pub fn locate(model: &str, hub: &Hub) -> Result<PathBuf> {
    let path = Path::new(model);
    if path.exists() {
        return Ok(path.to_owned());
    }
    match hub_id(model) {
        Some((id, revision)) => snapshot(model, id, revision.unwrap_or(DEFAULT_REVISION), hub),
        None => Err(Error::NoFolder(path.to_owned())),
    }
}

/// `org/name` and a revision, if it looks like that.
fn hub_id(model: &str) -> Option<(&str, Option<&str>)> {
    let (id, revision) = match model.split_once('@') {
        Some((id, revision)) => (id, Some(revision)),
        None => (model, None),
    };
    let (organisation, name) = id.split_once('/')?;
    let word = |word: &str| {
        !word.is_empty()
            && !word.starts_with('.')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let known = revision.is_none_or(|revision| cache::inner_path(revision).is_some());
    (word(organisation) && word(name) && known).then_some((id, revision))
}

/// The folder of a revision, brought up to date where the hub can be reached.
fn snapshot(model: &str, id: &str, revision: &str, hub: &Hub) -> Result<PathBuf> {
    let cache = Cache::new(&hub.cache, id);
    let failure = match hub.offline {
        true => "the network is off (HF_HUB_OFFLINE)".to_owned(),
        false => match fetch(id, revision, &cache, hub) {
            Ok(folder) => return Ok(folder),
            Err(Failure::Here(error)) => return Err(error),
            Err(Failure::Away(reason) | Failure::Denied(reason)) => reason,
        },
    };
    // Without a network, what an earlier run downloaded still serves.
    if let Some(folder) = cache.snapshot_of(revision) {
        if !hub.offline {
            (hub.report)(HubEvent::FromCache { reason: &failure });
        }
        return Ok(folder);
    }
    Err(Error::Hub(format!(
        "there is no folder `{model}`, and the hub could not give a model of that name: {failure}, and its \
         cache {} does not hold it; check the name and the network, or download the folder elsewhere \
         and give its path",
        hub.cache.display()
    )))
}

/// Asks the hub for a revision and downloads what the cache lacks of it.
fn fetch(id: &str, revision: &str, cache: &Cache, hub: &Hub) -> Result<PathBuf, Failure> {
    let client = Client::new(hub, id);
    let listing = client.list(revision)?;
    for file in &listing.files {
        let extension = Path::new(&file.path).extension().and_then(|own| own.to_str());
        if !extension.is_some_and(|own| EXTENSIONS.contains(&own)) {
            continue;
        }
        let blob = client.identify(&listing.commit, file)?;
        if !cache.has(&blob) {
            let _lock = cache.lock(&blob)?;
            // Another process may have downloaded it while this one waited.
            if !cache.has(&blob) {
                client.download(&listing.commit, &blob, cache)?;
            }
        }
        cache.link(&listing.commit, &blob)?;
    }
    // Last, so that a revision in the cache is a whole one.
    cache.record(revision, &listing.commit)?;
    Ok(cache.snapshot(&listing.commit))
}

#[cfg(test)]
mod tests {
    use super::hub_id;

    #[track_caller]
    fn check(model: &str, want: Option<(&str, Option<&str>)>) {
        assert_eq!(hub_id(model), want);
    }

    #[test]
    fn a_hub_id_is_two_words_and_perhaps_a_revision() {
        check("PixArt-alpha/PixArt-XL-2-512x512", Some(("PixArt-alpha/PixArt-XL-2-512x512", None)));
        check("a/b@main", Some(("a/b", Some("main"))));
        check("a/b@refs/pr/1", Some(("a/b", Some("refs/pr/1"))));
        check("a/b@", None);
        check("a/b@../../c", None);
        check("a/b@/c", None);
        check("/a/b", None);
        check("./a", None);
        check("../a", None);
        check("a/b/c", None);
        check("a", None);
    }
}
