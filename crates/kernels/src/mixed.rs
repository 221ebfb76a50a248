//! Linear layers that learn in f32 and multiply in bf16: what goes into a product is rounded, forward and back, and
//! what comes out of it, sums, gradients and the matrix that learns, is f32.

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use half::bf16;

use crate::activation::Activation;
use crate::gemm::{Epilogue, Matrix, product, product_by};
use crate::linear::{as_words, column_sums, sizes, transpose};
use crate::micro::Kernels;
use crate::narrow::{Narrow, Stored};
use crate::operation::{Operand, Operation, apply};
use crate::oracle;
use crate::pack::{Order, Unpacked, blocks};
use crate::rounding::rounded;
use crate::storage;

/// [`crate::linear()`] of which all products, those of the backward pass too, are of operands that are rounded to
/// bf16. Where no set multiplies bf16, rounded operands are multiplied in f32.
///
/// # Panics
/// Panics if the last dim of `x` is not `in`; models check shapes when they load.
pub fn linear_mixed<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<D> {
    let offset = match &bias {
        Some(bias) => Operand::new(bias),
        None => Some(Operand::Plain(storage::tensor(Vec::new(), [0]))),
    };
    let (Some(left), Some(right), Some(offset)) = (Operand::new(&x), Operand::new(&weight), offset)
    else {
        return oracle::linear_mixed(x, weight, bias, activation);
    };
    let inputs = [left, right, offset];
    if inputs.iter().any(|input| matches!(input, Operand::Recorded(_))) {
        // The backward pass of the activation needs its input, so it is an operation of its own.
        return activation.apply(apply(&Mixed(Activation::Identity), inputs));
    }
    apply(&Mixed(activation), inputs)
}

#[derive(Clone, Debug)]
struct Mixed(Activation);

/// The inputs of a recorded call: the left one rounded, the weight as it is stored.
#[derive(Clone, Debug)]
struct Saved {
    x: Vec<bf16>,
    shape: Vec<usize>,
    weight: FlexTensor,
    bias: usize,
}

impl Operation<3> for Mixed {
    type Saved = Saved;

    fn forward(&self, [x, weight, bias]: [FlexTensor; 3]) -> (FlexTensor, Saved) {
        let (x, weight) = (storage::contiguous(x), storage::stored(weight));
        let bias = storage::contiguous(bias);
        let bias_values = storage::values(&bias);
        let ([outer, inner], rows, shape) = sizes(&x, &weight);
        let before = storage::sizes(&x);
        let x = rounded(storage::values(&x));
        let epilogue = Epilogue {
            bias: (!bias_values.is_empty()).then_some(bias_values),
            activation: self.0,
            ..Epilogue::NONE
        };
        let right = narrowed(&weight);
        let out = multiply((&x, rows), (&right, outer), inner, epilogue);
        let saved = Saved { x, shape: before, weight, bias: bias_values.len() };
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
            let weight = widened(&saved.weight);
            let right = rounded(&transpose(&weight, outer, inner));
            let dx = multiply((&rounded(dy), rows), (&right, inner), outer, Epilogue::NONE);
            storage::tensor(dx, saved.shape.clone())
        });
        let dw = wanted[1].then(|| {
            let x: Vec<f32> = saved.x.iter().map(|x| x.widen()).collect();
            let [left, right] = [transpose(dy, rows, outer), transpose(&x, rows, inner)];
            let [left, right] = [rounded(&left), rounded(&right)];
            let dw = multiply((&left, outer), (&right, inner), rows, Epilogue::NONE);
            storage::tensor(dw, [outer, inner])
        });
        let db = (wanted[2] && saved.bias != 0)
            .then(|| storage::tensor(column_sums(dy, outer), [outer]));
        [dx, dw, db]
    }
}

/// A weight rounded to bf16.
fn narrowed(weight: &FlexTensor) -> Vec<bf16> {
    match storage::weights(weight) {
        Stored::Bf16(values) => values.to_vec(),
        Stored::F32(values) => rounded(values),
        Stored::F16(_) => rounded(&widened(weight)),
    }
}

/// A weight in f32.
fn widened(weight: &FlexTensor) -> Vec<f32> {
    match storage::weights(weight) {
        Stored::F32(values) => values.to_vec(),
        Stored::Bf16(values) => values.iter().map(|value| value.widen()).collect(),
        Stored::F16(values) => values.iter().map(|value| value.widen()).collect(),
    }
}

/// `left x right^T`: both are rows of so many values.
fn multiply(
    (left, rows): (&[bf16], usize),
    (right, columns): (&[bf16], usize),
    depth: usize,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    let Some(kernels) = Kernels::of_bf16() else {
        let left: Vec<f32> = left.iter().map(|value| value.widen()).collect();
        let right = Unpacked {
            values: Stored::Bf16(right).into(),
            order: Order::ColumnsApart(depth),
            blocks: &blocks(depth),
            columns,
        };
        return product(&Matrix { values: &left, stride: depth }, rows, &right, epilogue);
    };
    let (left, right) = (as_words(left, depth), as_words(right, depth));
    let words = depth.div_ceil(2);
    let right = Unpacked {
        values: Stored::F32(&right).into(),
        order: Order::ColumnsApart(words),
        blocks: &blocks(words),
        columns,
    };
    product_by(kernels, &Matrix { values: &left, stride: words }, rows, &right, epilogue)
}
