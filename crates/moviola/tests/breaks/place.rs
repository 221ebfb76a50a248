//! A folder that a run may touch, and what stands in it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A golden model.
pub(crate) fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../goldens")).join(name)
}

/// A temporary folder.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A file, with the folders that lead to it.
    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    /// A copy of a golden model under `name`.
    pub(crate) fn model(&self, golden_name: &str, name: &str) -> PathBuf {
        let to = self.path(name);
        copy(&golden(golden_name), &to);
        to
    }

    /// A small picture under `name` with its caption beside it; `seed` makes its pixels.
    pub(crate) fn picture(&self, name: &str, [width, height]: [u32; 2], seed: u32) -> PathBuf {
        let path = self.write(name, []);
        let pixels = (0..width * height * 3).map(|at| ((at * 31 + seed * 97) % 251) as u8);
        image::RgbImage::from_raw(width, height, pixels.collect()).unwrap().save(&path).unwrap();
        fs::write(path.with_extension("txt"), format!("picture {seed}")).unwrap();
        path
    }

    /// Every file below `name` with its bytes, in the order of their names.
    pub(crate) fn files(&self, name: &str) -> Vec<(PathBuf, Vec<u8>)> {
        let root = self.path(name);
        let mut found = Vec::new();
        walk(&root, &mut |path| {
            let own = path.strip_prefix(&root).unwrap().to_owned();
            // Nobody writes into a pipe that stands there.
            let is_file = fs::metadata(path).is_ok_and(|found| found.is_file());
            found.push((own, if is_file { fs::read(path).unwrap() } else { Vec::new() }));
        });
        found.sort();
        found
    }

    /// The names of all files below `name`.
    pub(crate) fn names(&self, name: &str) -> Vec<String> {
        let files = self.files(name).into_iter();
        files.map(|(path, _)| path.to_string_lossy().into_owned()).collect()
    }
}

fn walk(folder: &Path, each: &mut dyn FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => walk(&path, each),
            false => each(&path),
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}
