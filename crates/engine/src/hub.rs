//! Models by hub id.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The folder a user means: a path as it is, or `org/name[@revision]` through the hub's cache.
///
/// # Errors
/// It is neither, or the hub cannot be reached and the cache does not have it.
pub fn locate(model: &str) -> Result<PathBuf> {
    let path = Path::new(model);
    if path.exists() {
        return Ok(path.to_owned());
    }
    match hub_id(model) {
        Some((id, revision)) => download(model, id, revision),
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
    let known = revision != Some("");
    (word(organisation) && word(name) && known).then_some((id, revision))
}

fn download(model: &str, id: &str, revision: Option<&str>) -> Result<PathBuf> {
    let (owner, name) = id.split_once('/').expect("a hub id has a slash");
    let offline = |err: &dyn std::fmt::Display| {
        Error::Request(format!(
            "there is no folder `{model}`, and the hub could not give a model of that name: {err}; \
             check the name and the network, or download the folder elsewhere and give its path"
        ))
    };
    let client = hf_hub::HFClientSync::new().map_err(|err| offline(&err))?;
    let repository = client.model(owner, name);
    let patterns = || ["*.json", "*.safetensors", "*.model", "*.txt"].map(str::to_owned).to_vec();
    let snapshot = |only_cached: bool| {
        repository
            .snapshot_download()
            .allow_patterns(patterns())
            .maybe_revision(revision.map(str::to_owned))
            .local_files_only(only_cached)
            .send()
    };
    // Without a network, what an earlier run downloaded still serves.
    snapshot(false).or_else(|err| snapshot(true).map_err(|_| offline(&err)))
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
        check("a/b@", None);
        check("/a/b", None);
        check("./a", None);
        check("../a", None);
        check("a/b/c", None);
        check("a", None);
    }
}
