//! Files that are either whole or not there.

use std::fs::{self, File};
use std::io::{Result, Write};
use std::path::Path;

/// Writes a file beside its place, under a name like `.report.html.123.part`, syncs it and moves it
/// there. A failure leaves what was there before.
///
/// # Errors
/// The system's.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let aside = path.with_file_name(format!(".{name}.{}.part", std::process::id()));
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
    written.and_then(|()| sync_folder(path))
}

/// A new or renamed file is safe only once its folder is.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match cfg!(unix) {
        true => File::open(parent.unwrap_or(Path::new(".")))?.sync_all(),
        false => Ok(()),
    }
}
