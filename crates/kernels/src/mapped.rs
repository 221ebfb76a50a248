//! Files as memory: weights stay on disk until a page of them is read.

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

/// The bytes of a file, mapped and read on demand. Clones and slices share the mapping.
///
/// # Errors
/// Whatever opening or mapping the file reports.
pub fn map_file(path: &Path) -> io::Result<Bytes> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        // The system would say that there is no such device.
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if metadata.len() == 0 {
        // An empty mapping is an error on some systems.
        return Ok(Bytes::new());
    }
    // SAFETY: the mapping is read-only and private. Should another process truncate a weight file
    // in use, reads would fault, as for every program that maps its weights.
    let mapping = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(mapping))
}
