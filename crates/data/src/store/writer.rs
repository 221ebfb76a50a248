//! Writes samples. It may be interrupted at any moment and be run again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::files::{append, write_whole};
use super::index::{
    Entry, Header, Index, Kind, Line, Shard, header_path, index_path, shard_folder, tensor_name,
};
use super::{Fingerprint, Sample, null};
use crate::aside::{self, UNFINISHED};
use crate::error::{Error, Result};

/// Adds samples to a dataset, a shard at a time.
#[derive(Debug)]
pub struct Writer {
    root: PathBuf,
    index: Index,
    next: usize,
    waiting: Vec<Sample>,
    waiting_bytes: usize,
    shard_bytes: usize,
    /// Held as long as the writer lives.
    _lock: File,
}

impl Writer {
    /// Opens a dataset to add to it, or begins one. Shards are cut after `shard_bytes`.
    ///
    /// # Errors
    /// Other encoders made the dataset, another process is writing it, or it cannot be read.
    pub fn open(root: &Path, encoders: &Fingerprint, shard_bytes: usize) -> Result<Writer> {
        let folder = shard_folder(root);
        if folder.is_symlink() {
            // Shards that the index does not know are removed, and there they may be somebody's weights.
            let reason = "it is a link, which is not followed; put the folder itself there";
            return Err(Error::damaged(&folder, reason.to_owned()));
        }
        fs::create_dir_all(&folder).map_err(|source| Error::file("create", &folder, source))?;
        let lock = lock(&root.join("writer.lock"))?;
        match Header::read(root)? {
            Some(header) => check_encoders(root, &header.encoders, encoders)?,
            None => {
                let text = serde_json::to_string_pretty(&Header::new(encoders.clone()))
                    .map_err(|err| Error::damaged(&header_path(root), err.to_string()))?;
                write_whole(&header_path(root), text.as_bytes())?;
            }
        }
        let index = Index::read(root)?;
        clear_away(root, &index)?;
        let number = |shard: &Shard| shard.file.split('.').next()?.parse::<usize>().ok();
        let next = index.shards.iter().filter_map(|own| number(own)?.checked_add(1));
        let next = next.max().unwrap_or(0);
        let root = root.to_owned();
        Ok(Writer {
            root,
            index,
            next,
            waiting: Vec::new(),
            waiting_bytes: 0,
            shard_bytes,
            _lock: lock,
        })
    }

    /// How many samples are safe on disk.
    pub fn len(&self) -> usize {
        self.index.live.len()
    }

    /// Whether none are.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a sample of this name, made from just this, is safe on disk.
    pub fn has(&self, id: &str, source_hash: &str) -> bool {
        self.index.entry(id).is_some_and(|entry| entry.origin.source_hash == source_hash)
    }

    /// Adds a sample; it is safe on disk once its shard is full or [`Writer::flush`] was called.
    ///
    /// # Errors
    /// A tensor that cannot be stored, or a shard that cannot be written.
    pub fn push(&mut self, sample: Sample) -> Result<()> {
        for (key, tensor) in &sample.tensors {
            kind(key, tensor)?;
        }
        self.waiting_bytes += sample.tensors.values().map(|it| it.bytes().len()).sum::<usize>();
        self.waiting.push(sample);
        if self.waiting_bytes >= self.shard_bytes { self.flush() } else { Ok(()) }
    }

    /// Writes what waits for its shard.
    ///
    /// # Errors
    /// The shard or the index cannot be written. What was safe before still is.
    pub fn flush(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let bytes = serialize(&self.waiting)?;
        let file = format!("{:05}.safetensors", self.next);
        write_whole(&shard_folder(&self.root).join(&file), &bytes)?;
        let samples = self.waiting.iter().map(entry).collect::<Result<_>>()?;
        let hash = blake3::hash(&bytes).to_hex().to_string();
        self.log(Line::Shard(Shard { file, bytes: bytes.len() as u64, hash, samples }))?;
        self.next += 1;
        self.waiting.clear();
        self.waiting_bytes = 0;
        Ok(())
    }

    /// Whether [`Writer::put_null_text`] was called for this dataset.
    pub fn has_null_text(&self) -> bool {
        null::null_path(&self.root).is_file()
    }

    /// Keeps what stands for a dropped caption, `[L, D]` by key.
    ///
    /// # Errors
    /// A tensor that cannot be stored, or a file that cannot be written.
    pub fn put_null_text(&mut self, texts: &BTreeMap<String, TensorData>) -> Result<()> {
        null::write(&self.root, texts)
    }

    /// Forgets every sample whose name is not wanted, and says how many that were.
    ///
    /// # Errors
    /// The index cannot be written.
    pub fn retain(&mut self, wanted: &BTreeSet<String>) -> Result<usize> {
        let gone: Vec<String> =
            self.index.live.keys().filter(|id| !wanted.contains(*id)).cloned().collect();
        let count = gone.len();
        if count > 0 {
            self.log(Line::Removed(gone))?;
        }
        Ok(count)
    }

    fn log(&mut self, line: Line) -> Result<()> {
        let path = index_path(&self.root);
        let mut text =
            serde_json::to_vec(&line).map_err(|err| Error::damaged(&path, err.to_string()))?;
        text.push(b'\n');
        append(&path, &text)?;
        self.index.add(line);
        Ok(())
    }
}

/// The hash of several parts, which cannot be mistaken for one another.
pub fn hash_parts(parts: &[&[u8]]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().to_hex().to_string()
}

/// The hash of several files, each of which is read whole.
///
/// # Errors
/// One of them cannot be read.
pub fn hash_files(paths: &[PathBuf]) -> Result<String> {
    let hashes = paths.iter().map(|path| {
        let bytes = kernels::map_file(path).map_err(|err| Error::file("read", path, err))?;
        Ok(blake3::hash(&bytes))
    });
    let hashes = hashes.collect::<Result<Vec<_>>>()?;
    Ok(hash_parts(&hashes.iter().map(|hash| hash.as_bytes().as_slice()).collect::<Vec<_>>()))
}

/// Refuses a dataset of other encoders.
pub(super) fn check_encoders(root: &Path, made: &Fingerprint, asked: &Fingerprint) -> Result<()> {
    match made.difference(asked) {
        None => Ok(()),
        Some([role, made, asked]) => {
            Err(Error::OtherEncoders { path: root.to_owned(), role, made, asked })
        }
    }
}

fn lock(path: &Path) -> Result<File> {
    let mut options = File::options();
    let options = options.write(true).create(true).truncate(false);
    let file = aside::open_in_place(path, options);
    let file = file.map_err(|source| Error::file("create", path, source))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(Error::file("lock", path, source)),
    }
}

/// Removes what a run left that died: half a line, shards without a line, files written aside. Shards
/// whose samples have all been replaced go too.
fn clear_away(root: &Path, index: &Index) -> Result<()> {
    let path = index_path(root);
    if path.exists() {
        let cut = || {
            let file = aside::open_in_place(&path, File::options().write(true))?;
            if file.metadata()?.len() > index.whole {
                file.set_len(index.whole)?;
                file.sync_all()?;
            }
            Ok(())
        };
        cut().map_err(|source| Error::file("write", &path, source))?;
    }
    let in_use = index.shards_in_use();
    let shards = index.shards.iter().zip(in_use).filter(|(_, in_use)| *in_use);
    let wanted: BTreeSet<&str> = shards.map(|(shard, _)| shard.file.as_str()).collect();
    // A shard that is being written ends otherwise, and is ours all the same.
    let is_ours = |name: &str| name.ends_with(".safetensors") || name.ends_with(UNFINISHED);
    remove_files(&shard_folder(root), &|name| is_ours(name) && !wanted.contains(name))?;
    let ours = [header_path(root), null::null_path(root), index_path(root)];
    let ours = ours.map(|path| path.file_name().unwrap_or_default().to_string_lossy().into_owned());
    let is_left = |name: &str, of: &String| {
        let rest = name.strip_prefix('.').and_then(|name| name.strip_prefix(of.as_str()));
        rest.is_some_and(|rest| rest.starts_with('.') && rest.ends_with(UNFINISHED))
    };
    remove_files(root, &|name| ours.iter().any(|of| is_left(name, of)))
}

/// Removes the files of a folder whose names `is_unwanted`.
fn remove_files(folder: &Path, is_unwanted: &dyn Fn(&str) -> bool) -> Result<()> {
    let unreadable = |source| Error::file("read", folder, source);
    for file in fs::read_dir(folder).map_err(unreadable)? {
        let file = file.map_err(unreadable)?;
        if file.file_name().to_str().is_some_and(is_unwanted) {
            let path = file.path();
            fs::remove_file(&path).map_err(|source| Error::file("remove", &path, source))?;
        }
    }
    Ok(())
}

fn entry(sample: &Sample) -> Result<Entry> {
    let kinds = sample.tensors.iter().map(|(key, tensor)| Ok((key.clone(), kind(key, tensor)?)));
    let tensors = kinds.collect::<Result<BTreeMap<_, _>>>()?;
    Ok(Entry { origin: sample.origin.clone(), tensors })
}

pub(super) fn kind(key: &str, tensor: &TensorData) -> Result<Kind> {
    let dtype = match tensor.dtype() {
        DType::F32 => Dtype::F32,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::I64 => Dtype::I64,
        DType::I32 => Dtype::I32,
        DType::U8 => Dtype::U8,
        other => {
            return Err(Error::TensorType { key: key.to_owned(), dtype: format!("{other:?}") });
        }
    };
    Ok(Kind { dtype, shape: tensor.shape().to_vec() })
}

fn serialize(samples: &[Sample]) -> Result<Vec<u8>> {
    let mut views = Vec::new();
    for (place, sample) in samples.iter().enumerate() {
        for (key, tensor) in &sample.tensors {
            let Kind { dtype, shape } = kind(key, tensor)?;
            let view = TensorView::new(dtype, shape, tensor.bytes())
                .map_err(|err| Error::Values { reason: format!("`{key}`: {err}") })?;
            views.push((tensor_name(place, key), view));
        }
    }
    safetensors::serialize(views, None).map_err(|err| Error::Values { reason: err.to_string() })
}
