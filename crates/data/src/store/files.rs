//! Files of a dataset, as errors of this crate.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::aside::{self, sync_folder};
use crate::error::{Error, Result};

/// Writes a file that is either whole or not there.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    aside::write_whole(path, bytes).map_err(|source| Error::file("write", path, source))
}

/// Appends to a file; if that fails, the file is as long as before.
pub(super) fn append(path: &Path, bytes: &[u8]) -> Result<()> {
    let append = || {
        let mut file = aside::open_in_place(path, File::options().append(true).create(true))?;
        let length = file.metadata()?.len();
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(length);
        }
        written
    };
    append().map_err(|source| Error::file("append to", path, source))?;
    sync_folder(path).map_err(|source| Error::file("sync the folder of", path, source))
}
