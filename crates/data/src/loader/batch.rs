//! Samples stacked into tensors.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::{Bytes, DType, Device, Tensor, TensorData};

use super::{Cursor, is_text};
use crate::error::{Error, Result};
use crate::store::{Origin, Sample};

/// A sample as it was drawn for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// Its place in the dataset.
    pub index: usize,
    /// Whether it goes without its caption.
    pub dropped: bool,
}

/// Our part of a global batch.
#[derive(Clone, Debug)]
pub struct LoadedBatch {
    /// Where the batch is in the sequence.
    pub cursor: Cursor,
    /// Our places in the global batch.
    pub places: Range<usize>,
    /// How many samples the global batch has, over all parts.
    pub global: usize,
    /// Our samples, in order.
    pub drawn: Vec<Drawn>,
    /// Where they come from.
    pub origins: Vec<Origin>,
    tensors: BTreeMap<String, TensorData>,
}

impl LoadedBatch {
    /// Stacks samples. Texts are padded with zeros to the longest and get a mask.
    pub(super) fn stack(
        samples: Vec<(Drawn, Sample)>,
        null: &BTreeMap<String, TensorData>,
        (cursor, places, global): (Cursor, Range<usize>, usize),
    ) -> Result<LoadedBatch> {
        let (drawn, samples): (Vec<Drawn>, Vec<Sample>) = samples.into_iter().unzip();
        let keys: Vec<String> = samples.iter().flat_map(|it| it.tensors.keys()).cloned().collect();
        let mut tensors = BTreeMap::new();
        for key in keys {
            if tensors.contains_key(&key) {
                continue;
            }
            let mut parts = Vec::new();
            for (drawn, sample) in drawn.iter().zip(&samples) {
                let own = sample.tensors.get(&key);
                let part =
                    if drawn.dropped && is_text(&key) { null.get(&key).or(own) } else { own };
                parts.push(part.ok_or_else(|| unlike(&key, &sample.origin))?);
            }
            if is_text(&key) {
                let (texts, mask) = stack_texts(&key, &parts)?;
                tensors.insert(mask_key(&key), mask);
                tensors.insert(key, texts);
            } else {
                tensors.insert(key.clone(), stack_equal(&key, &parts)?);
            }
        }
        let origins = samples.into_iter().map(|sample| sample.origin).collect();
        Ok(LoadedBatch { cursor, places, global, drawn, origins, tensors })
    }

    /// How many samples our part has.
    pub fn len(&self) -> usize {
        self.drawn.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.drawn.is_empty()
    }

    /// A tensor, `[B, …]` as f32, if the samples have it.
    ///
    /// # Errors
    /// It has another number of dims.
    pub fn get<const D: usize>(&self, key: &str, device: &Device) -> Result<Option<Tensor<D>>> {
        let Some(data) = self.tensors.get(key) else { return Ok(None) };
        if data.shape().len() != D {
            let reason =
                format!("`{key}` has shape {:?}, but {D} dims are asked for", data.shape());
            return Err(Error::Values { reason });
        }
        Ok(Some(Tensor::from_data(data.clone().convert::<f32>(), (device, DType::F32))))
    }

    /// A tensor, `[B, …]` as f32, that must be there.
    ///
    /// # Errors
    /// It is not, or has another number of dims.
    pub fn tensor<const D: usize>(&self, key: &str, device: &Device) -> Result<Tensor<D>> {
        self.get(key, device)?.ok_or_else(|| {
            let known: Vec<&str> = self.tensors.keys().map(String::as_str).collect();
            let reason = format!("the samples have no `{key}`; they have {}", known.join(", "));
            Error::Loader { reason }
        })
    }

    /// The texts of a key, `[B, L, D]`, and their mask, `[B, L]`: 1 where a token counts.
    ///
    /// # Errors
    /// The samples have no such text.
    pub fn text(&self, key: &str, device: &Device) -> Result<(Tensor<3>, Tensor<2>)> {
        Ok((self.tensor(key, device)?, self.tensor(&mask_key(key), device)?))
    }

    /// All stacked tensors by key.
    pub fn data(&self) -> &BTreeMap<String, TensorData> {
        &self.tensors
    }
}

/// Where the mask of a text is.
fn mask_key(key: &str) -> String {
    format!("{key}.mask")
}

fn unlike(key: &str, origin: &Origin) -> Error {
    let id = &origin.id;
    Error::Loader { reason: format!("`{key}` is in other samples of a batch, but not in `{id}`") }
}

/// Stacks tensors of one shape and type, byte by byte.
fn stack_equal(key: &str, parts: &[&TensorData]) -> Result<TensorData> {
    let first = parts[0];
    let mut bytes = Vec::with_capacity(parts.len() * first.bytes().len());
    for part in parts {
        if part.shape() != first.shape() || part.dtype() != first.dtype() {
            return Err(Error::Loader {
                reason: format!(
                    "`{key}` is {:?} {:?} in one sample of a batch and {:?} {:?} in another",
                    first.dtype(),
                    first.shape(),
                    part.dtype(),
                    part.shape()
                ),
            });
        }
        bytes.extend_from_slice(part.bytes());
    }
    let shape: Vec<usize> =
        std::iter::once(parts.len()).chain(first.shape().iter().copied()).collect();
    Ok(TensorData::from_bytes(Bytes::from_bytes_vec(bytes), shape, first.dtype()))
}

/// Stacks texts `[L, D]` of any lengths; the mask is `[B, L]`.
fn stack_texts(key: &str, parts: &[&TensorData]) -> Result<(TensorData, TensorData)> {
    let width = |part: &TensorData| match part.shape()[..] {
        [_, width] => Some(width),
        _ => None,
    };
    let first = width(parts[0]);
    let Some(width) = first.filter(|_| parts.iter().all(|part| width(part) == first)) else {
        let shapes: Vec<_> = parts.iter().map(|part| part.shape().to_vec()).collect();
        let reason =
            format!("texts `{key}` of a batch must be [length, width], but are {shapes:?}");
        return Err(Error::Loader { reason });
    };
    let longest = parts.iter().map(|part| part.shape()[0]).max().unwrap_or(0);
    let (mut values, mut mask) = (Vec::new(), Vec::new());
    for part in parts {
        let length = part.shape()[0];
        let own: Vec<f32> = (*part)
            .clone()
            .convert::<f32>()
            .try_to_vec()
            .map_err(|err| Error::Values { reason: format!("`{key}`: {err}") })?;
        values.extend(own);
        values.resize(values.len() + (longest - length) * width, 0.0);
        mask.extend((0..longest).map(|at| if at < length { 1.0f32 } else { 0.0 }));
    }
    let batch = parts.len();
    let values = TensorData::new(values, [batch, longest, width]);
    Ok((values, TensorData::new(mask, [batch, longest])))
}
