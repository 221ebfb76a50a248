//! Checkpoints that are whole or not there.
//!
//! A snapshot is a set of handles, so taking one stalls nothing: what is updated afterwards is copied
//! first. A thread writes it into a folder beside its place, flushes it to the disk and hashes it. At
//! the next boundary between steps the run gives the folder its name: from then on it exists. Where ranks hold
//! parameters together each writes its own part, and the folder gets its name when all of them are there.

mod file;
mod folder;
mod part;
mod reading;
mod recipe;
mod writer;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use file::{FileSum, Manifest, VERSION, files, read_manifest};
pub(crate) use folder::read_wanted;
pub use folder::{Found, Skipped, find, list, read};
pub(crate) use part::{PartWriter, Progress};
pub(crate) use reading::Reading;
pub use recipe::{Recipe, differences};

use crate::error::{Error, Result};
use crate::state::StateDict;
use writer::{Aside, Target, Writer, Written};

/// When checkpoints are made and which stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointConfig {
    /// One after every so many steps; 0 for the last step only.
    pub every: u64,
    /// How many of the newest stay; at least one always does.
    pub keep_last: usize,
    /// Those whose step is a multiple of this stay for good; 0 for none.
    pub keep_every: u64,
}

impl Default for CheckpointConfig {
    fn default() -> CheckpointConfig {
        CheckpointConfig { every: 500, keep_last: 2, keep_every: 0 }
    }
}

/// The checkpoints of one run.
pub struct Checkpoints {
    folder: PathBuf,
    config: CheckpointConfig,
    recipe: Recipe,
    /// The hash of all that the run is made from, by what it is.
    origins: BTreeMap<String, String>,
    writer: Writer,
    /// What those that are being written say about themselves.
    manifests: BTreeMap<u64, Manifest>,
    /// Steps that are written or being written.
    known: Vec<u64>,
    /// The newest step that was begun while every role was learning: it stays until there is a newer one.
    sound: Option<u64>,
    /// Held as long as the run: two runs in one folder would clear away each other's work.
    _lock: File,
}

impl Checkpoints {
    /// Checkpoints in `folder`, which is made if it is not there. What an earlier run left half
    /// written is removed.
    ///
    /// # Errors
    /// Another run is going on there, or the folder cannot be made or read.
    pub fn new(
        folder: impl Into<PathBuf>,
        config: CheckpointConfig,
        recipe: Recipe,
    ) -> Result<Checkpoints> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder).map_err(|err| Error::file("make", &folder, err))?;
        let lock = folder::lock(&folder)?;
        folder::sweep(&folder)?;
        let known = folder::list(&folder)?.into_iter().map(|(step, _)| step).collect();
        let (writer, origins, sound) = (Writer::start(), BTreeMap::new(), None);
        let manifests = BTreeMap::new();
        let own = Checkpoints {
            folder,
            config,
            recipe,
            origins,
            writer,
            manifests,
            known,
            sound,
            _lock: lock,
        };
        Ok(own)
    }

    /// The same checkpoints of a run that is made from these: a hash for each, by what it is. They
    /// are recorded, and a run goes on from a checkpoint of the same only.
    pub fn made_from(self, origins: BTreeMap<String, String>) -> Checkpoints {
        Checkpoints { origins, ..self }
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The newest checkpoint that can be used, if there is any, with what is wanted of it; newer ones, damaged or not,
    /// are moved out of the way. Keys of the recipe below `free` may have changed since.
    ///
    /// # Errors
    /// There are checkpoints but none can be used, or it was made with another recipe or from other
    /// data or weights.
    pub(crate) fn resume(&mut self, free: &[&str], reading: Reading<'_>) -> Result<Option<Found>> {
        if self.known.is_empty() {
            return Ok(None);
        }
        let found = folder::find_wanted(&self.folder, reading)?;
        self.accept(found, free).map(Some)
    }

    /// One checkpoint, of this run or of another; newer ones of this run are moved out of the way.
    ///
    /// # Errors
    /// It cannot be used, is of another run while this one has its own, or was made with another recipe
    /// or from other data or weights.
    pub(crate) fn resume_from(
        &mut self,
        path: &Path,
        free: &[&str],
        reading: Reading<'_>,
    ) -> Result<Found> {
        let nothing = |reason: &str| Error::NothingToResume {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        let inner = path.join("checkpoints");
        let found = match inner.is_dir() {
            true => folder::find_wanted(&inner, reading)?,
            false if path.is_dir() => folder::read_wanted(path, reading)?,
            false => return Err(nothing("there is no such run or checkpoint")),
        };
        let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let own = found.path.parent().is_some_and(|parent| whole(parent) == whole(&self.folder));
        if !own && !self.known.is_empty() {
            return Err(nothing(
                "it is of another run, and this one has checkpoints of its own; name one of these, or \
                 start in another folder",
            ));
        }
        self.accept(found, free)
    }

    fn accept(&mut self, found: Found, free: &[&str]) -> Result<Found> {
        let then = &found.manifest.recipe;
        let keys = self.recipe.differs(then, free);
        if !keys.is_empty() {
            let told = |key: String| {
                let [was, is] = [then, &self.recipe].map(|own| own.told(&key));
                format!("{key} (was {was}, is {is})")
            };
            let keys = keys.into_iter().map(told).collect();
            return Err(Error::OtherRecipe { path: found.path, keys });
        }
        let differing = differing_origins(&found.manifest.origins, &self.origins);
        if !differing.is_empty() {
            return Err(Error::OtherOrigins { path: found.path, differing });
        }
        folder::set_aside_after(&self.folder, found.manifest.step)?;
        self.known = folder::list(&self.folder)?.into_iter().map(|(step, _)| step).collect();
        self.sound = Some(found.manifest.step);
        Ok(found)
    }

    /// Whether a checkpoint of `step` exists or is being written.
    pub fn holds(&self, step: u64) -> bool {
        self.known.contains(&step)
    }

    /// Whether one should be made after `step`.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        self.config.every > 0 && step.is_multiple_of(self.config.every) && !self.holds(step)
    }

    /// Hands a snapshot to the writer; waits if it is still busy with the one before. One that is not
    /// sound, because updates had to be skipped before it, takes the place of none that is.
    pub(crate) fn begin(
        &mut self,
        step: u64,
        state: StateDict,
        facts: BTreeMap<String, String>,
        is_sound: bool,
    ) -> Result<()> {
        let place = folder::place(&self.folder, step);
        let origins = self.origins.clone();
        let manifest = Manifest { origins, ..Manifest::new(step, self.recipe.clone(), facts) };
        self.writer.begin(step, Target::Folder(place), state)?;
        self.manifests.insert(step, manifest);
        self.known.push(step);
        self.sound = if is_sound { Some(step) } else { self.sound };
        Ok(())
    }

    /// Gives finished checkpoints their names and removes those that need not stay; waits for the writer if that is
    /// asked.
    pub(crate) fn commit(&mut self, waits: bool) -> Result<Vec<(u64, PathBuf)>> {
        let finished = self.writer.finished(waits)?;
        finished.into_iter().map(|written| self.name(written, Vec::new())).collect()
    }

    /// How far the first part is of a checkpoint that several ranks write; waits for the end of it if that is asked.
    pub(crate) fn progress(&mut self, waits: bool) -> Result<Option<FileSum>> {
        self.writer.progress(waits)
    }

    /// Gives the checkpoint that is written its name, of which other ranks have written these parts.
    pub(crate) fn commit_parts(&mut self, parts: Vec<FileSum>) -> Result<Vec<(u64, PathBuf)>> {
        let finished = self.writer.take();
        finished.into_iter().map(|written| self.name(written, parts.clone())).collect()
    }

    /// Lets go of what is written of a checkpoint that other ranks could not write.
    pub(crate) fn abandon(&mut self) {
        for Written { step, .. } in self.writer.take() {
            self.known.retain(|own| *own != step);
            self.manifests.remove(&step);
        }
    }

    fn name(
        &mut self,
        Written { step, sum, aside }: Written,
        parts: Vec<FileSum>,
    ) -> Result<(u64, PathBuf)> {
        let path = folder::place(&self.folder, step);
        let (Aside::Folder(aside), Some(manifest)) = (aside, self.manifests.remove(&step)) else {
            return Err(Error::Writer);
        };
        let count = parts.len() + 1;
        for part in 1..count {
            let from = part::loose(&self.folder, step, (part, count));
            let to = aside.path().join(file::name_of(part, count));
            std::fs::rename(&from, &to).map_err(|err| Error::file("rename", &from, err))?;
        }
        file::write_manifest(aside.path(), manifest, sum, parts)?;
        aside.commit().map_err(|err| Error::file("write", &path, err))?;
        let committed: Vec<u64> = self.known.iter().copied().filter(|own| *own <= step).collect();
        let sound = self.sound;
        let removable = self.config.removable(&committed).into_iter();
        for old in removable.filter(|old| Some(*old) != sound) {
            folder::remove(&self.folder, old)?;
            self.known.retain(|own| *own != old);
        }
        Ok((step, path))
    }
}

/// What a checkpoint was made from and is no longer the same, in words. What one side does not know
/// is not compared: earlier versions recorded nothing.
fn differing_origins(
    then: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Vec<String> {
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    let both = then.iter().filter_map(|(what, then)| Some((what, then, now.get(what)?)));
    let differing = both.filter(|(_, then, now)| then != now);
    differing
        .map(|(what, then, now)| format!("{what} (was {}, is {})", short(then), short(now)))
        .collect()
}

impl CheckpointConfig {
    /// Which of the committed steps need not stay. Never the newest, never a kept one.
    fn removable(&self, committed: &[u64]) -> Vec<u64> {
        let mut steps = committed.to_vec();
        steps.sort_unstable();
        steps.dedup();
        let old = steps.len().saturating_sub(self.keep_last.max(1));
        let kept = |step: &u64| self.keep_every > 0 && step.is_multiple_of(self.keep_every);
        steps.into_iter().take(old).filter(|step| !kept(step)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::CheckpointConfig;

    #[test]
    fn the_newest_and_the_kept_stay() {
        let removed = |keep_last, keep_every, steps: &[u64]| {
            CheckpointConfig { every: 10, keep_last, keep_every }.removable(steps)
        };
        assert_eq!(removed(2, 0, &[10, 20, 30]), [10]);
        assert_eq!(removed(1, 20, &[10, 20, 30, 40]), [10, 30]);
        // LTX-2 deletes the file it has just written when the last step is saved twice.
        assert!(removed(1, 0, &[30, 30]).is_empty());
        assert_eq!(removed(0, 0, &[10, 30]), [10]);
        assert!(removed(9, 0, &[10, 30]).is_empty());
    }
}
