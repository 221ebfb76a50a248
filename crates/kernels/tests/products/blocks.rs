//! Linear layers over blocks: to the bit what the widened matrix gives, forward and back, in parts and under every set.

use burn::tensor::{Device, Tensor};
use bytes::Bytes;
use kernels::{
    Activation, BlockMatrix, BlockType, InstructionSet, Operands, linear, linear_blocks,
};
use proptest::prelude::*;

use crate::check::{numbers, random, values};
use crate::sets::on;

/// Any bytes, but scales that are small numbers.
fn matrix(kind: BlockType, seed: u64, [outer, inner]: [usize; 2]) -> BlockMatrix {
    let count = outer * inner / kind.length() * kind.bytes();
    let spread = numbers(seed, count).into_iter().map(|own| (own * 1000.0) as i32 as u8);
    let mut bytes: Vec<u8> = spread.collect();
    let shorts: &[usize] = match kind {
        BlockType::Q6K => &[208],
        BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[0],
        _ => &[0, 2],
    };
    for block in bytes.chunks_exact_mut(kind.bytes()) {
        for at in shorts {
            // From 2^-12 on.
            block[at + 1] = 0x0c | block[at + 1] & 0x83;
        }
    }
    BlockMatrix::new(Bytes::from(bytes), kind, [outer, inner]).expect("whole blocks")
}

fn bits<const D: usize>(x: Tensor<D>) -> Vec<u32> {
    values(x).into_iter().map(f32::to_bits).collect()
}

fn kinds() -> impl Strategy<Value = BlockType> {
    prop::sample::select(BlockType::ALL.to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn equals_the_widened_matrix(
        kind in kinds(),
        rows in prop::sample::select(vec![1, 7, 97, 600]),
        inner in prop::sample::select(vec![256, 512, 768]),
        outer in prop::sample::select(vec![1, 8, 15, 17, 65]),
        seed: u64,
    ) {
        let device = Device::flex();
        let weight = matrix(kind, seed, [outer, inner]);
        let wide = weight.widened(&device);
        prop_assert!(values(wide.clone()).iter().all(|x| x.is_finite()));
        let x = random::<2>(seed ^ 1, [rows, inner], &device);
        let bias = random::<1>(seed ^ 2, [outer], &device);
        for set in InstructionSet::with_own(Operands::F32) {
            let run = || {
                let (x, bias) = (x.clone(), Some(bias.clone()));
                let own = linear_blocks(x.clone(), &weight, bias.clone(), Activation::Silu);
                (bits(own), bits(linear(x, wide.clone(), bias, Activation::Silu)))
            };
            let (own, dense) = on(set, 2, run);
            prop_assert!(own == dense, "{:?} under {}", kind, set);
        }
    }

    /// A part of the matrix is the part of what it stands for, wherever it is cut.
    #[test]
    fn parts_are_parts(kind in kinds(), cut in 0..250_usize, seed: u64) {
        let device = Device::flex();
        let whole = matrix(kind, seed, [9, 512]);
        let (outputs, inputs) = (3..8, cut..cut + 201);
        let expected = whole.widened(&device).slice([outputs.clone(), inputs.clone()]);
        let part = whole.part(outputs, inputs);
        prop_assert_eq!(part.shape(), [5, 201]);
        prop_assert_eq!(bits(part.widened(&device)), bits(expected.clone()));
        let again = part.part(1..3, 7..200);
        let smaller = expected.clone().slice([1..3, 7..200]);
        prop_assert_eq!(bits(again.widened(&device)), bits(smaller));
        let x = random::<2>(seed, [5, 201], &device);
        let own = linear_blocks(x.clone(), &part, None, Activation::Identity);
        prop_assert_eq!(bits(own), bits(linear(x, expected, None, Activation::Identity)));
    }
}

/// The gradient of the input is that of the widened matrix, and so is that of the bias.
#[test]
fn gradients_are_those_of_the_widened_matrix() {
    let device = Device::flex();
    for kind in BlockType::ALL {
        let weight = matrix(kind, 5, [33, 512]);
        let gradients = |blocks: bool| {
            let leaf = |seed, shape: [usize; 2]| {
                Tensor::<2>::from_inner(random::<2>(seed, shape, &device)).require_grad()
            };
            let (x, bias) = (leaf(1, [40, 512]), leaf(2, [1, 33]));
            let flat = Some(bias.clone().reshape([33]));
            let out = match blocks {
                true => linear_blocks(x.clone(), &weight, flat, Activation::GeluTanh),
                false => linear(x.clone(), weight.widened(&device), flat, Activation::GeluTanh),
            };
            let found =
                (out * Tensor::from_inner(random::<2>(3, [40, 33], &device))).sum().backward();
            [bits(x.grad(&found).unwrap()), bits(bias.grad(&found).unwrap())]
        };
        let own = gradients(true);
        assert!(own == gradients(false), "{kind:?}");
        assert!(own.iter().all(|all| all.iter().any(|bits| f32::from_bits(*bits).abs() > 1e-4)));
    }
}

/// A matrix is refused whose rows are no whole blocks, or whose bytes are too few or too many.
#[test]
fn what_is_no_matrix_is_none() {
    for kind in BlockType::ALL {
        let new = |bytes: usize, shape| BlockMatrix::new(Bytes::from(vec![0; bytes]), kind, shape);
        let (length, bytes) = (kind.length(), kind.bytes());
        assert!(new(6 * bytes, [3, 2 * length]).is_some());
        assert!(new(6 * bytes, [2, 2 * length]).is_none(), "too many");
        assert!(new(5 * bytes, [3, 2 * length]).is_none(), "too few");
        assert!(new(6 * bytes, [12, length / 2]).is_none(), "half a block in a row");
        assert!(new(0, [usize::MAX, 2 * length]).is_none(), "more than can be counted");
    }
}
