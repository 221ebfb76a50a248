//! Tensors that users give and get as safetensors files.

use std::path::Path;

use burn::tensor::{DType, Device, Tensor, TensorData};
use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::error::{Error, Result};

/// Tensor `key` of a file as f32, if the file has it.
pub(crate) fn read<const D: usize>(
    path: &Path,
    key: &str,
    device: &Device,
) -> Result<Option<Tensor<D>>> {
    let wrong = |reason: String| Error::Tensor { path: path.to_owned(), reason };
    let bytes = kernels::read_file(path, u64::MAX).map_err(|source| Error::read(path, source))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|err| wrong(format!("not a readable safetensors file: {err}")))?;
    let Ok(view) = file.tensor(key) else { return Ok(None) };
    let shape: [usize; D] = view.shape().try_into().map_err(|_| {
        wrong(format!("`{key}` has shape {:?}, but {D} dims are expected", view.shape()))
    })?;
    let values = numbers(&view).ok_or_else(|| {
        wrong(format!(
            "`{key}` is stored as {:?}, which is not a number type we read",
            view.dtype()
        ))
    })?;
    if let Some(index) = values.iter().position(|value| !value.is_finite()) {
        return Err(wrong(format!("`{key}` holds a value that is not finite at index {index}")));
    }
    Ok(Some(Tensor::from_data(TensorData::new(values, shape), device)))
}

/// As [`read`], for a tensor that must be there.
pub(crate) fn require<const D: usize>(
    path: &Path,
    key: &str,
    device: &Device,
) -> Result<Tensor<D>> {
    read(path, key, device)?.ok_or_else(|| Error::Tensor {
        path: path.to_owned(),
        reason: format!("it has no tensor `{key}`"),
    })
}

/// As [`require`], for a tensor of shape `want`, whose dims mean `meaning`.
pub(crate) fn shaped<const D: usize>(
    path: &Path,
    key: &str,
    (want, meaning): ([usize; D], &str),
    device: &Device,
) -> Result<Tensor<D>> {
    let tensor = require::<D>(path, key, device)?;
    let got = tensor.dims();
    if got != want {
        let reason =
            format!("`{key}` has shape {got:?}, but this request needs {want:?} ({meaning})");
        return Err(Error::Tensor { path: path.to_owned(), reason });
    }
    Ok(tensor)
}

/// As [`shaped`], for `want[0]` rows from `row` on of a tensor that may have more of them.
pub(crate) fn rows<const D: usize>(
    path: &Path,
    key: &str,
    (want, meaning): ([usize; D], &str),
    row: Option<usize>,
    device: &Device,
) -> Result<Tensor<D>> {
    let Some(row) = row else { return shaped(path, key, (want, meaning), device) };
    let tensor = require::<D>(path, key, device)?;
    let mut all = want;
    all[0] = tensor.dims()[0];
    let end = row.saturating_add(want[0]);
    match tensor.dims() == all && end <= all[0] {
        true => Ok(tensor.slice_dim(0, row..end)),
        false => {
            let got = tensor.dims();
            let reason = format!(
                "`{key}` has shape {got:?}, but row {row} of {want:?} ({meaning}) is asked for"
            );
            Err(Error::Tensor { path: path.to_owned(), reason })
        }
    }
}

fn numbers(view: &TensorView<'_>) -> Option<Vec<f32>> {
    use safetensors::Dtype;
    let dtype = match view.dtype() {
        Dtype::F32 => DType::F32,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::BF16,
        Dtype::F64 => DType::F64,
        Dtype::I64 => DType::I64,
        Dtype::I32 => DType::I32,
        Dtype::U8 => DType::U8,
        Dtype::BOOL => return Some(view.data().iter().map(|byte| f32::from(*byte)).collect()),
        _ => return None,
    };
    let bytes = burn::tensor::Bytes::from_bytes_vec(view.data().to_vec());
    let elements = view.shape().iter().product::<usize>();
    TensorData::from_bytes(bytes, [elements], dtype).convert::<f32>().try_to_vec().ok()
}

/// An f32 tensor of any rank, to be stored.
pub(crate) struct Stored {
    shape: Vec<usize>,
    data: TensorData,
}

impl Stored {
    pub(crate) fn of<const D: usize>(tensor: Tensor<D>) -> Stored {
        Stored { shape: tensor.dims().to_vec(), data: tensor.into_data() }
    }
}

/// The bytes of a safetensors file that holds f32 tensors under these keys.
///
/// # Errors
/// They cannot be serialised.
pub(crate) fn file(tensors: &[(&str, Stored)]) -> Result<Vec<u8>> {
    let wrong = |err| Error::Unknown(format!("cannot store tensors: {err}"));
    let views = tensors.iter().map(|(key, own)| {
        let bytes = own.data.bytes();
        let view = TensorView::new(safetensors::Dtype::F32, own.shape.clone(), bytes);
        Ok((*key, view.map_err(wrong)?))
    });
    safetensors::serialize(views.collect::<Result<Vec<_>>>()?, None).map_err(wrong)
}
