//! CPU tensors as slices.

use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{Bytes, DType, Shape, TensorData};
use half::{bf16, f16};

use crate::narrow::Stored;

/// A contiguous f32 tensor made from `values`.
pub(crate) fn tensor(values: Vec<f32>, shape: impl Into<Shape>) -> FlexTensor {
    let shape = shape.into();
    debug_assert_eq!(shape.num_elements(), values.len());
    FlexTensor::new(Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

/// The tensor as contiguous f32, cast and copied only where it must be.
pub(crate) fn contiguous(tensor: FlexTensor) -> FlexTensor {
    let tensor = match tensor.dtype() {
        DType::F32 => tensor,
        _ => FlexTensor::from_data(tensor.into_data().convert_dtype(DType::F32)),
    };
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}

/// The elements of a tensor that went through [`contiguous`].
pub(crate) fn values(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice::<f32>().expect("the tensor is contiguous f32")
}

/// The elements of a contiguous f32 tensor to be written over; none if anything else sees them.
pub(crate) fn own(tensor: &mut FlexTensor) -> Option<&mut [f32]> {
    let (start, end) = tensor.layout().contiguous_offsets()?;
    match tensor.dtype() {
        DType::F32 => tensor.try_storage_mut::<f32>().map(|values| &mut values[start..end]),
        _ => None,
    }
}

/// The sizes of a tensor.
pub(crate) fn sizes(tensor: &FlexTensor) -> Vec<usize> {
    tensor.layout().shape().to_vec()
}

/// An uninitialised-looking buffer: zeroed by the allocator, which for large sizes costs nothing
/// until a page is touched.
pub(crate) fn buffer(length: usize) -> Vec<f32> {
    vec![0.0; length]
}

/// The elements of a tensor that went through [`stored`].
pub(crate) fn weights(tensor: &FlexTensor) -> Stored<'_> {
    let slice = match tensor.dtype() {
        DType::F32 => tensor.as_slice::<f32>().map(Stored::F32),
        DType::BF16 => tensor.as_slice::<bf16>().map(Stored::Bf16),
        DType::F16 => tensor.as_slice::<f16>().map(Stored::F16),
        _ => None,
    };
    slice.expect("weights are contiguous f32, bf16 or f16")
}

/// A contiguous weight in the type it is stored in.
pub(crate) fn stored(tensor: FlexTensor) -> FlexTensor {
    let tensor = match tensor.dtype() {
        DType::F32 | DType::BF16 | DType::F16 => tensor,
        _ => FlexTensor::from_data(TensorData::convert_dtype(tensor.into_data(), DType::F32)),
    };
    if tensor.is_contiguous() { tensor } else { tensor.to_contiguous() }
}
