//! Where checkpoints lie, and which of them can be used.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use data::aside::UNFINISHED;

use super::file::Manifest;
use super::reading::{self, Reading};
use crate::error::{Error, Result};
use crate::state::StateDict;

const NAME: &str = "checkpoint-";

/// What earlier versions called a checkpoint that is not committed, before its name.
const PARTIAL: &str = ".partial-";

/// A checkpoint that can be used.
#[derive(Debug)]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// What it says about itself.
    pub manifest: Manifest,
    /// What it holds.
    pub state: StateDict,
    /// Newer ones that cannot be used.
    pub skipped: Vec<Skipped>,
}

/// A checkpoint that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// Where it is.
    pub path: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

pub(super) fn place(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("{NAME}{step:08}"))
}

/// What is made of a checkpoint beside its place, and swept if it stays there.
pub(super) fn unfinished(folder: &Path, step: u64, what: &str) -> PathBuf {
    folder.join(format!(".{NAME}{step:08}.{what}{UNFINISHED}"))
}

/// Whether a name is that of a checkpoint that was never committed, or is being removed.
fn is_unfinished(name: &str) -> bool {
    let aside = name.strip_prefix('.').is_some_and(|name| name.starts_with(NAME));
    aside && name.ends_with(UNFINISHED) || name.starts_with(PARTIAL)
}

/// All checkpoints of a folder by step, oldest first.
///
/// # Errors
/// The folder cannot be read.
pub fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let fault = |err| Error::file("read", folder, err);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let step = name.and_then(|name| name.strip_prefix(NAME)?.parse::<u64>().ok());
        // Only what we would call it: `checkpoint-7` is somebody else's.
        let own = step.filter(|step| place(folder, *step) == path && path.is_dir());
        found.extend(own.map(|step| (step, path)));
    }
    found.sort_unstable();
    Ok(found)
}

/// The newest checkpoint of a folder that can be used, and which ones had to be passed over.
///
/// # Errors
/// The folder cannot be read, or none of its checkpoints can be used.
pub fn find(folder: &Path, device: &Device) -> Result<Found> {
    find_wanted(folder, Reading::whole(device))
}

/// The same, of whose state only what is wanted is held.
pub(crate) fn find_wanted(folder: &Path, reading: Reading<'_>) -> Result<Found> {
    let mut skipped = Vec::new();
    for (step, path) in list(folder)?.into_iter().rev() {
        match reading::read(&path, reading) {
            Ok((manifest, _)) if manifest.step != step => {
                let reason = format!("it holds step {}", manifest.step);
                skipped.push(Skipped { path, reason });
            }
            Ok((manifest, state)) => return Ok(Found { path, manifest, state, skipped }),
            Err(Error::Damaged { path, reason }) => skipped.push(Skipped { path, reason }),
            Err(other) => return Err(other),
        }
    }
    let reason = match skipped.first() {
        None => "it holds none".to_owned(),
        Some(first) => format!("{}: {}", first.path.display(), first.reason),
    };
    Err(Error::NothingToResume { path: folder.to_owned(), reason })
}

/// One checkpoint by its folder.
///
/// # Errors
/// It is damaged or not there.
pub fn read(path: &Path, device: &Device) -> Result<Found> {
    read_wanted(path, Reading::whole(device))
}

/// The same, of whose state only what is wanted is held.
pub(crate) fn read_wanted(path: &Path, reading: Reading<'_>) -> Result<Found> {
    let (manifest, state) = reading::read(path, reading)?;
    Ok(Found { path: path.to_owned(), manifest, state, skipped: Vec::new() })
}

/// Keeps other runs out of a folder as long as the file is held; a process that dies lets go of it.
pub(super) fn lock(folder: &Path) -> Result<File> {
    let path = folder.join("lock");
    let fault = |err| Error::file("open", &path, err);
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false);
    let file = data::aside::open_in_place(&path, options).map_err(fault)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy { path: folder.to_owned() }),
        // Some shared file systems have no locks; a run there is as safe as it was without.
        Err(TryLockError::Error(err)) if err.kind() == ErrorKind::Unsupported => Ok(file),
        Err(TryLockError::Error(err)) => Err(fault(err)),
    }
}

/// Removes what was never committed.
pub(super) fn sweep(folder: &Path) -> Result<()> {
    let fault = |err| Error::file("read", folder, err);
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if is_unfinished(name) {
            let removed = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            removed.map_err(|err| Error::file("remove", &path, err))?;
        }
    }
    Ok(())
}

/// Moves the checkpoints after `step` out of the way, under a name that nobody reads: they are damaged,
/// or belong to a future that is not going to happen.
pub(super) fn set_aside_after(folder: &Path, step: u64) -> Result<()> {
    for (_, path) in list(folder)?.into_iter().filter(|(own, _)| *own > step) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let free = (0..).map(|copy| folder.join(format!("abandoned-{copy}-{name}")));
        let to = free.into_iter().find(|to| !to.exists()).expect("numbers do not end");
        std::fs::rename(&path, &to).map_err(|err| Error::file("rename", &path, err))?;
    }
    Ok(())
}

/// Removes a committed checkpoint: out of sight first, so that half of one is never taken for one.
pub(super) fn remove(folder: &Path, step: u64) -> Result<()> {
    let from = place(folder, step);
    let to = unfinished(folder, step, "removed");
    std::fs::rename(&from, &to).map_err(|err| Error::file("remove", &from, err))?;
    std::fs::remove_dir_all(&to).map_err(|err| Error::file("remove", &to, err))
}
