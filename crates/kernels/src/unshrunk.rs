//! Where the system has no SIGBUS, mapped files are not watched: it does not let them be cut short.

use std::io;
use std::path::Path;

/// Nothing is watched.
pub(crate) enum Watched {}

/// Nothing can shrink here.
///
/// # Errors
/// None.
pub fn watch_mapped_files(
    _: i32,
    _: impl Fn(&Path) -> String + Send + Sync + 'static,
) -> io::Result<()> {
    Ok(())
}

/// Nothing is watched.
pub(crate) fn watch(_: &Path, _: &[u8]) -> Option<Watched> {
    None
}
