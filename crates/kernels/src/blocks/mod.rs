//! Matrices as ggml quantizes them, and as GGUF files hold them: blocks of 32 or 256 numbers along a row, each
//! with scales of its own. They stay where they are, in a file that is mapped, and are widened while they are
//! packed for a product.

mod formats;
mod nearest;

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor, TensorData};
use bytes::Bytes;
use rayon::prelude::*;

use self::formats::{Format, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
use crate::activation::Activation;
use crate::gemm::{Epilogue, Matrix, product};
use crate::held::{Held, linear_held};
use crate::narrow::Packable;
use crate::oracle;
use crate::pack::{Order, Unpacked, blocks};
use crate::work::dispatch;

/// How the numbers of a block are written. What has a K in its name has 256 of them, the others 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockType {
    /// Four bits and a scale.
    Q4_0,
    /// Four bits, a scale and a least number.
    Q4_1,
    /// Five bits and a scale.
    Q5_0,
    /// Five bits, a scale and a least number.
    Q5_1,
    /// A byte and a scale.
    Q8_0,
    /// Four bits; scales and least numbers of eight parts.
    Q4K,
    /// Five bits; scales and least numbers of eight parts.
    Q5K,
    /// Six bits; scales of sixteen parts.
    Q6K,
}

/// Calls something generic for the format that a type names.
macro_rules! for_format {
    ($kind:expr, $format:ident => $body:expr) => {
        match $kind {
            BlockType::Q4_0 => {
                type $format = Q4_0;
                $body
            }
            BlockType::Q4_1 => {
                type $format = Q4_1;
                $body
            }
            BlockType::Q5_0 => {
                type $format = Q5_0;
                $body
            }
            BlockType::Q5_1 => {
                type $format = Q5_1;
                $body
            }
            BlockType::Q8_0 => {
                type $format = Q8_0;
                $body
            }
            BlockType::Q4K => {
                type $format = Q4K;
                $body
            }
            BlockType::Q5K => {
                type $format = Q5K;
                $body
            }
            BlockType::Q6K => {
                type $format = Q6K;
                $body
            }
        }
    };
}

impl BlockType {
    /// All of them.
    pub const ALL: [BlockType; 8] = [
        BlockType::Q4_0,
        BlockType::Q4_1,
        BlockType::Q5_0,
        BlockType::Q5_1,
        BlockType::Q8_0,
        BlockType::Q4K,
        BlockType::Q5K,
        BlockType::Q6K,
    ];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            BlockType::Q4_0 => "q4_0",
            BlockType::Q4_1 => "q4_1",
            BlockType::Q5_0 => "q5_0",
            BlockType::Q5_1 => "q5_1",
            BlockType::Q8_0 => "q8_0",
            BlockType::Q4K => "q4_k",
            BlockType::Q5K => "q5_k",
            BlockType::Q6K => "q6_k",
        }
    }

    /// Numbers of a block.
    pub fn length(self) -> usize {
        for_format!(self, F => F::LENGTH)
    }

    /// Bytes of a block.
    pub fn bytes(self) -> usize {
        for_format!(self, F => F::BYTES)
    }

    /// The numbers of whole blocks one after the other.
    ///
    /// # Panics
    /// Panics if `to` has not as many numbers as the blocks.
    pub fn widen(self, from: &[u8], to: &mut [f32]) {
        assert_eq!(from.len() / self.bytes() * self.length(), to.len(), "a number for a number");
        dispatch(
            (from, to),
            #[inline(always)]
            |(from, to)| for_format!(self, F => widen_blocks::<F>(from, to)),
        );
    }
}

#[inline(always)]
fn widen_blocks<F: Format>(from: &[u8], to: &mut [f32]) {
    for (block, to) in from.chunks_exact(F::BYTES).zip(to.chunks_exact_mut(F::LENGTH)) {
        F::widen(block, to);
    }
}

/// A matrix `[outputs, inputs]` of blocks, or a part of one. Clones and parts share it.
#[derive(Clone, Debug)]
pub struct BlockMatrix {
    bytes: Bytes,
    kind: BlockType,
    shape: [usize; 2],
    /// Bytes from one row to the next.
    stride: usize,
    /// Numbers of a row before those that belong to it.
    skipped: usize,
}

/// Rows of blocks as a product reads them.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    bytes: &'a [u8],
    kind: BlockType,
    stride: usize,
    skipped: usize,
}

impl Rows<'_> {
    /// Some numbers of a row, from `start` on.
    #[inline(always)]
    pub(crate) fn widen(&self, row: usize, start: usize, to: &mut [f32]) {
        let row = &self.bytes[row * self.stride..][..self.stride];
        let start = self.skipped + start;
        for_format!(self.kind, F => part_of_row::<F>(row, start, to));
    }
}

#[inline(always)]
fn part_of_row<F: Format>(row: &[u8], start: usize, to: &mut [f32]) {
    let whole = start.is_multiple_of(F::LENGTH) && to.len().is_multiple_of(F::LENGTH);
    let row = &row[start / F::LENGTH * F::BYTES..];
    if whole {
        return widen_blocks::<F>(&row[..to.len() / F::LENGTH * F::BYTES], to);
    }
    let (mut skipped, mut rest) = (start % F::LENGTH, to);
    let mut room = [0.0; 256];
    for block in row.chunks_exact(F::BYTES) {
        F::widen(block, &mut room[..F::LENGTH]);
        let count = (F::LENGTH - skipped).min(rest.len());
        let (own, later) = std::mem::take(&mut rest).split_at_mut(count);
        own.copy_from_slice(&room[skipped..][..count]);
        (skipped, rest) = (0, later);
        if rest.is_empty() {
            return;
        }
    }
}

impl BlockMatrix {
    /// A matrix `[outputs, inputs]` that is these bytes; none if a row is no whole number of blocks, or the bytes
    /// are not as many as such a matrix has.
    pub fn new(bytes: Bytes, kind: BlockType, shape: [usize; 2]) -> Option<BlockMatrix> {
        let [outputs, inputs] = shape;
        if !inputs.is_multiple_of(kind.length()) {
            return None;
        }
        let stride = inputs / kind.length() * kind.bytes();
        let fits = stride.checked_mul(outputs) == Some(bytes.len());
        fits.then_some(BlockMatrix { bytes, kind, shape, stride, skipped: 0 })
    }

    /// How its blocks are written.
    pub fn kind(&self) -> BlockType {
        self.kind
    }

    /// `[outputs, inputs]`.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.shape[0] * self.shape[1].div_ceil(self.kind.length()) * self.kind.bytes()
    }

    /// What it stands for, in f32.
    pub fn widened(&self, device: &Device) -> Tensor<2> {
        let inputs = self.shape[1];
        let mut values = vec![0.0; self.shape[0] * inputs];
        let rows = values.par_chunks_mut(inputs.max(1)).enumerate();
        rows.for_each(|(row, to)| {
            dispatch(
                (self.rows(), to),
                #[inline(always)]
                |(rows, to)| rows.widen(row, 0, to),
            );
        });
        Tensor::from_data(TensorData::new(values, self.shape), (device, DType::F32))
    }

    /// Some of its outputs and some of its inputs, where they are.
    #[must_use]
    pub fn part(&self, outputs: Range<usize>, inputs: Range<usize>) -> BlockMatrix {
        let bytes = self.bytes.slice(outputs.start * self.stride..outputs.end * self.stride);
        let (shape, skipped) = ([outputs.len(), inputs.len()], self.skipped + inputs.start);
        BlockMatrix { bytes, shape, skipped, ..self.clone() }
    }

    /// Its bytes, if its rows are whole.
    pub fn whole(&self) -> Option<&[u8]> {
        let bytes = self.shape[1] / self.kind.length() * self.kind.bytes();
        let whole = self.skipped == 0 && self.shape[1].is_multiple_of(self.kind.length());
        (whole && bytes == self.stride).then_some(&self.bytes[..])
    }

    fn rows(&self) -> Rows<'_> {
        let BlockMatrix { bytes, kind, stride, skipped, .. } = self;
        Rows { bytes, kind: *kind, stride: *stride, skipped: *skipped }
    }
}

impl Held for BlockMatrix {
    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    fn multiply(&self, x: &[f32], rows: usize, epilogue: Epilogue<'_>) -> Vec<f32> {
        let [outputs, inputs] = self.shape;
        let right = Unpacked {
            values: Packable::Blocks(self.rows()),
            order: Order::ColumnsApart(inputs),
            blocks: &blocks(inputs),
            columns: outputs,
        };
        product(&Matrix { values: x, stride: inputs }, rows, &right, epilogue)
    }

    fn widened(&self, device: &Device) -> Tensor<2> {
        BlockMatrix::widened(self, device)
    }
}

/// `activation(x W^T + b)` of `[.., in]`, to the bit what [`crate::linear()`] makes of the widened matrix;
/// differentiable in `x` and in `b`.
///
/// # Panics
/// Panics if the last dim of `x` is not `in`; models check shapes when they load.
pub fn linear_blocks<const D: usize>(
    x: Tensor<D>,
    weight: &BlockMatrix,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<D> {
    linear_held(&x, weight, bias.as_ref(), activation).unwrap_or_else(|| {
        let weight = weight.widened(&x.device());
        oracle::linear(x, weight, bias, activation)
    })
}
