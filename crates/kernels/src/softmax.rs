//! Softmax over the last dim.

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use crate::lanes::{largest, map, sum, update};
use crate::math::exp;
use crate::operation::{Operand, Operation, apply};
use crate::rows::write_rows;
use crate::{oracle, storage};

/// Softmax over the last dim of `x` `[.., D]`, in f32.
///
/// A row whose elements are all negative infinity has no softmax: its result is NaN.
pub fn softmax<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    match Operand::new(&x) {
        Some(x) => apply(&Softmax, [x]),
        None => oracle::softmax(x),
    }
}

#[derive(Clone, Debug)]
struct Softmax;

impl Operation<1> for Softmax {
    type Saved = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, FlexTensor) {
        let x = storage::contiguous(x);
        let (values, shape) = (storage::values(&x), storage::sizes(&x));
        let width = shape.last().copied().unwrap_or(1);
        let out = write_rows(
            values.len(),
            width,
            #[inline(always)]
            |row, slots| {
                let x = &values[row * width..][..width];
                let most = largest(x);
                let out = map(
                    slots,
                    [x],
                    #[inline(always)]
                    |[x]| exp(x - most),
                );
                let inverse = 1.0 / sum([out], |[value]| value);
                update(out, [], |value, []| value * inverse);
                out
            },
        );
        let out = storage::tensor(out, shape);
        (out.clone(), out)
    }

    fn backward(
        &self,
        out: FlexTensor,
        gradient: FlexTensor,
        _wanted: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let gradient = storage::contiguous(gradient);
        let (upstream, shares) = (storage::values(&gradient), storage::values(&out));
        let shape = storage::sizes(&out);
        let width = shape.last().copied().unwrap_or(1);
        let result = write_rows(
            shares.len(),
            width,
            #[inline(always)]
            |row, slots| {
                let share = &shares[row * width..][..width];
                let gradient = &upstream[row * width..][..width];
                let mean = sum([gradient, share], |[g, share]| g * share);
                map(slots, [gradient, share], |[g, share]| (g - mean) * share)
            },
        );
        [Some(storage::tensor(result, shape))]
    }
}
