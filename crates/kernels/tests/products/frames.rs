//! Convolutions of frames equal their oracle and depend on neither company nor threads.

use burn::tensor::{DType, Device, Tensor};
use kernels::{
    CausalFrames, Convolution, InstructionSet, Operands, causal_conv3d, frames_conv2d, oracle,
};
use proptest::prelude::*;

use crate::check::{close, random, values};
use crate::rounded::rounded;
use crate::sets::{on, same_on_every_set};

const TOLERANCE: f32 = 2e-5;

#[derive(Clone, Copy, Debug)]
struct Case {
    /// Height, width and channels.
    size: [usize; 3],
    outer: usize,
    kernel: [usize; 3],
    /// Frames before and in the call.
    frames: [usize; 2],
    time_stride: usize,
    dtype: DType,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    let side = || prop::sample::select(vec![1_usize, 2, 3, 5, 6, 7, 8, 13, 17, 35]);
    let channels = prop::sample::select(vec![1, 3, 16, 17, 96, 97, 200]);
    let outer = prop::sample::select(vec![1, 3, 8, 16, 17, 97, 130]);
    let kernel = prop::sample::select(vec![[3, 3, 3], [3, 1, 1], [1, 1, 1], [1, 3, 3], [2, 1, 3]]);
    let dtype = prop::sample::select(vec![DType::F32, DType::BF16, DType::F16]);
    let frames = [0_usize..4, 1..4];
    (side(), side(), (channels, outer), kernel, frames, (1_usize..3, dtype), any::<u64>()).prop_map(
        |(height, width, (channels, outer), kernel, frames, (time_stride, dtype), seed)| Case {
            size: [height, width, channels],
            outer,
            kernel,
            frames,
            time_stride,
            dtype,
            seed,
        },
    )
}

fn clip(seed: u64, count: usize, size: [usize; 3]) -> Vec<Tensor<3>> {
    let frame = |index: usize| random(seed.wrapping_add(index as u64), size, &Device::flex());
    (0..count).map(frame).collect()
}

impl Case {
    fn weight(&self) -> Tensor<5> {
        let [depth, tall, wide] = self.kernel;
        let shape = [self.outer, self.size[2], depth, tall, wide];
        let scale = 1.0 / ((self.size[2] * depth * tall * wide) as f32).sqrt();
        random::<5>(self.seed ^ 1, shape, &Device::flex()) * scale
    }

    fn bias(&self) -> Tensor<1> {
        random(self.seed ^ 2, [self.outer], &Device::flex())
    }

    fn residual(&self) -> Vec<Tensor<3>> {
        let [height, width, _] = self.size;
        clip(self.seed ^ 3, self.frames[1] / self.time_stride, [height, width, self.outer])
    }
}

fn bits(frames: Vec<Tensor<3>>) -> Vec<u32> {
    frames.into_iter().flat_map(values).map(f32::to_bits).collect()
}

fn same(what: &str, own: &[Tensor<3>], expected: &[Tensor<3>]) {
    assert_eq!(own.len(), expected.len(), "{what}: frames");
    for (own, expected) in own.iter().zip(expected) {
        assert_eq!(own.dims(), expected.dims(), "{what}: shape");
        close(what, &values(own.clone()), &values(expected.clone()), TOLERANCE);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn causal_convolution_equals_its_oracle(case in case(), biased: bool, residual: bool) {
        let earlier = clip(case.seed ^ 4, case.frames[0], case.size);
        let now = clip(case.seed ^ 5, case.frames[1], case.size);
        let frames = CausalFrames { earlier: &earlier, now: &now };
        let bias = biased.then(|| case.bias());
        let added = case.residual();
        let added = residual.then_some(added.as_slice());
        let weight = case.weight().cast(case.dtype);
        let rounded = rounded(case.weight(), case.dtype);
        let expected = oracle::causal_conv3d(frames, rounded, bias.clone(), case.time_stride, added);
        same_on_every_set(|set| {
            let (weight, bias) = (weight.clone(), bias.clone());
            let own = causal_conv3d(frames, weight, bias, case.time_stride, added);
            same(&format!("causal convolution under {set}"), &own, &expected);
            bits(own)
        });
    }

    #[test]
    fn enlarging_and_halving_equal_their_oracles(case in case(), biased: bool) {
        let frames = clip(case.seed, case.frames[1], case.size);
        let bias = biased.then(|| case.bias());
        let shape = [case.outer, case.size[2], 3, 3];
        let scale = 1.0 / ((case.size[2] * 9) as f32).sqrt();
        let weight = random::<4>(case.seed ^ 1, shape, &Device::flex()) * scale;
        let enlarging = Convolution { stride: 1, padding: [1; 4], upsample: 2 };
        let halving = Convolution { stride: 2, padding: [0, 0, 2, 2], upsample: 1 };
        for convolution in [enlarging, halving, Convolution::padded(1)] {
            let stored = weight.clone().cast(case.dtype);
            let weight = rounded(weight.clone(), case.dtype);
            let expected = oracle::frames_conv2d(&frames, weight, bias.clone(), &convolution);
            same_on_every_set(|set| {
                let own = frames_conv2d(&frames, stored.clone(), bias.clone(), &convolution);
                same(&format!("convolution of frames under {set}"), &own, &expected);
                bits(own)
            });
        }
    }
}

/// However the frames are cut into calls, and on however many threads: the same bits.
#[test]
fn a_frame_feels_neither_its_company_nor_the_threads() {
    for (size, kernel) in
        [([9, 33, 100], [3, 3, 3]), ([4, 5, 20], [3, 3, 3]), ([13, 7, 70], [3, 1, 1])]
    {
        let case = Case {
            size,
            outer: 101,
            kernel,
            frames: [0, 6],
            time_stride: 1,
            dtype: DType::F32,
            seed: 7,
        };
        let frames = clip(1, 6, size);
        let whole = |cut: usize| {
            let mut out = Vec::new();
            for start in (0..6_usize).step_by(cut) {
                let earlier = &frames[start.saturating_sub(2)..start];
                let frames = CausalFrames { earlier, now: &frames[start..6.min(start + cut)] };
                out.extend(causal_conv3d(frames, case.weight(), Some(case.bias()), 1, None));
            }
            bits(out)
        };
        for set in InstructionSet::with_own(Operands::F32) {
            let expected = on(set, 1, || whole(6));
            for threads in [1, 2, 3] {
                for cut in [1, 4, 6] {
                    let own = on(set, threads, || whole(cut));
                    assert!(own == expected, "{set}, {size:?}: {cut} at a time");
                }
            }
        }
    }
}

#[test]
fn a_graph_goes_through_the_oracle() {
    let case = Case {
        size: [5, 8, 3],
        outer: 4,
        kernel: [3, 3, 3],
        frames: [1, 2],
        time_stride: 1,
        dtype: DType::F32,
        seed: 3,
    };
    let frames = clip(1, 3, case.size);
    let plain = CausalFrames { earlier: &frames[..1], now: &frames[1..] };
    let expected = causal_conv3d(plain, case.weight(), None, 1, None);
    let leaves: Vec<_> =
        frames.iter().map(|frame| frame.clone().autodiff().require_grad()).collect();
    let recorded = CausalFrames { earlier: &leaves[..1], now: &leaves[1..] };
    let out = causal_conv3d(recorded, case.weight().autodiff(), None, 1, None);
    let plain: Vec<_> = out.iter().map(|frame| frame.clone().inner()).collect();
    same("recorded", &plain, &expected);
    let gradients = out[0].clone().sum().backward();
    assert!(leaves[0].grad(&gradients).is_some());
}
