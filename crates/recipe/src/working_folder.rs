//! Where a run began: relative paths of its recipe are meant from there, wherever it goes on.
//!
//! The recipe stays as it was said, so that it is the same recipe in any folder and what is exported
//! has the same bytes.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::schema::Recipe;

/// Where a run keeps the folder in which it began.
const FILE: &str = "working_folder.txt";

/// No path is longer.
const LONGEST: u64 = 1 << 16;

/// The folder in which a run began, if it keeps it: runs of earlier versions do not.
///
/// # Errors
/// What it keeps cannot be read.
pub fn working_folder(run: &Path) -> Result<Option<PathBuf>> {
    let path = run.join(FILE);
    match kernels::read_text(&path, LONGEST) {
        Ok(text) => {
            let folder = PathBuf::from(text.trim_end_matches('\n'));
            Ok(folder.is_absolute().then_some(folder))
        }
        Err(err) => match err.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
            _ => Err(Error::file("read", &path, err)),
        },
    }
}

impl Recipe {
    /// The same recipe of a run that began in this folder.
    pub fn begun_in(self, working_folder: Option<PathBuf>) -> Recipe {
        Recipe { working_folder, ..self }
    }

    /// Leaves in a run the folder in which it began, unless the run has it: `here` if nothing else is known.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn keep_working_folder(&self, run: &Path, here: &Path) -> Result<()> {
        let folder = self.working_folder.as_deref().unwrap_or(here);
        // What is no text is not kept: such a run goes on where it began.
        let Some(text) = folder.to_str().filter(|_| folder.is_absolute()) else { return Ok(()) };
        if working_folder(run)?.is_some() {
            return Ok(());
        }
        let path = run.join(FILE);
        data::aside::write_whole(&path, format!("{text}\n").as_bytes())
            .map_err(|err| Error::file("write", &path, err))
    }

    /// A path or hub id of the recipe: as it stands if there is such a file here, or else from where the
    /// run began. A hub id stays what it is.
    pub(crate) fn located(&self, path: &str) -> String {
        let folder = self.working_folder.as_ref().filter(|_| !path.is_empty());
        let there = folder.map(|folder| folder.join(path)).filter(|there| there.exists());
        match there.as_deref().and_then(Path::to_str) {
            Some(there) if !Path::new(path).exists() => there.to_owned(),
            _ => path.to_owned(),
        }
    }
}
