//! Files that appear whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use engine::{Error, Result};

/// Where a run's files go, found writable before any work starts.
pub(crate) struct Output {
    path: PathBuf,
    pictures: usize,
}

impl Output {
    /// Checks the extension and that the folder exists and can be written to.
    ///
    /// # Errors
    /// One of these does not hold.
    pub(crate) fn new(path: &Path, pictures: usize) -> Result<Output> {
        if path.extension().is_none_or(|extension| extension != "png") {
            return Err(Error::Request(format!(
                "--output {}: a picture is written as .png; give a name that ends in it",
                path.display()
            )));
        }
        writable(path)?;
        Ok(Output { path: path.to_owned(), pictures })
    }

    /// The path of picture `index`: the path as given, or numbered where there are several.
    pub(crate) fn picture(&self, index: usize) -> PathBuf {
        if self.pictures == 1 {
            return self.path.clone();
        }
        let stem = self.path.file_stem().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!("{stem}-{index:03}.png"))
    }
}

/// Checks that a file can be made at `path`, without leaving one.
///
/// # Errors
/// Its folder is missing or not writable, or the path is a folder.
pub(crate) fn writable(path: &Path) -> Result<()> {
    let refuse = |source| Error::File { verb: "write", path: path.to_owned(), source };
    if path.is_dir() {
        return Err(refuse(std::io::ErrorKind::IsADirectory.into()));
    }
    let aside = aside(path);
    fs::write(&aside, []).map_err(refuse)?;
    fs::remove_file(&aside).map_err(refuse)
}

/// Writes beside the target and renames, so that no one ever sees half a file.
///
/// # Errors
/// The system's.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let aside = aside(path);
    let done = fs::write(&aside, bytes).and_then(|()| fs::rename(&aside, path));
    done.map_err(|source| {
        // What could not be renamed must not stay; that it may fail too changes nothing.
        let _ = fs::remove_file(&aside);
        Error::File { verb: "write", path: path.to_owned(), source }
    })
}

fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.part", std::process::id()))
}
