//! Parts of layers: what one rank of several holds of a matrix.

use std::ops::Range;

use burn::tensor::Tensor;

use crate::quantized::QuantizedMatrix;

/// How a layer is split over the ranks of tensor parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Split {
    /// Each rank computes some of the outputs.
    Columns,
    /// Each rank holds some of the inputs; the outputs are summed.
    Rows,
    /// A norm over a width of which each rank holds some channels: squares are summed.
    Channels,
}

/// A part of a matrix `[outputs, inputs]`; whole along a side that is not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Some of the outputs.
    pub outputs: Option<Range<usize>>,
    /// Some of the inputs.
    pub inputs: Option<Range<usize>>,
}

impl Part {
    /// All of it.
    pub const WHOLE: Part = Part { outputs: None, inputs: None };

    /// Its part of a matrix `[outputs, inputs]`.
    pub fn of(&self, matrix: Tensor<2>) -> Tensor<2> {
        cut(cut(matrix, 0, self.outputs.as_ref()), 1, self.inputs.as_ref())
    }

    /// The same of a matrix in fewer bits.
    pub(crate) fn of_quantized(&self, matrix: QuantizedMatrix) -> QuantizedMatrix {
        if *self == Part::WHOLE {
            return matrix;
        }
        let [outputs, inputs] = matrix.shape();
        let outputs = self.outputs.clone().unwrap_or(0..outputs);
        matrix.part(outputs, self.inputs.clone().unwrap_or(0..inputs))
    }

    /// Its part of one value per output.
    pub fn of_outputs(&self, values: Tensor<1>) -> Tensor<1> {
        cut(values, 0, self.outputs.as_ref())
    }
}

fn cut<const D: usize>(x: Tensor<D>, dim: usize, range: Option<&Range<usize>>) -> Tensor<D> {
    match range {
        Some(range) => x.narrow(dim, range.start, range.len()),
        None => x,
    }
}
