//! Datasets that another trainer has preprocessed, as datasets of ours.
//!
//! LTX-2's trainer keeps a folder for each kind of tensor, and in each a file of `torch.save` for each clip, called after the
//! clip. Files of one name make one sample.

mod sample;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::TensorData;

use crate::error::{Error, Result};
use crate::preprocess::{Cause, Progress, Reason, Skipped, Summary};
use crate::store::{Writer, hash_files};

pub use sample::TEXT_AUDIO;

/// What is known of a caption: the features that stand before the parts of a model which the other trainer runs at
/// every step.
#[derive(Clone, Debug, PartialEq)]
pub struct Features {
    /// For the video, `[L, D]`.
    pub video: TensorData,
    /// For the sound, `[L, D]`.
    pub audio: TensorData,
    /// Which tokens count.
    pub counts: Vec<bool>,
}

/// Does with a model what is left to do.
pub trait Finish {
    /// How many frames, rows and columns of pixels one latent stands for.
    fn factors(&self) -> [usize; 3];

    /// What the transformer reads of a caption, `[L, D]`; none of a model that reads features as they are.
    ///
    /// # Errors
    /// They are not of this model.
    fn text(&mut self, features: &Features) -> std::result::Result<Option<TensorData>, Cause>;
}

/// What a folder holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Latents,
    Conditions,
    AudioLatents,
    References,
    Masks,
}

/// The folders that are read, and what the names of their files may begin with in older datasets.
const SOURCES: [(&str, Source, &str); 5] = [
    ("latents", Source::Latents, "latent_"),
    ("conditions", Source::Conditions, "condition_"),
    ("audio_latents", Source::AudioLatents, "latent_"),
    ("reference_latents", Source::References, "latent_"),
    ("video_masks", Source::Masks, "mask_"),
];

/// Where the folders lie if not in the one that is named.
const WITHIN: &str = ".precomputed";

/// No folder lies deeper: links may lead in circles.
const DEEPEST: usize = 32;

/// A folder of another trainer's tensors.
#[derive(Debug)]
pub struct Preprocessed {
    root: PathBuf,
    /// The files of each sample by what they hold.
    samples: BTreeMap<String, BTreeMap<Source, PathBuf>>,
    /// Folders that have no place in a dataset of ours.
    pub left_out: Vec<String>,
}

impl Preprocessed {
    /// Looks which samples there are; no file is read.
    ///
    /// # Errors
    /// There is no such folder, or it holds no latents.
    pub fn open(root: &Path) -> Result<Preprocessed> {
        let within = root.join(WITHIN);
        let root = if within.is_dir() { within } else { root.to_owned() };
        let unreadable = |source| Error::file("read", &root, source);
        let (mut samples, mut left_out) = (BTreeMap::<_, BTreeMap<_, _>>::new(), Vec::new());
        for folder in fs::read_dir(&root).map_err(unreadable)? {
            let folder = folder.map_err(unreadable)?;
            let name = folder.file_name().to_string_lossy().into_owned();
            let Some((_, source, prefix)) = SOURCES.iter().find(|(own, ..)| *own == name) else {
                if folder.path().is_dir() {
                    left_out.push(name);
                }
                continue;
            };
            for path in files(&folder.path(), DEEPEST)? {
                let name = sample_name(&folder.path(), &path, prefix);
                samples.entry(name).or_default().insert(*source, path);
            }
        }
        left_out.sort();
        let has = |kind| samples.values().any(|own| own.contains_key(&kind));
        if !has(Source::Conditions) || !(has(Source::Latents) || has(Source::AudioLatents)) {
            let reason = "it has no `conditions`, and `latents` or `audio_latents`, with files that end in .pt";
            return Err(Error::Manifest { path: root, reason: reason.to_owned() });
        }
        Ok(Preprocessed { root, samples, left_out })
    }

    /// How many samples there are, whole or not.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Takes samples over that the store does not have yet, or that have changed since, finished by the model that they
    /// are for.
    ///
    /// # Errors
    /// The store cannot be written. A file that cannot be read is reported and its sample skipped.
    pub fn import(
        &self,
        model: &mut dyn Finish,
        writer: &mut Writer,
        progress: &mut dyn FnMut(Progress<'_>),
        stop: &AtomicBool,
    ) -> Result<Summary> {
        let mut summary = Summary::default();
        let mut wanted = BTreeSet::new();
        for (done, (id, files)) in self.samples.iter().enumerate() {
            if stop.load(Ordering::Relaxed) {
                summary.interrupted = true;
                break;
            }
            progress(Progress { done, total: self.samples.len(), id });
            let paths: Vec<PathBuf> = files.values().cloned().collect();
            let hash = match hash_files(&paths) {
                Ok(hash) => hash,
                Err(error) => {
                    summary.failed.push(skipped(id, error.to_string()));
                    continue;
                }
            };
            if writer.has(id, &hash) {
                summary.kept += 1;
            } else {
                match sample::read(files, (id.clone(), hash), model) {
                    Ok(sample) => writer.push(sample)?,
                    Err(reason) => {
                        summary.failed.push(skipped(id, reason));
                        continue;
                    }
                }
                summary.written += 1;
            }
            wanted.insert(id.clone());
        }
        writer.flush()?;
        if !summary.interrupted {
            summary.removed = writer.retain(&wanted)?;
        }
        Ok(summary)
    }

    /// Where the folders lie.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

fn skipped(id: &str, reason: String) -> Skipped {
    Skipped { id: id.to_owned(), reason: Reason::Unreadable(reason) }
}

/// All files of tensors below a folder.
fn files(folder: &Path, deep: usize) -> Result<Vec<PathBuf>> {
    let unreadable = |source| Error::file("read", folder, source);
    let mut found = Vec::new();
    for file in fs::read_dir(folder).map_err(unreadable)? {
        let path = file.map_err(unreadable)?.path();
        match path.is_dir() {
            true if deep == 0 => {}
            true => found.extend(files(&path, deep - 1)?),
            false if path.extension().is_some_and(|own| own == "pt") => found.push(path),
            false => {}
        }
    }
    Ok(found)
}

/// The name of a sample: the path below its folder, without what older names begin with.
fn sample_name(folder: &Path, path: &Path, prefix: &str) -> String {
    let path = path.strip_prefix(folder).unwrap_or(path).with_extension("");
    let parts: Vec<String> =
        path.components().map(|own| own.as_os_str().to_string_lossy().into_owned()).collect();
    match parts.split_last() {
        Some((last, before)) => {
            let last = last.strip_prefix(prefix).unwrap_or(last);
            [before, &[last.to_owned()]].concat().join("/")
        }
        None => String::new(),
    }
}
