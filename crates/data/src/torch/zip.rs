//! ZIP archives as `torch.save` writes them: files one after the other, not compressed, and a directory at the end.
//!
//! By hand, because the crate that reads every kind of archive brings other features of crates that burn is built
//! on, and a file of tensors needs none of it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

/// No directory has more bytes, nor more files.
const MOST_BYTES: u64 = 16 << 20;
const MOST_FILES: u64 = 1 << 16;

/// Bytes of the record at the end, of the longest comment behind it, of the pointer to the larger record and of that.
const END: usize = 22;
const COMMENT: u64 = 1 << 16;
const POINTER: usize = 20;
const LARGE_END: usize = 56;

/// Bytes of a file's record in the directory, and of the one before the file itself.
const RECORD: usize = 46;
const LOCAL: usize = 30;

/// What stands for a number that is found in the larger record.
const ELSEWHERE: u64 = 0xffff_ffff;

/// An archive.
pub(super) struct Zip {
    file: File,
    length: u64,
    entries: BTreeMap<String, Entry>,
}

/// One file of it.
#[derive(Clone, Copy)]
struct Entry {
    /// Where its own record stands.
    at: u64,
    size: u64,
}

impl Zip {
    /// Reads the directory.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub(super) fn open(file: File) -> Result<Zip, String> {
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        let mut zip = Zip { file, length, entries: BTreeMap::new() };
        let [count, size, start] = zip.end()?;
        if size > MOST_BYTES || count > MOST_FILES {
            return Err(format!("its directory has {size} bytes for {count} files"));
        }
        let directory = zip.bytes(start, size)?;
        let mut rest = &directory[..];
        for _ in 0..count {
            let (name, entry, after) = entry(rest)?;
            zip.entries.insert(name, entry);
            rest = after;
        }
        Ok(zip)
    }

    /// The names of all files.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// A file, of at most so many bytes.
    ///
    /// # Errors
    /// There is none of that name, it is longer, or damaged.
    pub(super) fn read(&mut self, name: &str, most: u64) -> Result<Vec<u8>, String> {
        let Entry { at, size } = *self.entries.get(name).ok_or("it is not there")?;
        if size > most {
            return Err(format!("it has {size} bytes; at most {most} are read"));
        }
        let local = self.bytes(at, LOCAL as u64)?;
        if !local.starts_with(b"PK\x03\x04") {
            return Err("it is not where the directory says".to_owned());
        }
        let before = LOCAL as u64 + number(&local[26..28]) + number(&local[28..30]);
        self.bytes(at.saturating_add(before), size)
    }

    /// How many files there are, and how long the directory is and where it begins.
    fn end(&mut self) -> Result<[u64; 3], String> {
        let length = self.length.min(END as u64 + COMMENT);
        let start = self.length - length;
        let tail = self.bytes(start, length)?;
        let is_end = |at: &usize| tail[*at..].starts_with(b"PK\x05\x06");
        let at = (0..(tail.len() + 1).saturating_sub(END)).rev().find(is_end);
        let at = at.ok_or("it has no directory")?;
        let own = [10..12, 12..16, 16..20].map(|part| number(&tail[at..][part]));
        let has_large = own[0] == 0xffff || own[1] == ELSEWHERE || own[2] == ELSEWHERE;
        if !has_large {
            return Ok(own);
        }
        let pointer = at.checked_sub(POINTER).map(|at| &tail[at..][..POINTER]);
        let pointer = pointer.filter(|own| own.starts_with(b"PK\x06\x07"));
        let large = number(&pointer.ok_or("its directory is nowhere")?[8..16]);
        let large = self.bytes(large, LARGE_END as u64)?;
        match large.starts_with(b"PK\x06\x06") {
            true => Ok([32..40, 40..48, 48..56].map(|part| number(&large[part]))),
            false => Err("its directory is nowhere".to_owned()),
        }
    }

    fn bytes(&mut self, at: u64, count: u64) -> Result<Vec<u8>, String> {
        if at.checked_add(count).is_none_or(|end| end > self.length) {
            return Err("it is cut off".to_owned());
        }
        let mut bytes = vec![0; count as usize];
        let read =
            self.file.seek(SeekFrom::Start(at)).and_then(|_| self.file.read_exact(&mut bytes));
        read.map(|()| bytes).map_err(|error| error.to_string())
    }
}

/// The first record of a directory: the name, the file and the records behind it.
fn entry(bytes: &[u8]) -> Result<(String, Entry, &[u8]), String> {
    let cut = || "its directory is cut off".to_owned();
    let (record, rest) = bytes.split_at_checked(RECORD).ok_or_else(cut)?;
    if !record.starts_with(b"PK\x01\x02") {
        return Err("its directory is damaged".to_owned());
    }
    let lengths = [28..30, 30..32, 32..34].map(|part| number(&record[part]) as usize);
    let (name, rest) = rest.split_at_checked(lengths[0]).ok_or_else(cut)?;
    let (more, rest) = rest.split_at_checked(lengths[1]).ok_or_else(cut)?;
    let (_, rest) = rest.split_at_checked(lengths[2]).ok_or_else(cut)?;
    let name = std::str::from_utf8(name).map_err(|_| "a name in it is no UTF-8")?.to_owned();
    if number(&record[10..12]) != 0 || number(&record[8..10]) & 1 == 1 {
        let name = super::short(&name);
        return Err(format!("its `{name}` is compressed or locked, which torch.save does not do"));
    }
    let [packed, size, at] =
        large([20..24, 24..28, 42..46].map(|part| number(&record[part])), more);
    match packed == size {
        true => Ok((name, Entry { at, size }, rest)),
        false => Err("its directory is damaged".to_owned()),
    }
}

/// Sizes and the place of a file that does not fit 32 bits: those that say so stand behind its name, in the order size,
/// packed size, place.
fn large([packed, size, at]: [u64; 3], mut more: &[u8]) -> [u64; 3] {
    while more.len() >= 4 {
        let (kind, length) = (number(&more[..2]), number(&more[2..4]) as usize);
        let Some(own) = more.get(4..4 + length) else { break };
        if kind == 1 {
            let mut parts = own.chunks_exact(8).map(number);
            let mut found = |own: u64| match own {
                ELSEWHERE => parts.next().unwrap_or(own),
                own => own,
            };
            let size = found(size);
            return [found(packed), size, found(at)];
        }
        more = &more[4 + length..];
    }
    [packed, size, at]
}

/// A number of up to 8 bytes, the lowest first.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |all, own| all << 8 | u64::from(*own))
}
