//! What a run reads, which nothing that it writes may replace.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use data::media::is_picture;
use engine::{Error, Result};
use folder::ModelFolder;

/// The places of all files that a run reads.
#[derive(Debug, Default)]
pub(crate) struct InputFiles(BTreeSet<PathBuf>);

impl InputFiles {
    /// The files of a model: its index, and all that its components hold. Other files that lie in its
    /// folder are not read.
    pub(crate) fn of_model(path: &Path) -> InputFiles {
        let mut own = InputFiles::default();
        own.add(&path.join("model_index.json"));
        let components = ModelFolder::open(path);
        for (component, _) in components.iter().flat_map(ModelFolder::components) {
            files(&path.join(component)).iter().for_each(|file| own.add(file));
        }
        own
    }

    /// The same with files that arguments name; of a folder, with what is read of one: pictures and
    /// tensors.
    pub(crate) fn with(mut self, named: impl IntoIterator<Item = PathBuf>) -> InputFiles {
        let is_read = |file: &&PathBuf| {
            is_picture(file)
                || file.extension().is_some_and(|own| own.eq_ignore_ascii_case("safetensors"))
        };
        for path in named {
            self.add(&path);
            files(&path).iter().filter(is_read).for_each(|file| self.add(file));
        }
        self
    }

    /// The place itself, and where a link there leads.
    fn add(&mut self, path: &Path) {
        self.0.extend(place(path));
        self.0.extend(fs::canonicalize(path));
    }

    /// Checks that something may be written at `path`.
    ///
    /// # Errors
    /// An input is there.
    pub(crate) fn spare(&self, path: &Path) -> Result<()> {
        match place(path).is_some_and(|place| self.0.contains(&place)) {
            false => Ok(()),
            true => Err(Error::Unknown(format!(
                "{} is an input of this run, and its output would overwrite it; give --output \
                 another name",
                path.display()
            ))),
        }
    }
}

/// Where a path leads by its folder, whose links are followed; a link at the path itself is not, for what
/// is written takes its place. None where there is no such folder.
pub(crate) fn place(path: &Path) -> Option<PathBuf> {
    let parent = path.parent().filter(|parent| *parent != OsStr::new(""));
    let folder = fs::canonicalize(parent.unwrap_or(Path::new("."))).ok()?;
    Some(folder.join(path.file_name()?))
}

/// The files in a folder; none in what is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
}
