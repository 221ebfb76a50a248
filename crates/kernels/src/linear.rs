//! Linear layers: every matrix of parameters meets its activations here.

use std::borrow::Cow;

use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor};
use half::bf16;
use rayon::prelude::*;

use crate::activation::Activation;
use crate::gemm::{Epilogue, Matrix, Shared, product, product_by};
use crate::micro::Kernels;
use crate::narrow::{Stored, words};
use crate::operation::{Operand, Operation, apply};
use crate::oracle;
use crate::pack::{Order, Unpacked, blocks};
use crate::storage;
use crate::transpose::{SIDE, transpose_columns};

/// `activation(x W^T + b)`: `x` is `[.., in]`, `weight` `[out, in]` in f32, bf16 or f16 as it is
/// stored, `bias` `[out]`; the result is f32 `[.., out]`.
///
/// If both `x` and `weight` are bf16 and in no graph, they are multiplied as such where the
/// instruction set does that; else whatever is narrow is widened.
///
/// # Panics
/// Panics if the last dim of `x` is not `in`; models check shapes when they load.
pub fn linear<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<D> {
    let (Some(left), Some(right)) = (Operand::new(&x), Operand::new(&weight)) else {
        return oracle::linear(x, weight, bias, activation);
    };
    let offset = match &bias {
        Some(bias) => Operand::new(bias),
        None => Some(Operand::Plain(storage::tensor(Vec::new(), [0]))),
    };
    let Some(offset) = offset else { return oracle::linear(x, weight, bias, activation) };
    let inputs = [left, right, offset];
    if inputs.iter().any(|input| matches!(input, Operand::Recorded(_))) {
        // The backward pass of the activation needs its input, so it is an operation of its own.
        return activation.apply(apply(&Linear(Activation::Identity), inputs));
    }
    apply(&Linear(activation), inputs)
}

#[derive(Clone, Debug)]
struct Linear(Activation);

/// The inputs of a recorded call; the weight in its stored type.
#[derive(Clone, Debug)]
struct Saved {
    x: FlexTensor,
    weight: FlexTensor,
    bias: usize,
}

impl Operation<3> for Linear {
    type Saved = Saved;

    fn plain(&self, [x, weight, bias]: [FlexTensor; 3]) -> FlexTensor {
        let narrow = [&x, &weight].iter().all(|operand| operand.dtype() == DType::BF16);
        match Kernels::of_bf16() {
            Some(kernels) if narrow => self.in_bf16(kernels, [x, weight, bias]),
            _ => self.forward([x, weight, bias]).0,
        }
    }

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3]) -> (FlexTensor, Saved) {
        let (x, weight) = (storage::contiguous(x), storage::stored(weight));
        let bias = storage::contiguous(bias);
        let bias_values = storage::values(&bias);
        let ([outer, inner], rows, shape) = sizes(&x, &weight);
        let right = Unpacked {
            values: storage::weights(&weight).into(),
            order: Order::ColumnsApart(inner),
            blocks: &blocks(inner),
            columns: outer,
        };
        let left = Matrix { values: storage::values(&x), stride: inner };
        let bias_values = (!bias_values.is_empty()).then_some(bias_values);
        let epilogue = Epilogue { bias: bias_values, activation: self.0, ..Epilogue::NONE };
        let out = product(&left, rows, &right, epilogue);
        let saved = Saved { x, weight, bias: bias_values.map_or(0, <[f32]>::len) };
        (storage::tensor(out, shape), saved)
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: FlexTensor,
        wanted: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let gradient = storage::contiguous(gradient);
        let dy = storage::values(&gradient);
        let [outer, inner] = storage::sizes(&saved.weight)[..] else {
            panic!("a weight is a matrix")
        };
        let rows = dy.len() / outer.max(1);
        let dx = wanted[0].then(|| {
            let right = Unpacked {
                values: storage::weights(&saved.weight).into(),
                order: Order::RowsApart(inner),
                blocks: &blocks(outer),
                columns: inner,
            };
            let left = Matrix { values: dy, stride: outer };
            let dx = product(&left, rows, &right, Epilogue::NONE);
            storage::tensor(dx, storage::sizes(&saved.x))
        });
        let dw = wanted[1].then(|| {
            let transposed = transpose(dy, rows, outer);
            let right = Unpacked {
                values: Stored::F32(storage::values(&saved.x)).into(),
                order: Order::RowsApart(inner),
                blocks: &blocks(rows),
                columns: inner,
            };
            let left = Matrix { values: &transposed, stride: rows };
            storage::tensor(product(&left, outer, &right, Epilogue::NONE), [outer, inner])
        });
        let db = (wanted[2] && saved.bias != 0)
            .then(|| storage::tensor(column_sums(dy, outer), [outer]));
        [dx, dw, db]
    }
}

impl Linear {
    /// The result from operands that are bf16: pairs of them are the words of the product.
    fn in_bf16(&self, kernels: Kernels, [x, weight, bias]: [FlexTensor; 3]) -> FlexTensor {
        let (x, weight) = (storage::stored(x), storage::stored(weight));
        let bias = storage::contiguous(bias);
        let bias_values = storage::values(&bias);
        let ([outer, inner], rows, shape) = sizes(&x, &weight);
        let (Stored::Bf16(left), Stored::Bf16(right)) =
            (storage::weights(&x), storage::weights(&weight))
        else {
            unreachable!("both operands are bf16")
        };
        let (left, right) = (as_words(left, inner), as_words(right, inner));
        let depth = inner.div_ceil(2);
        let right = Unpacked {
            values: Stored::F32(&right).into(),
            order: Order::ColumnsApart(depth),
            blocks: &blocks(depth),
            columns: outer,
        };
        let left = Matrix { values: &left, stride: depth };
        let bias = (!bias_values.is_empty()).then_some(bias_values);
        let epilogue = Epilogue { bias, activation: self.0, ..Epilogue::NONE };
        storage::tensor(product_by(kernels, &left, rows, &right, epilogue), shape)
    }
}

/// The sizes of a weight `[out, in]`, the rows of its input, and the shape of the result.
///
/// # Panics
/// Panics if the input does not fit.
pub(crate) fn sizes(x: &FlexTensor, weight: &FlexTensor) -> ([usize; 2], usize, Vec<usize>) {
    let [outer, inner] = storage::sizes(weight)[..] else { panic!("a weight is a matrix") };
    let mut shape = storage::sizes(x);
    let last = shape.last_mut().expect("an input has at least one dim");
    assert_eq!(*last, inner, "linear: an input of width {last} meets a weight of width {inner}");
    *last = outer;
    let rows = shape[..shape.len() - 1].iter().product();
    ([outer, inner], rows, shape)
}

/// Rows of so many bf16 as rows of words; copied where a row is no whole number of words.
pub(crate) fn as_words(values: &[bf16], width: usize) -> Cow<'_, [f32]> {
    if let (0, Some(words)) = (width % 2, words(values)) {
        return Cow::Borrowed(words);
    }
    let word = |pair: &[bf16]| {
        let high = pair.get(1).map_or(0, |high| u32::from(high.to_bits()) << 16);
        f32::from_bits(u32::from(pair[0].to_bits()) | high)
    };
    let rows = values.par_chunks_exact(width.max(1));
    Cow::Owned(rows.flat_map_iter(|row| row.chunks(2).map(word)).collect())
}

/// `[rows, columns]` to `[columns, rows]`.
pub(crate) fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    // Columns of one task: what it writes for eight rows fits a first-level cache many times over.
    const WIDTH: usize = 64;
    let mut out = storage::buffer(values.len());
    let place = Shared(out.as_mut_ptr());
    let transpose = transpose_columns();
    (0..columns.div_ceil(WIDTH)).into_par_iter().for_each(|task| {
        let first = task * WIDTH;
        let width = WIDTH.min(columns - first);
        let row = |row: usize| &values[row * columns + first..][..width];
        let whole = rows / SIDE * SIDE;
        for start in (0..whole).step_by(SIDE) {
            let pointers = std::array::from_fn(|r| row(start + r).as_ptr());
            // SAFETY: each column of the input is a row of the output owned by one task.
            unsafe { transpose(width, &pointers, place.at(first * rows + start), rows) };
        }
        for start in whole..rows {
            for (column, value) in row(start).iter().enumerate() {
                // SAFETY: as above.
                unsafe { *place.at((first + column) * rows + start) = *value };
            }
        }
    });
    out
}

/// The sum of every column, row after row.
pub(crate) fn column_sums(values: &[f32], columns: usize) -> Vec<f32> {
    const WIDTH: usize = 64;
    let mut sums = vec![0.0; columns];
    sums.par_chunks_mut(WIDTH).enumerate().for_each(|(chunk, sums)| {
        for row in values.chunks_exact(columns) {
            let row = &row[chunk * WIDTH..][..sums.len()];
            sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
    });
    sums
}
