//! Files that are either whole or not there.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// The ending of what is not finished.
pub(super) const PART: &str = "part";

/// Writes a file beside its place, syncs it and moves it there.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let aside = path.with_extension(PART);
    let write = || {
        let mut file = File::create(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    let written = write();
    if written.is_err() {
        // What is left of it is of no use; the first error is the one to tell.
        let _ = fs::remove_file(&aside);
    }
    written.map_err(|source| Error::file("write", path, source))?;
    sync_folder(path)
}

/// Appends to a file; if that fails, the file is as long as before.
pub(super) fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let append = || {
        let mut file = File::options().append(true).create(true).open(path)?;
        let length = file.metadata()?.len();
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(length);
        }
        written
    };
    append().map_err(|source| Error::file("append to", path, source))?;
    sync_folder(path)
}

/// A new or renamed file is safe only once its folder is.
fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let sync = || File::open(folder)?.sync_all();
    if cfg!(unix) { sync().map_err(|source| Error::file("sync", folder, source)) } else { Ok(()) }
}
