//! The index: which samples there are, and in which shard.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use super::{Fingerprint, Origin};
use crate::error::{Error, Result};

/// The format that we write.
const FORMAT: u32 = 1;

/// No header is longer.
const LONGEST_HEADER: u64 = 16 << 20;

/// What `dataset.json` holds.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Header {
    format: u32,
    pub(super) encoders: Fingerprint,
}

/// One line of the index.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Line {
    /// A shard was written.
    Shard(Shard),
    /// These samples are no longer wanted.
    Removed(Vec<String>),
}

/// One file of samples.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Shard {
    /// Its name in the folder of shards.
    pub(super) file: String,
    /// How long it is.
    pub(super) bytes: u64,
    /// Its hash.
    pub(super) hash: String,
    /// What it holds, in order.
    pub(super) samples: Vec<Entry>,
}

/// One sample of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) origin: Origin,
    pub(super) tensors: BTreeMap<String, Kind>,
}

/// What a tensor is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Kind {
    pub(super) dtype: Dtype,
    pub(super) shape: Vec<usize>,
}

/// All that the index says.
#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) shards: Vec<Shard>,
    /// For each sample that counts, its shard and its place there.
    pub(super) live: BTreeMap<String, (usize, usize)>,
    /// The length of the lines that are whole, in bytes.
    pub(super) whole: u64,
}

/// Where the header of a dataset is.
pub(super) fn header_path(root: &Path) -> PathBuf {
    root.join("dataset.json")
}

/// Where the index of a dataset is.
pub(super) fn index_path(root: &Path) -> PathBuf {
    root.join("index.jsonl")
}

/// Where the shards of a dataset are.
pub(super) fn shard_folder(root: &Path) -> PathBuf {
    root.join("shards")
}

/// The name of a tensor in its shard.
pub(super) fn tensor_name(place: usize, key: &str) -> String {
    format!("{place:05}.{key}")
}

impl Header {
    /// A header for a new dataset.
    pub(super) fn new(encoders: Fingerprint) -> Header {
        Header { format: FORMAT, encoders }
    }

    /// Reads the header; `None` if there is no dataset.
    pub(super) fn read(root: &Path) -> Result<Option<Header>> {
        let path = header_path(root);
        let text = match kernels::read_file(&path, LONGEST_HEADER) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|source| Error::file("read", &path, source))?,
        };
        let header: Header = serde_json::from_slice(&text)
            .map_err(|err| Error::damaged(&path, format!("it is not the header: {err}")))?;
        if header.format != FORMAT {
            let reason = format!(
                "it has format {}, but this version reads {FORMAT}; preprocess again",
                header.format
            );
            return Err(Error::damaged(&path, reason));
        }
        Ok(Some(header))
    }
}

impl Index {
    /// Reads the index. A last line without an end was being written when a run died; it is left out.
    pub(super) fn read(root: &Path) -> Result<Index> {
        let path = index_path(root);
        let text = match kernels::read_file(&path, u64::MAX) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            text => text.map_err(|source| Error::file("read", &path, source))?,
        };
        let mut index = Index::default();
        for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if !line.ends_with(b"\n") {
                break;
            }
            let line_read = serde_json::from_slice(line).map_err(|err| {
                Error::damaged(&path, format!("line {} is not readable: {err}", number + 1))
            })?;
            index.whole += line.len() as u64;
            index.add(line_read);
        }
        Ok(index)
    }

    /// Takes in one line.
    pub(super) fn add(&mut self, line: Line) {
        match line {
            Line::Shard(shard) => {
                let number = self.shards.len();
                for (place, entry) in shard.samples.iter().enumerate() {
                    self.live.insert(entry.origin.id.clone(), (number, place));
                }
                self.shards.push(shard);
            }
            Line::Removed(ids) => ids.iter().for_each(|id| {
                self.live.remove(id);
            }),
        }
    }

    /// The entry of a sample that counts.
    pub(super) fn entry(&self, id: &str) -> Option<&Entry> {
        self.live.get(id).map(|(shard, place)| &self.shards[*shard].samples[*place])
    }

    /// For each shard, whether it holds a sample that counts.
    pub(super) fn shards_in_use(&self) -> Vec<bool> {
        let mut in_use = vec![false; self.shards.len()];
        self.live.values().for_each(|(shard, _)| in_use[*shard] = true);
        in_use
    }
}
