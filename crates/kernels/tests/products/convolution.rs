//! Convolutions equal their oracle, forward and gradient.

use burn::tensor::{DType, Tensor};
use kernels::{Activation, Convolution, conv2d, oracle};
use proptest::prelude::*;

use crate::check::check;
use crate::rounded::rounded;

const TOLERANCE: f32 = 2e-5;

#[derive(Clone, Copy, Debug)]
struct Case {
    input: [usize; 4],
    outer: usize,
    kernel: [usize; 2],
    convolution: Convolution,
    activation: Activation,
    dtype: DType,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let channels = prop::sample::select(vec![1, 3, 4, 15, 16, 17, 40, 129, 257]);
    let outer = prop::sample::select(vec![1, 3, 8, 16, 17, 65]);
    let input = (1_usize..4, 1_usize..14, 1_usize..14, channels);
    let window = ((1_usize..5, 1_usize..5), 1_usize..4, [0_usize..4, 0..4, 0..4, 0..4]);
    let activation = prop::sample::select(vec![Activation::Identity, Activation::Silu]);
    let dtype = prop::sample::select(vec![DType::F32, DType::BF16, DType::F16]);
    (input, outer, window, 1_usize..3, (activation, dtype), any::<u64>()).prop_map(
        |((batch, height, width, channels), outer, window, upsample, (activation, dtype), seed)| {
            let ((tall, wide), stride, [top, left, bottom, right]) = window;
            // A kernel larger than its padded input has no output: pad as far as needed.
            let bottom = bottom + tall.saturating_sub(height * upsample + top + bottom);
            let right = right + wide.saturating_sub(width * upsample + left + right);
            let convolution = Convolution { stride, padding: [top, left, bottom, right], upsample };
            let (input, kernel) = ([batch, height, width, channels], [tall, wide]);
            Case { input, outer, kernel, convolution, activation, dtype, seed }
        },
    )
}

impl Case {
    /// Leaves to input, weight and bias.
    fn inputs(&self, leaves: &[Tensor<1>]) -> (Tensor<4>, Tensor<4>, Option<Tensor<1>>) {
        let [tall, wide] = self.kernel;
        let shape = [self.outer, self.input[3], tall, wide];
        let scale = 1.0 / ((self.input[3] * tall * wide) as f32).sqrt();
        let weight = (leaves[1].clone() * scale).reshape(shape);
        (leaves[0].clone().reshape(self.input), weight, leaves.get(2).cloned())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn equals_its_oracle(case in case(), biased: bool) {
        let depth = case.input[3] * case.kernel[0] * case.kernel[1];
        let lengths = [case.input.iter().product(), case.outer * depth, case.outer];
        check(
            case.seed,
            if biased { &lengths } else { &lengths[..2] },
            TOLERANCE,
            |leaves| {
                let (x, weight, bias) = case.inputs(leaves);
                conv2d(x, weight.cast(case.dtype), bias, &case.convolution, case.activation)
            },
            |leaves| {
                let (x, weight, bias) = case.inputs(leaves);
                let weight = rounded(weight, case.dtype);
                oracle::conv2d(x, weight, bias, &case.convolution, case.activation)
            },
        );
    }
}
