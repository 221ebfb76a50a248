//! What stands for a dropped caption, kept with the dataset, so that training with caption dropout
//! needs no text encoder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{Bytes, TensorData};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use super::files::write_whole;
use super::index::Kind;
use super::reader::number_type;
use super::writer::kind;
use crate::error::{Error, Result};

/// Where it is.
pub(super) fn null_path(root: &Path) -> PathBuf {
    root.join("null.safetensors")
}

/// Keeps the null texts, `[L, D]` by key.
pub(super) fn write(root: &Path, texts: &BTreeMap<String, TensorData>) -> Result<()> {
    let mut views = Vec::new();
    for (key, text) in texts {
        let Kind { dtype, shape } = kind(key, text)?;
        let view = TensorView::new(dtype, shape, text.bytes())
            .map_err(|err| Error::Values { reason: format!("`{key}`: {err}") })?;
        views.push((key, view));
    }
    let bytes = safetensors::serialize(views, None)
        .map_err(|err| Error::Values { reason: err.to_string() })?;
    write_whole(&null_path(root), &bytes)
}

/// The null texts by key; none if there is no such file.
pub(super) fn read(root: &Path) -> Result<BTreeMap<String, TensorData>> {
    let path = null_path(root);
    let bytes = match kernels::read_file(&path, u64::MAX) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        bytes => bytes.map_err(|source| Error::file("read", &path, source))?,
    };
    let file = SafeTensors::deserialize(&bytes).map_err(|err| {
        Error::damaged(&path, format!("it is not a readable safetensors file: {err}"))
    })?;
    let tensor = |(key, view): (&str, TensorView<'_>)| {
        let dtype = number_type(view.dtype()).ok_or_else(|| Error::TensorType {
            key: key.to_owned(),
            dtype: format!("{:?}", view.dtype()),
        })?;
        let values = Bytes::from_bytes_vec(view.data().to_vec());
        Ok((key.to_owned(), TensorData::from_bytes(values, view.shape().to_vec(), dtype)))
    };
    file.iter().map(tensor).collect()
}
