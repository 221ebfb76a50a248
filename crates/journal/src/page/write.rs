//! A file that is either whole or not there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Writes beside the target, syncs and renames.
pub(super) fn whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".part");
    let aside = path.with_file_name(name);
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
    written.map_err(|source| Error::file("write", path, source))
}
