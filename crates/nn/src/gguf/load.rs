//! Parameters from a GGUF file, where they are: mapped, and in blocks if they are.

use std::path::Path;

use burn::tensor::{DType, Device, Tensor, TensorData};
use bytes::Bytes;
use kernels::{BlockMatrix, BlockType};

use super::{GgufHeader, GgufTensor, GgufType};
use crate::error::{Error, Result};
use crate::quantized::QuantizedMatrix;
use crate::store::{Held, Parameter, Store, hold, mapped};

impl Store {
    /// Maps a file whose bytes are given. Matrices of blocks are found by [`Store::quantized`]; what is of blocks and
    /// no matrix is widened now.
    pub(crate) fn map_gguf(
        &mut self,
        path: &Path,
        file: &Bytes,
        held: Held<'_>,
        device: &Device,
    ) -> Result<()> {
        let corrupt = |reason: String| Error::CorruptGguf { path: path.to_owned(), reason };
        let header = GgufHeader::parse(file).map_err(corrupt)?;
        for (tensor, place) in header.places(file.len()).map_err(corrupt)? {
            let GgufTensor { name, kind, shape, .. } = tensor;
            let bytes = file.slice(place);
            if self.has_any(name) {
                return Err(corrupt(format!("tensor `{name}` occurs in another file too")));
            }
            let float = match kind {
                GgufType::F32 => DType::F32,
                GgufType::F16 => DType::F16,
                GgufType::Bf16 => DType::BF16,
                GgufType::Blocks(kind) => {
                    match (&shape[..], name.ends_with(".weight")) {
                        (&[outputs, inputs], true) => {
                            let matrix = BlockMatrix::new(bytes, *kind, [outputs, inputs]);
                            let matrix = matrix.expect("its place has the bytes of its shape");
                            self.quantized.insert(name.clone(), QuantizedMatrix::Blocks(matrix));
                        }
                        _ => self.insert(name.clone(), widened(&bytes, *kind, shape, device)),
                    }
                    continue;
                }
                GgufType::Other(_) => unreachable!("it has no place"),
            };
            let values = hold(mapped(bytes, float, device), name, shape, held);
            self.insert(name.clone(), Parameter { values, shape: shape.clone() });
        }
        self.merges_dims = true;
        Ok(())
    }
}

/// Values of blocks in f32.
fn widened(bytes: &[u8], kind: BlockType, shape: &[usize], device: &Device) -> Parameter {
    let mut values = vec![0.0; shape.iter().product()];
    kind.widen(bytes, &mut values);
    let data = TensorData::new(values, [shape.iter().product::<usize>()]);
    let values = Tensor::from_data(data, (device, DType::F32));
    Parameter { values, shape: shape.to_vec() }
}

/// Whether `stored` is `wanted` with some of its leading dims made one: a file of ggml has four dims at most, and none
/// of 1 before the others.
pub(crate) fn merges(stored: &[usize], wanted: &[usize]) -> bool {
    let Some(more) = wanted.len().checked_sub(stored.len()) else { return false };
    let (leading, rest) = wanted.split_at((more + 1).min(wanted.len()));
    let product = leading.iter().try_fold(1_usize, |all, own| all.checked_mul(*own));
    stored.split_first().is_some_and(|(first, own)| Some(*first) == product && own == rest)
}

#[cfg(test)]
mod tests {
    use super::merges;

    #[test]
    fn leading_dims_may_be_one() {
        for (stored, wanted) in [
            (&[6, 32][..], &[1, 6, 32][..]),
            (&[48, 1, 2, 2], &[4, 12, 1, 2, 2]),
            (&[12, 1, 2, 2], &[12, 1, 2, 2]),
            (&[7], &[1, 1, 7]),
        ] {
            assert!(merges(stored, wanted), "{stored:?} {wanted:?}");
        }
        for (stored, wanted) in [
            (&[32, 6][..], &[1, 6, 32][..]),
            (&[48, 1, 4], &[4, 12, 1, 2, 2]),
            (&[1, 6, 32], &[6, 32]),
            (&[], &[1]),
        ] {
            assert!(!merges(stored, wanted), "{stored:?} {wanted:?}");
        }
    }
}
