//! Files and folders that are made beside their target and appear whole or not at all.

use super::{Error, Result};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tempfile::{Builder, NamedTempFile, TempDir};

/// A file that is being written. Dropping it removes what there is.
pub(super) struct AsideFile {
    target: PathBuf,
    file: io::BufWriter<NamedTempFile>,
}

impl AsideFile {
    /// # Errors
    ///
    /// If the target's folder is missing or not writable, or the target is a folder.
    pub(super) fn create(target: &Path) -> Result<AsideFile> {
        let folder = folder_of(target)?;
        if target.is_dir() {
            let what = "there is a folder of this name; choose another name or remove it";
            return Err(Error::Occupied { path: target.to_owned(), what });
        }
        let file = beside(target, 0o666, |builder| builder.tempfile_in(folder))?;
        Ok(AsideFile { target: target.to_owned(), file: io::BufWriter::new(file) })
    }

    /// A second file in the same folder, without a name, for what cannot be written yet.
    pub(super) fn scratch(&self) -> Result<File> {
        tempfile::tempfile_in(folder_of(&self.target)?).map_err(|source| self.failure(source))
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|source| self.failure(source))
    }

    /// Writes over what is at `position`.
    pub(super) fn overwrite(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        let moved = self.file.seek(SeekFrom::Start(position));
        moved.and_then(|_| self.file.write_all(bytes)).map_err(|source| self.failure(source))
    }

    /// Lets the file appear at its target.
    pub(super) fn commit(self) -> Result<()> {
        let target = self.target;
        let failure = |source| Error::Write { path: target.clone(), source };
        let file = self.file.into_inner().map_err(|error| failure(error.into_error()))?;
        file.as_file().sync_all().map_err(failure)?;
        file.persist(&target).map_err(|error| failure(error.error))?;
        Ok(())
    }

    /// The error for a failure of the system.
    pub(super) fn failure(&self, source: io::Error) -> Error {
        Error::Write { path: self.target.clone(), source }
    }
}

impl Write for AsideFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A folder that is being filled. Dropping it removes what there is.
pub(super) struct AsideFolder {
    target: PathBuf,
    folder: TempDir,
}

impl AsideFolder {
    /// # Errors
    ///
    /// If the target's folder is missing or not writable, or the target holds something.
    pub(super) fn create(target: &Path) -> Result<AsideFolder> {
        let parent = folder_of(target)?;
        let is_free = match fs::read_dir(target) {
            Ok(mut entries) => entries.next().is_none(),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        if !is_free {
            let what = match target.is_dir() {
                true => "the folder is not empty; choose another name or empty it",
                false => "there is a file of this name; choose another name or remove it",
            };
            return Err(Error::Occupied { path: target.to_owned(), what });
        }
        let folder = beside(target, 0o777, |builder| builder.tempdir_in(parent))?;
        Ok(AsideFolder { target: target.to_owned(), folder })
    }

    /// Writes a file of the folder.
    pub(super) fn add(&self, name: &str, bytes: &[u8]) -> Result<()> {
        fs::write(self.folder.path().join(name), bytes).map_err(|source| self.failure(source))
    }

    /// Lets the folder appear at its target.
    pub(super) fn commit(self) -> Result<()> {
        // Renaming onto an empty folder works on some systems only.
        if self.target.is_dir() {
            fs::remove_dir(&self.target).map_err(|source| self.failure(source))?;
        }
        fs::rename(self.folder.path(), &self.target).map_err(|source| self.failure(source))?;
        // What it would remove has moved.
        let _ = self.folder.keep();
        Ok(())
    }

    fn failure(&self, source: io::Error) -> Error {
        Error::Write { path: self.target.clone(), source }
    }
}

/// The folder that holds `target`, which must exist.
fn folder_of(target: &Path) -> Result<&Path> {
    let folder = match target.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => {
            let what = "it is the root of all folders; give it a name";
            return Err(Error::Occupied { path: target.to_owned(), what });
        }
    };
    match folder.is_dir() {
        true => Ok(folder),
        false => Err(Error::NoFolder { path: target.to_owned(), folder: folder.to_owned() }),
    }
}

/// Makes something beside `target`, under a name like `.clip.mp4.Xy12.part` and with the
/// permissions that anything new has.
fn beside<T>(
    target: &Path,
    mode: u32,
    make: impl FnOnce(&Builder<'_, '_>) -> io::Result<T>,
) -> Result<T> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(".part");
    permit(&mut builder, mode);
    make(&builder).map_err(|source| Error::Write { path: target.to_owned(), source })
}

/// By default what is temporary belongs to its owner alone; this will be kept.
#[cfg(unix)]
fn permit(builder: &mut Builder<'_, '_>, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn permit(_builder: &mut Builder<'_, '_>, _mode: u32) {}
