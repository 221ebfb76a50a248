//! Files as memory: weights stay on disk until a page of them is read.
//!
//! What stands in somebody's folder may be a pipe that nobody writes to or a device without end: neither is
//! opened.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use crate::shrunk;

/// A file as memory.
struct Mapping {
    /// Goes before what it tells of.
    _watched: Option<shrunk::Watched>,
    file: Mmap,
}

impl AsRef<[u8]> for Mapping {
    fn as_ref(&self) -> &[u8] {
        &self.file
    }
}

/// The bytes of a file, mapped and read on demand. Clones and slices share the mapping. Should the file
/// shrink meanwhile, reading what is gone ends the process; [`crate::watch_mapped_files`] says how.
///
/// # Errors
/// Whatever opening or mapping the file reports.
pub fn map_file(path: &Path) -> io::Result<Bytes> {
    let file = open_file(path)?;
    if file.metadata()?.len() == 0 {
        // An empty mapping is an error on some systems.
        return Ok(Bytes::new());
    }
    // SAFETY: the mapping is read-only. Should another process truncate a weight file in use, reads
    // fault, as for every program that maps its weights, and the handler of `shrunk` says so.
    let file = unsafe { Mmap::map(&file)? };
    Ok(Bytes::from_owner(Mapping { _watched: shrunk::watch(path, &file), file }))
}

/// Opens a file to be read. A pipe or a device is refused: it could be waited for without end.
///
/// # Errors
/// There is no such file, it is something else, or it may not be read.
pub fn open_file(path: &Path) -> io::Result<File> {
    let found = fs::metadata(path)?;
    if found.is_dir() {
        // The system would say that there is no such device.
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !found.is_file() {
        let what = "it is a pipe or a device, and a file is needed";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    File::open(path)
}

/// The bytes of a file of at most `longest`.
///
/// # Errors
/// As [`open_file`], or it is longer.
pub fn read_file(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let file = open_file(path)?;
    let mut bytes = Vec::new();
    // It may grow while it is read.
    let length = match file.metadata()?.len() {
        length if length > longest => length,
        _ => file.take(longest.saturating_add(1)).read_to_end(&mut bytes)? as u64,
    };
    match length > longest {
        true => {
            let what = format!("it is longer than the {longest} bytes that it may have");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
        }
        false => Ok(bytes),
    }
}

/// The text of a file of at most `longest` bytes.
///
/// # Errors
/// As [`read_file`], or it is no UTF-8.
pub fn read_text(path: &Path, longest: u64) -> io::Result<String> {
    String::from_utf8(read_file(path, longest)?).map_err(|err| {
        let reason = format!("it is not UTF-8: {}", err.utf8_error());
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_not_opened() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(map_file(own).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        let device = Path::new("/dev/zero");
        if device.exists() {
            assert_eq!(open_file(device).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let manifest = own.join("Cargo.toml");
        let bytes = read_file(&manifest, 1 << 20).unwrap();
        assert_eq!(bytes, fs::read(&manifest).unwrap());
        let length = bytes.len() as u64;
        assert!(read_file(&manifest, length).is_ok());
        let long = read_file(&manifest, length - 1).unwrap_err();
        assert_eq!(long.kind(), io::ErrorKind::FileTooLarge);
    }
}
