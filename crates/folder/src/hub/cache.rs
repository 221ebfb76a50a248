//! The hub's own cache: `models--org--name` with `refs`, `blobs` and `snapshots`, as
//! `huggingface_hub` lays it out.

use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

use super::blob::Blob;
use crate::error::{Error, Result};

/// No name of a commit is longer.
const LONGEST_REFERENCE: u64 = 4096;

/// The folder of one model in the cache.
pub(super) struct Cache {
    model: PathBuf,
    locks: PathBuf,
}

impl Cache {
    /// The folder of the model `org/name`.
    pub(super) fn new(cache: &Path, id: &str) -> Cache {
        let name = format!("models--{}", id.replace('/', "--"));
        Cache { model: cache.join(&name), locks: cache.join(".locks").join(&name) }
    }

    /// Where the content of a file lies.
    pub(super) fn blob(&self, blob: &Blob) -> PathBuf {
        self.model.join("blobs").join(&blob.name)
    }

    /// Where a file lies while it is downloaded.
    pub(super) fn incomplete(&self, blob: &Blob) -> PathBuf {
        self.model.join("blobs").join(format!("{}.incomplete", blob.name))
    }

    /// Whether a file is here whole. Its hash was checked before it got its name.
    pub(super) fn has(&self, blob: &Blob) -> bool {
        self.blob(blob).metadata().is_ok_and(|own| own.is_file() && own.len() == blob.size)
    }

    /// The folder of a commit.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.model.join("snapshots").join(commit)
    }

    /// The folder of a branch, tag or commit that was downloaded, if there is one.
    pub(super) fn snapshot_of(&self, revision: &str) -> Option<PathBuf> {
        let recorded = kernels::read_text(&self.reference(revision), LONGEST_REFERENCE);
        let commit = recorded.map_or_else(|_| revision.to_owned(), |text| text.trim().to_owned());
        let folder = self.snapshot(inner_path(&commit)?);
        folder.is_dir().then_some(folder)
    }

    /// Waits until no other process downloads the file, and keeps others out until the lock is dropped.
    ///
    /// # Errors
    /// The lock cannot be made.
    pub(super) fn lock(&self, blob: &Blob) -> Result<File> {
        let path = self.locks.join(format!("{}.lock", blob.name));
        make_folder_of(&path)?;
        let file = File::create(&path).map_err(|source| write_error(&path, source))?;
        file.lock().map_err(|source| write_error(&path, source))?;
        Ok(file)
    }

    /// Shows a file of the cache in the folder of a commit.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn link(&self, commit: &str, blob: &Blob) -> Result<()> {
        let path = self.snapshot(commit).join(&blob.path);
        let depth = Path::new(&blob.path).components().count() + 1;
        let target = std::iter::repeat_n("..", depth).collect::<PathBuf>();
        let target = target.join("blobs").join(&blob.name);
        if fs::read_link(&path).is_ok_and(|own| own == target) {
            return Ok(());
        }
        make_folder_of(&path)?;
        // Made aside and moved, so that a reader finds the old file or the new. A link says where it
        // points from its last place.
        let aside = self.snapshot(commit).join(format!(".{}.{}", blob.name, std::process::id()));
        let _ = fs::remove_file(&aside);
        show(&target, &self.blob(blob), &aside).map_err(|source| write_error(&aside, source))?;
        fs::rename(&aside, &path).map_err(|source| write_error(&path, source))
    }

    /// Writes down which commit a branch or tag is.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn record(&self, revision: &str, commit: &str) -> Result<()> {
        let path = self.reference(revision);
        let is_known = |text: String| text.trim() == commit;
        if revision == commit || kernels::read_text(&path, LONGEST_REFERENCE).is_ok_and(is_known) {
            return Ok(());
        }
        make_folder_of(&path)?;
        let aside = path.with_extension(format!("{}.incomplete", std::process::id()));
        fs::write(&aside, commit).map_err(|source| write_error(&aside, source))?;
        fs::rename(&aside, &path).map_err(|source| write_error(&path, source))
    }

    fn reference(&self, revision: &str) -> PathBuf {
        self.model.join("refs").join(revision)
    }
}

/// A path that stays inside the folder it is joined to; none for one that may leave it.
pub(super) fn inner_path(path: &str) -> Option<&str> {
    let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    (plain && !path.is_empty() && !path.contains(['\\', ':', '\0'])).then_some(path)
}

/// Makes the folder that a file is to lie in.
///
/// # Errors
/// It cannot be made.
pub(super) fn make_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|source| write_error(folder, source))
}

/// The error of a file of the cache that cannot be written.
pub(super) fn write_error(path: &Path, source: std::io::Error) -> Error {
    Error::File { verb: "write", path: path.to_owned(), source }
}

#[cfg(unix)]
fn show(target: &Path, _blob: &Path, link: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(target, link)
}

/// Symbolic links need rights that not every user has elsewhere.
#[cfg(not(unix))]
fn show(_target: &Path, blob: &Path, link: &Path) -> std::io::Result<()> {
    fs::hard_link(blob, link)
}
