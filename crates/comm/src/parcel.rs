//! What travels between ranks.

use std::sync::Arc;

use burn::tensor::{DType, Int, Tensor};

/// Values in a row, outside any graph, with their shape and a name of the sender's.
///
/// Between ranks of one process the values are shared, not copied.
#[derive(Clone, Debug)]
pub struct Parcel {
    /// What the sender calls it.
    pub name: Arc<str>,
    /// The shape of the tensor.
    pub shape: Vec<usize>,
    /// Its values.
    pub values: Values,
}

/// The values of a parcel.
#[derive(Clone, Debug)]
pub enum Values {
    /// Floats of any width.
    Floats(Tensor<1>),
    /// Integers.
    Integers(Tensor<1, Int>),
    /// What is no numbers.
    Bytes(Arc<[u8]>),
    /// None at all.
    Nothing,
}

impl Parcel {
    /// A tensor without a name.
    pub(crate) fn of<const D: usize>(tensor: Tensor<D>) -> Parcel {
        let tensor = tensor.inner();
        let shape = tensor.dims().to_vec();
        let count = shape.iter().product::<usize>();
        Parcel { name: "".into(), shape, values: Values::Floats(tensor.reshape([count])) }
    }

    /// Bytes under a name.
    pub fn of_bytes(name: &str, bytes: impl Into<Arc<[u8]>>) -> Parcel {
        let bytes = bytes.into();
        Parcel { name: name.into(), shape: vec![bytes.len()], values: Values::Bytes(bytes) }
    }

    /// The tensor, whose number of dims the headers agreed on.
    pub(crate) fn open<const D: usize>(self) -> Tensor<D> {
        let shape: [usize; D] = match self.shape.try_into() {
            Ok(shape) => shape,
            Err(shape) => unreachable!("the headers agree on {D} dims, but it has {shape:?}"),
        };
        match self.values {
            Values::Floats(values) => values.reshape(shape),
            other => unreachable!("the headers agree on floats, but it has {other:?}"),
        }
    }

    /// The type of its elements, if it has any.
    pub fn dtype(&self) -> Option<DType> {
        match &self.values {
            Values::Floats(values) => Some(values.dtype()),
            Values::Integers(values) => Some(values.dtype()),
            Values::Bytes(_) | Values::Nothing => None,
        }
    }

    /// The bytes of its values.
    pub fn bytes(&self) -> u64 {
        if let Values::Bytes(bytes) = &self.values {
            return bytes.len() as u64;
        }
        let elements = self.shape.iter().product::<usize>() as u64;
        self.dtype().map_or(0, |dtype| elements * dtype.size() as u64)
    }
}
