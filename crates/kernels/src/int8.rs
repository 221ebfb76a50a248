//! Linear layers whose matrix is held in bytes: a quarter of the memory, and products of integers.
//!
//! A row of the matrix has one scale, and so has a row of the input, found as it comes. What both are
//! rounded to is multiplied and summed as integers without loss, in every instruction set: an element
//! has the same bits everywhere, whatever the other rows are.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor, TensorData};
use rayon::prelude::*;

use crate::activation::Activation;
use crate::gemm::{Epilogue, Matrix, Scales, product_by};
use crate::held::{Held, linear_held};
use crate::micro::{Integers, Kernels};
use crate::narrow::Packable;
use crate::oracle;
use crate::pack::{Order, Unpacked, blocks};
use crate::work::dispatch;

/// The largest whole number that a byte stands for; its negative is the smallest, so that none is
/// without its opposite.
const MOST: f32 = 127.0;
/// What is added to a number of the left-hand side where bytes there are unsigned.
const OFFSET: i32 = 128;
/// The most inputs whose sum fits 32 bits. (Sums of unsigned bytes may wrap; taking the offset off
/// wraps them back.)
const LONGEST: usize = i32::MAX as usize / (127 * 127);
/// Rows are whole numbers of so many bytes.
const GRAIN: usize = 4;

/// A matrix `[outputs, inputs]` of bytes with one scale per output. Clones share it.
#[derive(Clone, Debug)]
pub struct Int8Matrix {
    /// `[outputs, padded inputs]`, zero where there is no input.
    values: Arc<Vec<i8>>,
    scales: Arc<Vec<f32>>,
    /// [`OFFSET`] times the sum of each row.
    offsets: Arc<Vec<i32>>,
    shape: [usize; 2],
}

impl Int8Matrix {
    /// The nearest bytes to a matrix `[outputs, inputs]` of any float type, row by row. A row with a
    /// value that is not finite has no finite scale.
    ///
    /// # Panics
    /// Panics if there are more than 133,144 inputs.
    pub fn nearest(weight: Tensor<2>) -> Int8Matrix {
        let shape @ [outputs, inputs] = weight.dims();
        assert!(inputs <= LONGEST, "a sum of {inputs} products of bytes may not fit 32 bits");
        let padded = inputs.next_multiple_of(GRAIN);
        let mut values = vec![0; outputs * padded];
        let mut scales = vec![0.0; outputs];
        // Some rows at a time, so that a matrix is never held in f32 as a whole.
        let some = (ROWS_AT_A_TIME / inputs.max(1)).max(1);
        for first in (0..outputs).step_by(some) {
            let count = some.min(outputs - first);
            let part = weight.clone().narrow(0, first, count).cast(DType::F32).into_data();
            let part = part.as_slice::<f32>().expect("it was cast to f32");
            let rows = values[first * padded..].par_chunks_mut(padded.max(1));
            let rows = rows.zip(&mut scales[first..]).zip(part.par_chunks(inputs.max(1)));
            rows.for_each(|((to, scale), from)| {
                *scale = dispatch(
                    (from, to),
                    #[inline(always)]
                    |(from, to)| round_row(from, |index, value| to[index] = value as i8),
                );
            });
        }
        Int8Matrix::new(values, scales, shape)
    }

    fn new(values: Vec<i8>, scales: Vec<f32>, shape: [usize; 2]) -> Int8Matrix {
        let padded = shape[1].next_multiple_of(GRAIN);
        let sum = |row: &[i8]| OFFSET * row.iter().map(|value| i32::from(*value)).sum::<i32>();
        let offsets = match padded {
            0 => vec![0; shape[0]],
            _ => values.chunks_exact(padded).map(sum).collect(),
        };
        let (values, scales, offsets) = (Arc::new(values), Arc::new(scales), Arc::new(offsets));
        Int8Matrix { values, scales, offsets, shape }
    }

    /// `[outputs, inputs]`.
    pub fn shape(&self) -> [usize; 2] {
        self.shape
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.values.len() + (self.scales.len() + self.offsets.len()) * size_of::<f32>()
    }

    /// What it stands for, in f32.
    pub fn widened(&self, device: &Device) -> Tensor<2> {
        let values = self.rows().zip(self.scales.iter());
        let values = values.flat_map(|(row, scale)| row.iter().map(move |x| f32::from(*x) * scale));
        let data = TensorData::new(values.collect::<Vec<_>>(), self.shape);
        Tensor::from_data(data, (device, DType::F32))
    }

    /// Some of its outputs and some of its inputs.
    #[must_use]
    pub fn part(&self, outputs: Range<usize>, inputs: Range<usize>) -> Int8Matrix {
        let padded = inputs.len().next_multiple_of(GRAIN);
        let mut values = vec![0; outputs.len() * padded];
        let rows = self.rows().skip(outputs.start);
        for (to, from) in values.chunks_exact_mut(padded.max(1)).zip(rows) {
            to[..inputs.len()].copy_from_slice(&from[inputs.clone()]);
        }
        let scales = self.scales[outputs.clone()].to_vec();
        Int8Matrix::new(values, scales, [outputs.len(), inputs.len()])
    }

    /// The bytes of every output.
    fn rows(&self) -> impl Iterator<Item = &[i8]> {
        let [outputs, inputs] = self.shape;
        let padded = inputs.next_multiple_of(GRAIN);
        (0..outputs).map(move |row| &self.values[row * padded..][..inputs])
    }
}

/// Values that are widened at a time when a matrix is rounded.
const ROWS_AT_A_TIME: usize = 1 << 22;

/// `activation(x W^T + b)` of `[.., in]`, in which each row of `x` is rounded to bytes of its own
/// scale; differentiable in `x`, as if nothing were rounded but the matrix, and in `b`.
///
/// # Panics
/// Panics if the last dim of `x` is not `in`; models check shapes when they load.
pub fn linear_int8<const D: usize>(
    x: Tensor<D>,
    weight: &Int8Matrix,
    bias: Option<Tensor<1>>,
    activation: Activation,
) -> Tensor<D> {
    linear_held(&x, weight, bias.as_ref(), activation)
        .unwrap_or_else(|| oracle::linear_int8(x, weight, bias, activation))
}

impl Held for Int8Matrix {
    fn shape(&self) -> [usize; 2] {
        self.shape
    }

    fn multiply(&self, x: &[f32], rows: usize, epilogue: Epilogue<'_>) -> Vec<f32> {
        let [outputs, inputs] = self.shape;
        let (kernels, form) = Kernels::of_int8();
        let (left, scales) = quantise(x, [rows, inputs], form);
        let none = vec![0; outputs];
        let (values, of_word, offsets) = match form {
            Integers::Shorts => (Packable::Shorts(self.values.as_chunks().0), 2, &none),
            Integers::Bytes => (Packable::Bytes(self.values.as_chunks().0), 4, &*self.offsets),
        };
        let depth = inputs.next_multiple_of(GRAIN) / of_word;
        let right = Unpacked {
            values,
            order: Order::ColumnsApart(depth),
            blocks: &blocks(depth),
            columns: outputs,
        };
        let left = Matrix { values: &left, stride: depth };
        let scales = Some(Scales { rows: &scales, columns: &self.scales, offsets });
        product_by(kernels, &left, rows, &right, Epilogue { scales, ..epilogue })
    }

    fn widened(&self, device: &Device) -> Tensor<2> {
        Int8Matrix::widened(self, device)
    }
}

/// Rows of `width` floats as words of integers, and the scale of each row.
fn quantise(x: &[f32], [rows, width]: [usize; 2], form: Integers) -> (Vec<f32>, Vec<f32>) {
    let padded = width.next_multiple_of(GRAIN);
    let mut scales = vec![0.0; rows];
    let words = match form {
        Integers::Shorts => padded / 2,
        Integers::Bytes => padded / 4,
    };
    let mut out = vec![0.0_f32; rows * words];
    let places = out.par_chunks_mut(words.max(1)).zip(&mut scales).zip(x.par_chunks(width.max(1)));
    places.for_each(|((out, scale), row)| {
        *scale = dispatch(
            (row, out),
            #[inline(always)]
            |(row, out)| match form {
                Integers::Shorts => {
                    let out: &mut [i16] = bytemuck::cast_slice_mut(out);
                    round_row(row, |index, value| out[index] = value as i16)
                }
                Integers::Bytes => {
                    let out: &mut [u8] = bytemuck::cast_slice_mut(out);
                    round_row(row, |index, value| out[index] = (value + OFFSET) as u8)
                }
            },
        );
    });
    (out, scales)
}

/// Hands every value of a row, divided by its scale and rounded, to `put`, and returns the scale. It
/// is not finite if a value is not, so that the result shows it.
#[inline(always)]
fn round_row(row: &[f32], mut put: impl FnMut(usize, i32)) -> f32 {
    const LANES: usize = 16;
    let mut largest = [0.0_f32; LANES];
    // Zero, unless a value is infinite or no number.
    let mut poison = [0.0_f32; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, value) in chunk.iter().enumerate() {
            largest[lane] = largest[lane].max(value.abs());
            poison[lane] += value * 0.0;
        }
    }
    for value in rest {
        largest[0] = largest[0].max(value.abs());
        poison[0] += value * 0.0;
    }
    let largest = largest.into_iter().fold(0.0, f32::max);
    let poison: f32 = poison.into_iter().sum();
    let inverse = if largest > 0.0 { MOST / largest } else { 0.0 };
    for (index, value) in row.iter().enumerate() {
        put(index, nearest_integer(value * inverse));
    }
    largest / MOST + poison
}

/// The nearest whole number to a value between -127 and 127; any such number if it is none.
#[inline(always)]
fn nearest_integer(value: f32) -> i32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    let bits = (value + ROUND).to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    bits.clamp(-127, 127)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_the_nearest() {
        for step in -12_700..=12_700 {
            let value = step as f32 * 0.01;
            assert_eq!(nearest_integer(value), value.round_ties_even() as i32, "{value}");
        }
        assert!((-127..=127).contains(&nearest_integer(f32::NAN)));
        assert!((-127..=127).contains(&nearest_integer(f32::INFINITY)));
    }

    #[test]
    fn a_row_that_is_not_finite_has_no_scale() {
        let scale = |row: &[f32]| round_row(row, |_, _| ());
        assert_eq!(scale(&[0.0; 20]), 0.0);
        assert_eq!(scale(&[-254.0, 1.0]), 2.0);
        for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for place in [0, 15, 16, 19] {
                let mut row = [1.0; 20];
                row[place] = broken;
                assert!(!scale(&row).is_finite(), "{broken} at {place}");
            }
        }
    }
}
