//! Activations rounded to bf16, for products that take them so.

use burn::backend::Flex;
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType, Tensor};
use half::bf16;
use rayon::prelude::*;

use crate::narrow::nearest;
use crate::storage;
use crate::work::dispatch;

/// `x` rounded to bf16, outside any graph: [`crate::linear()`] and [`crate::attention()`] multiply such
/// operands in bf16 and sum in f32 where the instruction set does (see
/// [`crate::InstructionSet::multiplies_bf16`]), and widen them elsewhere.
pub fn to_bf16<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let x = x.inner();
    let Ok(own) = x.clone().try_into_primitive::<Flex>() else { return x.cast(DType::BF16) };
    if own.dtype() == DType::BF16 {
        return x;
    }
    let own = storage::contiguous(own);
    let rounded = rounded(storage::values(&own));
    let shape = own.layout().shape().clone();
    let bytes = Bytes::from_elems(rounded);
    Tensor::from_primitive::<Flex>(FlexTensor::new(bytes, Layout::contiguous(shape), DType::BF16))
}

/// All values rounded.
pub(crate) fn rounded(values: &[f32]) -> Vec<bf16> {
    // Values of one task.
    const CHUNK: usize = 1 << 15;
    let mut out = vec![bf16::ZERO; values.len()];
    out.par_chunks_mut(CHUNK).zip(values.par_chunks(CHUNK)).for_each(|(out, values)| {
        dispatch(
            (out, values),
            #[inline(always)]
            |(out, values)| {
                out.iter_mut().zip(values).for_each(|(out, value)| *out = nearest(*value));
            },
        );
    });
    out
}
