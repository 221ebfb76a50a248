//! Files that appear whole or not at all.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use engine::{Error, Result};

/// Where a run's files go, found writable before any work starts.
pub(crate) struct Output {
    path: PathBuf,
    pictures: usize,
}

impl Output {
    /// Checks that every picture, its record and the latents can be written, each to a file of its
    /// own.
    ///
    /// # Errors
    /// One of them cannot: a wrong extension, a missing folder, a folder in its place.
    pub(crate) fn new(path: &Path, pictures: usize, latents: Option<&Path>) -> Result<Output> {
        if path.extension().is_none_or(|extension| extension != "png") {
            return Err(Error::Request(format!(
                "--output {}: a picture is written as .png; give a name that ends in it",
                path.display()
            )));
        }
        writable(path)?;
        let output = Output { path: path.to_owned(), pictures };
        let files = (0..pictures).flat_map(|index| [output.picture(index), output.record(index)]);
        let files: Vec<PathBuf> = files.collect();
        files.iter().try_for_each(|file| no_folder(file))?;
        if let Some(latents) = latents {
            writable(latents)?;
            if let Some(file) = files.iter().find(|file| same_place(file, latents)) {
                return Err(Error::Request(format!(
                    "--save-latents {} would be overwritten by {}; give another name",
                    latents.display(),
                    file.display()
                )));
            }
        }
        Ok(output)
    }

    /// The path of picture `index`: the path as given, or numbered where there are several.
    pub(crate) fn picture(&self, index: usize) -> PathBuf {
        if self.pictures == 1 {
            return self.path.clone();
        }
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{index:03}.png"));
        self.path.with_file_name(name)
    }

    /// The path of what is needed to make picture `index` again.
    pub(crate) fn record(&self, index: usize) -> PathBuf {
        self.picture(index).with_extension("json")
    }
}

/// Checks that a file can be made at `path`, without leaving one.
///
/// # Errors
/// Its folder is missing or not writable, or the path is a folder or names no file.
fn writable(path: &Path) -> Result<()> {
    no_folder(path)?;
    let refuse = |source| Error::File { verb: "write", path: path.to_owned(), source };
    if path.file_name().is_none() {
        return Err(refuse(std::io::ErrorKind::InvalidFilename.into()));
    }
    let aside = aside(path);
    fs::write(&aside, []).map_err(refuse)?;
    fs::remove_file(&aside).map_err(refuse)
}

fn no_folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        let source = std::io::ErrorKind::IsADirectory.into();
        return Err(Error::File { verb: "write", path: path.to_owned(), source });
    }
    Ok(())
}

/// Whether two paths to write to name one file. Their folders exist.
fn same_place(left: &Path, right: &Path) -> bool {
    let folder = |path: &Path| {
        let parent = path.parent().filter(|parent| *parent != OsStr::new(""));
        fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()
    };
    left.file_name() == right.file_name() && folder(left) == folder(right)
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
