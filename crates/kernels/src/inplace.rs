//! Arithmetic on parameters where they lie: optimizers, averages, sums of gradients.
//!
//! Nothing here belongs to a graph. A tensor that nobody else holds is changed in place; one that is
//! shared, by a snapshot for instance, is copied first, so the other holder sees the old values.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor};
use rayon::prelude::*;

use crate::storage;
use crate::work::dispatch;

/// The elements one thread takes at a time.
const TASK: usize = 16 * 1024;

/// What AdamW keeps of one parameter, all flat and of one length.
#[derive(Clone, Debug)]
pub struct Moments {
    /// The running mean of the gradient.
    pub first: Tensor<1>,
    /// The running mean of its square.
    pub second: Tensor<1>,
}

/// The numbers of one step of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// The learning rate.
    pub rate: f64,
    /// How much of the old means stays.
    pub betas: [f64; 2],
    /// Added to the root of the second mean.
    pub epsilon: f64,
    /// How much of a parameter is taken away per learning rate.
    pub weight_decay: f64,
    /// What the gradient is multiplied by first.
    pub scale: f64,
    /// The number of this step, from 1.
    pub count: u64,
}

/// One step of AdamW (Loshchilov and Hutter 2019) on a flat parameter.
///
/// # Panics
/// Panics if the lengths differ.
pub fn adamw(
    parameter: Tensor<1>,
    moments: Moments,
    gradient: &Tensor<1>,
    step: &AdamStep,
) -> (Tensor<1>, Moments) {
    let Moments { first, second } = moments;
    let factors = Factors::new(step);
    let Some(gradient) = values_of(gradient) else {
        return factors.oracle(parameter, Moments { first, second }, gradient.clone());
    };
    let [mut parameter, mut first, mut second] = [parameter, first, second].map(owned);
    {
        let gradient = storage::values(&gradient);
        let [parameter, first, second] =
            [&mut parameter, &mut first, &mut second].map(|tensor| tensor.storage_mut::<f32>());
        let lengths = [parameter.len(), first.len(), second.len()];
        assert_eq!(lengths, [gradient.len(); 3], "state and gradient fit the parameter");
        parameter
            .par_chunks_mut(TASK)
            .zip(first.par_chunks_mut(TASK))
            .zip(second.par_chunks_mut(TASK))
            .zip(gradient.par_chunks(TASK))
            .for_each(|(((parameter, first), second), gradient)| {
                dispatch(
                    (parameter, first, second, gradient),
                    #[inline(always)]
                    |(parameter, first, second, gradient)| {
                        factors.apply(parameter, first, second, gradient);
                    },
                );
            });
    }
    let [parameter, first, second] = [parameter, first, second].map(Tensor::from_primitive::<Flex>);
    (parameter, Moments { first, second })
}

/// `keep * target + add * source`, element by element.
///
/// # Panics
/// Panics if the lengths differ.
pub fn blend(target: Tensor<1>, keep: f64, source: &Tensor<1>, add: f64) -> Tensor<1> {
    let Some(source) = values_of(source) else {
        return target * keep + source.clone() * add;
    };
    let mut target = owned(target);
    let (keep, add) = (keep as f32, add as f32);
    {
        let (source, target) = (storage::values(&source), target.storage_mut::<f32>());
        assert_eq!(target.len(), source.len(), "both tensors have one length");
        target.par_chunks_mut(TASK).zip(source.par_chunks(TASK)).for_each(|(target, source)| {
            dispatch(
                (target, source),
                #[inline(always)]
                |(target, source)| {
                    for (target, source) in target.iter_mut().zip(source) {
                        *target = keep.mul_add(*target, add * *source);
                    }
                },
            );
        });
    }
    Tensor::from_primitive::<Flex>(target)
}

/// The step in f32, as each element needs it.
#[derive(Clone, Copy)]
struct Factors {
    scale: f32,
    keep: f32,
    betas: [f32; 2],
    fresh: [f32; 2],
    step: f32,
    root: f32,
    epsilon: f32,
}

impl Factors {
    fn new(step: &AdamStep) -> Factors {
        let count = step.count as f64;
        let left = step.betas.map(|beta| 1.0 - beta.powf(count));
        Factors {
            scale: step.scale as f32,
            keep: (1.0 - step.rate * step.weight_decay) as f32,
            betas: step.betas.map(|beta| beta as f32),
            fresh: step.betas.map(|beta| (1.0 - beta) as f32),
            step: (step.rate / left[0]) as f32,
            root: left[1].sqrt() as f32,
            epsilon: step.epsilon as f32,
        }
    }

    #[inline(always)]
    fn apply(
        &self,
        parameter: &mut [f32],
        first: &mut [f32],
        second: &mut [f32],
        gradient: &[f32],
    ) {
        let length = gradient.len();
        let (parameter, first, second) =
            (&mut parameter[..length], &mut first[..length], &mut second[..length]);
        for index in 0..length {
            let gradient = gradient[index] * self.scale;
            let mean = self.fresh[0].mul_add(gradient - first[index], first[index]);
            let square = self.betas[1].mul_add(second[index], self.fresh[1] * gradient * gradient);
            let divisor = square.sqrt() / self.root + self.epsilon;
            first[index] = mean;
            second[index] = square;
            parameter[index] = self.keep.mul_add(parameter[index], -self.step * (mean / divisor));
        }
    }

    fn oracle(
        &self,
        parameter: Tensor<1>,
        moments: Moments,
        gradient: Tensor<1>,
    ) -> (Tensor<1>, Moments) {
        let gradient = gradient * self.scale;
        let first = moments.first * self.betas[0] + gradient.clone() * self.fresh[0];
        let second = moments.second * self.betas[1] + gradient.clone() * gradient * self.fresh[1];
        let divisor = second.clone().sqrt() / self.root + self.epsilon;
        let parameter = parameter * self.keep - first.clone() / divisor * self.step;
        (parameter, Moments { first, second })
    }
}

/// The contiguous f32 values, unless the tensor lives on another backend.
fn values_of(tensor: &Tensor<1>) -> Option<FlexTensor> {
    let plain = tensor.clone().without_autodiff().try_into_primitive::<Flex>().ok()?;
    Some(storage::contiguous(plain))
}

/// The tensor as f32 whose storage holds its elements and nothing else.
fn owned(tensor: Tensor<1>) -> FlexTensor {
    let tensor = tensor.without_autodiff();
    let plain = tensor.try_into_primitive::<Flex>().expect("state lies where its gradient lies");
    let length = plain.layout().shape().num_elements();
    let whole = plain.is_contiguous()
        && plain.layout().start_offset() == 0
        && plain.dtype() == DType::F32
        && plain.bytes().len() == length * size_of::<f32>();
    if whole {
        return plain;
    }
    let plain = storage::contiguous(plain);
    storage::tensor(storage::values(&plain).to_vec(), [length])
}
