//! Group norm of channels-last images, fused with the activation that follows it.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

use crate::activation::Activation;
use crate::lanes::{map, update};
use crate::operation::{Operand, Operation, apply};
use crate::rows::{tasks, write_rows};
use crate::work::dispatch;
use crate::{oracle, storage};

/// Norm of `x` `[B, H, W, C]` over all pixels and the channels of each of `groups` groups, then
/// weight and bias `[C]`, then the activation; the result is `[B, H, W, C]`.
///
/// # Panics
/// Panics if `groups` does not divide `C` or the parameters are not of size `C`.
pub fn group_norm(
    x: Tensor<4>,
    groups: usize,
    affine: (Tensor<1>, Tensor<1>),
    epsilon: f32,
    activation: Activation,
) -> Tensor<4> {
    let [.., channels] = x.dims();
    assert_eq!(channels % groups, 0, "{groups} groups do not divide {channels} channels");
    for parameter in [&affine.0, &affine.1] {
        assert_eq!(
            parameter.dims(),
            [channels],
            "a norm of {channels} channels has as many weights"
        );
    }
    let operands = (Operand::new(&x), Operand::new(&affine.0), Operand::new(&affine.1));
    let (Some(values), Some(weight), Some(bias)) = operands else {
        return oracle::group_norm(x, groups, affine, epsilon, activation);
    };
    apply(&GroupNorm { groups, epsilon, activation }, [values, weight, bias])
}

/// The moments of every group of channels over the pixels of `x` `[B, H, W, C]`: count, mean and sum of squared
/// deviations, `[B, groups, 3]`. Gradients do not pass.
///
/// # Panics
/// Panics if `groups` does not divide `C`.
pub fn group_moments(x: &Tensor<4>, groups: usize) -> Tensor<3> {
    let [batch, height, width, channels] = x.dims();
    assert_eq!(channels % groups, 0, "{groups} groups do not divide {channels} channels");
    let values: Vec<f32> = x.to_data().iter::<f32>().collect();
    let norm = GroupNorm { groups, epsilon: 0.0, activation: Activation::Identity };
    let samples = values.chunks((height * width * channels).max(1));
    let moments = samples.flat_map(|sample| norm.group_moments(sample, channels));
    let numbers = moments.flat_map(|it| [it.count, it.mean, it.deviations]);
    let numbers: Vec<f32> = numbers.map(|number| number as f32).collect();
    Tensor::from_data(TensorData::new(numbers, [batch, groups, 3]), &x.device())
}

/// [`group_norm`] of a part of images, by the [`group_moments`] of all their parts. Gradients do not pass.
///
/// # Panics
/// As [`group_norm`].
pub fn group_norm_by(
    x: Tensor<4>,
    parts: &[Tensor<3>],
    affine: (Tensor<1>, Tensor<1>),
    epsilon: f32,
    activation: Activation,
) -> Tensor<4> {
    let parts: Vec<Vec<f32>> =
        parts.iter().map(|part| part.to_data().iter::<f32>().collect()).collect();
    let [batch, _, _, channels] = x.dims();
    let groups = parts[0].len() / 3 / batch;
    let moments = |at: usize| {
        let of = |part: &Vec<f32>| {
            let [count, mean, deviations] = [0, 1, 2].map(|it| f64::from(part[3 * at + it]));
            Moments { count, mean, deviations }
        };
        parts.iter().map(of).fold(Moments::NONE, |all, part| all.join(&part))
    };
    let weight: Vec<f32> = affine.0.to_data().iter::<f32>().collect();
    let norm = GroupNorm { groups, epsilon, activation };
    let (mut means, mut factors) = (Vec::new(), Vec::new());
    for sample in 0..batch {
        let own = (0..groups).map(|group| moments(sample * groups + group));
        let (mean, factor) = norm.rows(own, &weight);
        means.extend(mean);
        factors.extend(factor);
    }
    let device = x.device();
    let row =
        |values| Tensor::<4>::from_data(TensorData::new(values, [batch, 1, 1, channels]), &device);
    let bias = affine.1.reshape([1, 1, 1, channels]);
    activation.apply((x - row(means)) * row(factors) + bias)
}

#[derive(Clone, Debug)]
struct GroupNorm {
    groups: usize,
    epsilon: f32,
    activation: Activation,
}

impl Operation<3> for GroupNorm {
    type Saved = [FlexTensor; 3];

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, [FlexTensor; 3]) {
        let inputs = inputs.map(storage::contiguous);
        let [values, weight, bias] = inputs.each_ref().map(storage::values);
        let shape = storage::sizes(&inputs[0]);
        let (pixels, channels) = (shape[1] * shape[2], shape[3]);
        let samples: Vec<_> = values
            .chunks((pixels * channels).max(1))
            .map(|sample| self.statistics(sample, weight))
            .collect();
        let out = write_rows(
            values.len(),
            channels,
            #[inline(always)]
            |row, slots| {
                let (mean, factor) = &samples[row / pixels];
                let inputs = [&values[row * channels..][..channels], mean, factor, bias];
                let out =
                    map(slots, inputs, |[x, mean, factor, bias]| (x - mean).mul_add(factor, bias));
                self.activation.apply_slice(out);
                out
            },
        );
        (storage::tensor(out, shape), inputs)
    }

    /// By the graph of the oracle: training a VAE is not what this library is made for.
    fn backward(
        &self,
        [x, weight, bias]: [FlexTensor; 3],
        gradient: FlexTensor,
        wanted: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let (x, weight, bias) = (leaf::<4>(x), leaf::<1>(weight), leaf::<1>(bias));
        let affine = (weight.clone(), bias.clone());
        let out = oracle::group_norm(x.clone(), self.groups, affine, self.epsilon, self.activation);
        let upstream = Tensor::<4>::from_primitive::<Flex>(gradient).autodiff();
        let gradients = (out * upstream).sum().backward();
        [
            wanted[0].then(|| inner(x.grad(&gradients))),
            wanted[1].then(|| inner(weight.grad(&gradients))),
            wanted[2].then(|| inner(bias.grad(&gradients))),
        ]
    }
}

fn leaf<const D: usize>(tensor: FlexTensor) -> Tensor<D> {
    Tensor::from_primitive::<Flex>(tensor).autodiff().require_grad()
}

fn inner<const D: usize>(gradient: Option<Tensor<D>>) -> FlexTensor {
    let gradient = gradient.expect("the oracle uses all of its inputs");
    gradient.try_into_primitive::<Flex>().expect("gradients live where their tensors do")
}

/// The count, mean and sum of squared deviations of some elements.
#[derive(Clone, Copy)]
struct Moments {
    count: f64,
    mean: f64,
    deviations: f64,
}

impl Moments {
    const NONE: Moments = Moments { count: 0.0, mean: 0.0, deviations: 0.0 };

    /// Those of two sets of elements together.
    fn join(self, other: &Moments) -> Moments {
        let count = self.count + other.count;
        let apart = other.mean - self.mean;
        let share = other.count / count;
        Moments {
            count,
            mean: self.mean + apart * share,
            deviations: self.deviations + other.deviations + apart * apart * self.count * share,
        }
    }
}

impl GroupNorm {
    /// For every channel of one sample `[H * W, C]`: the mean of its group, and its weight over the
    /// standard deviation of its group.
    fn statistics(&self, sample: &[f32], weight: &[f32]) -> (Vec<f32>, Vec<f32>) {
        self.rows(self.group_moments(sample, weight.len()).into_iter(), weight)
    }

    /// The moments of every group of one sample `[H * W, C]`.
    fn group_moments(&self, sample: &[f32], channels: usize) -> Vec<Moments> {
        let blocks: Vec<Vec<Moments>> = tasks(sample.len() / channels, channels)
            .into_par_iter()
            .map(|rows| {
                let block = &sample[rows.start * channels..rows.end * channels];
                dispatch(
                    block,
                    #[inline(always)]
                    |block| self.moments(block, channels),
                )
            })
            .collect();
        (0..self.groups)
            .map(|group| blocks.iter().fold(Moments::NONE, |all, block| all.join(&block[group])))
            .collect()
    }

    /// For every channel: the mean of its group, and its weight over the deviation of its group.
    fn rows(&self, groups: impl Iterator<Item = Moments>, weight: &[f32]) -> (Vec<f32>, Vec<f32>) {
        let (channels, size) = (weight.len(), weight.len() / self.groups);
        let mut means = Vec::with_capacity(channels);
        let mut factors = Vec::with_capacity(channels);
        for (moments, weight) in groups.zip(weight.chunks(size)) {
            let variance = moments.deviations / moments.count;
            let inverse = 1.0 / (variance + f64::from(self.epsilon)).sqrt();
            means.extend(std::iter::repeat_n(moments.mean as f32, size));
            factors.extend(weight.iter().map(|weight| weight * inverse as f32));
        }
        (means, factors)
    }

    /// The moments of every group in some pixels, few enough to stay in the cache for the second
    /// look that the deviations need.
    #[inline(always)]
    fn moments(&self, block: &[f32], channels: usize) -> Vec<Moments> {
        let size = channels / self.groups;
        let count = (block.len() / self.groups) as f64;
        let mut sums = vec![0.0_f32; channels];
        for pixel in block.chunks_exact(channels) {
            update(&mut sums, [pixel], |sum, [x]| sum + x);
        }
        let of_group = |sums: &[f32]| sums.iter().copied().map(f64::from).sum::<f64>();
        let means: Vec<f32> =
            sums.chunks(size).map(|sums| (of_group(sums) / count) as f32).collect();
        let centres: Vec<f32> =
            means.iter().flat_map(|mean| std::iter::repeat_n(*mean, size)).collect();
        let mut squares = vec![0.0_f32; channels];
        for pixel in block.chunks_exact(channels) {
            update(&mut squares, [pixel, &centres], |sum, [x, centre]| {
                (x - centre).mul_add(x - centre, sum)
            });
        }
        let means = means.iter().map(|mean| f64::from(*mean));
        means
            .zip(squares.chunks(size))
            .map(|(mean, squares)| Moments { count, mean, deviations: of_group(squares) })
            .collect()
    }
}
