//! Sums over all elements that are the same at every call and every thread count.
//!
//! Blocks of fixed size are added up in f32 lanes, and the blocks' sums one after the other in f64.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Shape, Tensor};
use rayon::prelude::*;

use crate::operation::{Operand, Operation, apply};
use crate::work::dispatch;
use crate::{lanes, oracle, storage};

/// Few enough elements that their sum in f32 lanes keeps all but the last digits.
const BLOCK: usize = 4096;

/// The elements one thread takes at a time.
const TASK: usize = 16 * BLOCK;

/// The sum of all elements of `x`, as `[1]`.
pub fn sum<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    match Operand::new(&x) {
        Some(x) => apply(&Sum, [x]),
        None => oracle::sum(x),
    }
}

/// The sum of the squares of all elements of `x`, for gradient norms. No gradient flows through it.
pub fn sum_squares<const D: usize>(x: Tensor<D>) -> f64 {
    let Ok(plain) = x.clone().without_autodiff().try_into_primitive::<Flex>() else {
        return oracle::sum_squares(x);
    };
    let x = storage::contiguous(plain);
    // In f64 already, because the square of a large f32 overflows.
    total(
        storage::values(&x),
        #[inline(always)]
        |block| {
            let mut lanes = [0.0_f64; 16];
            let chunks = block.chunks(lanes.len());
            for chunk in chunks {
                for (lane, value) in lanes.iter_mut().zip(chunk) {
                    let value = f64::from(*value);
                    *lane = value.mul_add(value, *lane);
                }
            }
            lanes.iter().sum()
        },
    )
}

/// `of_block` of every block, added up in order.
fn total(values: &[f32], of_block: impl Fn(&[f32]) -> f64 + Sync) -> f64 {
    let of_task = |task: &[f32]| -> Vec<f64> {
        dispatch(
            task,
            #[inline(always)]
            |task| {
                let blocks = task.chunks(BLOCK);
                let mut sums = Vec::with_capacity(blocks.len());
                for block in blocks {
                    sums.push(of_block(block));
                }
                sums
            },
        )
    };
    let blocks: Vec<Vec<f64>> = if values.len() <= TASK {
        values.chunks(TASK).map(of_task).collect()
    } else {
        values.par_chunks(TASK).map(of_task).collect()
    };
    blocks.iter().flatten().sum()
}

#[derive(Clone, Debug)]
struct Sum;

impl Operation<1> for Sum {
    type Saved = Shape;

    fn forward(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, Shape) {
        let x = storage::contiguous(x);
        let total = total(
            storage::values(&x),
            #[inline(always)]
            |block| f64::from(lanes::sum([block], |[value]| value)),
        );
        (storage::tensor(vec![total as f32], [1]), x.layout().shape().clone())
    }

    fn backward(
        &self,
        shape: Shape,
        gradient: FlexTensor,
        _wanted: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let gradient = storage::contiguous(gradient);
        let value = storage::values(&gradient)[0];
        [Some(storage::tensor(vec![value; shape.num_elements()], shape))]
    }
}
