//! Reads samples, and refuses a dataset that is not what was asked for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{Bytes as TensorBytes, DType, TensorData};
use bytes::Bytes;
use safetensors::{Dtype, SafeTensors};

use super::index::{Entry, Header, Index, Kind, Shard, header_path, shard_folder, tensor_name};
use super::writer::{check_encoders, hash_parts};
use super::{Fingerprint, Origin, Sample, null};
use crate::error::{Error, Result};

/// A dataset on disk. Its shards are mapped; samples are read when they are asked for.
#[derive(Debug)]
pub struct Dataset {
    root: PathBuf,
    encoders: Fingerprint,
    samples: Vec<Stored>,
    shards: Vec<Shard>,
}

/// One sample: where it comes from, and the bytes of its tensors.
#[derive(Debug)]
struct Stored {
    origin: Origin,
    /// The hash of its shard.
    shard: String,
    /// Where it is there.
    place: usize,
    tensors: BTreeMap<String, (Kind, Bytes)>,
}

impl Dataset {
    /// Opens a dataset. Samples are in the order of their names.
    ///
    /// # Errors
    /// There is none, a file of it is missing, shorter than it should be or damaged, or it has no samples.
    pub fn open(root: &Path) -> Result<Dataset> {
        let header =
            Header::read(root)?.ok_or_else(|| Error::NoDataset { path: header_path(root) })?;
        let index = Index::read(root)?;
        if index.live.is_empty() {
            return Err(Error::EmptyDataset { path: root.to_owned() });
        }
        let mut samples = BTreeMap::new();
        for (number, shard) in index.shards.iter().enumerate() {
            let is_live = |place: &usize| {
                let id = &shard.samples[*place].origin.id;
                index.live.get(id) == Some(&(number, *place))
            };
            let live: Vec<usize> = (0..shard.samples.len()).filter(is_live).collect();
            samples.extend(find_samples(root, shard, &live)?);
        }
        let in_use = index.shards_in_use();
        let shards = index.shards.into_iter().zip(in_use).filter(|(_, in_use)| *in_use);
        let shards = shards.map(|(shard, _)| shard).collect();
        let samples = samples.into_values().collect();
        Ok(Dataset { root: root.to_owned(), encoders: header.encoders, samples, shards })
    }

    /// Refuses a dataset that other encoders made.
    ///
    /// # Errors
    /// It names the encoder that differs.
    pub fn check_encoders(&self, encoders: &Fingerprint) -> Result<()> {
        check_encoders(&self.root, &self.encoders, encoders)
    }

    /// Refuses a dataset that was made with other encoders than these; it may have been made with more.
    ///
    /// # Errors
    /// It names the first one that differs.
    pub fn check_served(&self, encoders: &Fingerprint) -> Result<()> {
        let own = self.encoders.0.iter().filter(|(role, _)| encoders.0.contains_key(*role));
        let own = own.map(|(role, text)| (role.clone(), text.clone())).collect();
        check_encoders(&self.root, &Fingerprint(own), encoders)
    }

    /// Refuses a dataset in which a sample lacks a key; `asker` is who needs it.
    ///
    /// # Errors
    /// It names the key, the asker and the first sample without it.
    pub fn require(&self, keys: &[&str], asker: &str) -> Result<()> {
        for key in keys {
            let mut lacking = self.samples.iter().filter(|it| !it.tensors.contains_key(*key));
            let Some(first) = lacking.next() else { continue };
            let known: Vec<&str> = first.tensors.keys().map(String::as_str).collect();
            return Err(Error::MissingKey {
                key: (*key).to_owned(),
                asker: asker.to_owned(),
                id: first.origin.id.clone(),
                lacking: lacking.count() + 1,
                samples: self.samples.len(),
                known: known.join(", "),
            });
        }
        Ok(())
    }

    /// How many samples have a key.
    pub fn holding(&self, key: &str) -> usize {
        self.samples.iter().filter(|it| it.tensors.contains_key(key)).count()
    }

    /// Reads every shard and compares its hash.
    ///
    /// # Errors
    /// The first shard that was changed.
    pub fn verify(&self) -> Result<()> {
        for shard in &self.shards {
            let path = shard_folder(&self.root).join(&shard.file);
            let bytes = kernels::map_file(&path).map_err(|err| Error::file("read", &path, err))?;
            if *blake3::hash(&bytes).to_hex() != *shard.hash {
                let reason = "its contents have changed since it was written; preprocess again";
                return Err(Error::damaged(&path, reason.to_owned()));
            }
        }
        Ok(())
    }

    /// The hash of what training sees of it: its encoders, every sample in order with the hash of the
    /// shard that holds it, and what stands for a dropped caption. Where the folder is, and what was
    /// once in it, does not matter.
    ///
    /// # Errors
    /// A file of it cannot be read.
    pub fn identity(&self) -> Result<String> {
        let mut parts: Vec<String> =
            self.encoders.0.iter().flat_map(|(role, text)| [role.clone(), text.clone()]).collect();
        for Stored { origin, shard, place, .. } in &self.samples {
            let Origin { id, source_hash, .. } = origin;
            parts.extend([id.clone(), source_hash.clone(), shard.clone(), place.to_string()]);
        }
        let null = null::null_path(&self.root);
        let null = match null.exists() {
            true => kernels::read_file(&null, u64::MAX)
                .map_err(|err| Error::file("read", &null, err))?,
            false => Vec::new(),
        };
        let parts = parts.iter().map(String::as_bytes).chain([null.as_slice()]);
        Ok(hash_parts(&parts.collect::<Vec<_>>()))
    }

    /// What stands for a dropped caption, `[L, D]` by key; empty if the dataset was made without.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn null_text(&self) -> Result<BTreeMap<String, TensorData>> {
        null::read(&self.root)
    }

    /// The encoders that made it.
    pub fn encoders(&self) -> &Fingerprint {
        &self.encoders
    }

    /// How many samples it has.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Never: an empty dataset does not open.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// Where a sample comes from.
    ///
    /// # Panics
    /// Panics if there is no such sample.
    pub fn origin(&self, index: usize) -> &Origin {
        &self.samples[index].origin
    }

    /// The shapes of a sample's tensors by key.
    ///
    /// # Panics
    /// Panics if there is no such sample.
    pub fn shapes(&self, index: usize) -> impl Iterator<Item = (&str, &[usize])> {
        let tensors = self.samples[index].tensors.iter();
        tensors.map(|(key, (kind, _))| (key.as_str(), kind.shape.as_slice()))
    }

    /// A sample.
    ///
    /// # Errors
    /// A tensor of a type we do not read.
    ///
    /// # Panics
    /// Panics if there is no such sample.
    pub fn read(&self, index: usize) -> Result<Sample> {
        let stored = &self.samples[index];
        let tensors = stored.tensors.iter().map(|(key, (kind, bytes))| {
            let dtype = number_type(kind.dtype).ok_or_else(|| Error::TensorType {
                key: key.clone(),
                dtype: format!("{:?}", kind.dtype),
            })?;
            let bytes = TensorBytes::from_bytes_vec(bytes.to_vec());
            Ok((key.clone(), TensorData::from_bytes(bytes, kind.shape.clone(), dtype)))
        });
        Ok(Sample { origin: stored.origin.clone(), tensors: tensors.collect::<Result<_>>()? })
    }
}

impl Stored {
    /// The tensors of a sample in its shard; they must be what the index says.
    fn find(
        entry: &Entry,
        place: usize,
        (shard, hash): (&SafeTensors<'_>, &str),
        file: &Bytes,
    ) -> Result<Stored, String> {
        let tensors = entry.tensors.iter().map(|(key, kind)| {
            let name = tensor_name(place, key);
            let view = shard.tensor(&name).map_err(|_| {
                format!("tensor `{name}` of sample `{}` is missing", entry.origin.id)
            })?;
            let found = Kind { dtype: view.dtype(), shape: view.shape().to_vec() };
            if found != *kind {
                return Err(format!(
                    "tensor `{name}` is {:?} {:?}, but the index says {:?} {:?}",
                    found.dtype, found.shape, kind.dtype, kind.shape
                ));
            }
            Ok((key.clone(), (found, file.slice_ref(view.data()))))
        });
        let tensors = tensors.collect::<Result<_, String>>()?;
        Ok(Stored { origin: entry.origin.clone(), shard: hash.to_owned(), place, tensors })
    }
}

/// The samples of a shard at the given places, by name. A shard without any is not looked at.
fn find_samples(root: &Path, shard: &Shard, places: &[usize]) -> Result<BTreeMap<String, Stored>> {
    if places.is_empty() {
        return Ok(BTreeMap::new());
    }
    let path = shard_folder(root).join(&shard.file);
    let file = kernels::map_file(&path).map_err(|err| Error::file("read", &path, err))?;
    if file.len() as u64 != shard.bytes {
        let reason = format!(
            "it has {} bytes, but {} were written; copy or preprocess it again",
            file.len(),
            shard.bytes
        );
        return Err(Error::damaged(&path, reason));
    }
    let tensors = SafeTensors::deserialize(&file).map_err(|err| {
        Error::damaged(&path, format!("it is not a readable safetensors file: {err}"))
    })?;
    let found = places.iter().map(|place| {
        let entry = &shard.samples[*place];
        let stored = Stored::find(entry, *place, (&tensors, &shard.hash), &file);
        let stored = stored.map_err(|reason| Error::damaged(&path, reason))?;
        Ok((entry.origin.id.clone(), stored))
    });
    found.collect()
}

pub(super) fn number_type(dtype: Dtype) -> Option<DType> {
    match dtype {
        Dtype::F32 => Some(DType::F32),
        Dtype::F16 => Some(DType::F16),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::I64 => Some(DType::I64),
        Dtype::I32 => Some(DType::I32),
        Dtype::U8 => Some(DType::U8),
        _ => None,
    }
}
