//! Updates in place: the formulas, shared tensors, views.

use burn::tensor::{Device, Tensor, TensorData};
use kernels::{AdamStep, Moments, adamw, blend};

use crate::sets::same_on_every_set;

fn wave(length: usize, pace: f32) -> Tensor<1> {
    let values: Vec<f32> = (0..length).map(|index| (index as f32 * pace).sin()).collect();
    Tensor::from_data(TensorData::new(values, [length]), &Device::flex())
}

fn values(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.clone().into_data().iter::<f32>().collect()
}

/// Longer than one task, and not a multiple of one.
const LENGTH: usize = 40_001;

#[test]
fn adamw_follows_its_formula_and_leaves_other_holders_alone() {
    let (parameter, gradient) = (wave(LENGTH, 0.1), wave(LENGTH, 0.7));
    let moments = Moments { first: wave(LENGTH, 0.3), second: wave(LENGTH, 0.2).powf_scalar(2.0) };
    let step = AdamStep {
        rate: 0.01,
        betas: [0.9, 0.99],
        epsilon: 1e-6,
        weight_decay: 0.1,
        scale: 0.5,
        count: 3,
    };
    let held = [&parameter, &moments.first, &moments.second]
        .map(|tensor| (tensor.clone(), values(tensor)));
    let (updated, after) = adamw(parameter.clone(), moments.clone(), &gradient, &step);
    same_on_every_set(|_| {
        let (updated, after) = adamw(parameter.clone(), moments.clone(), &gradient, &step);
        [updated, after.first, after.second].map(|tensor| values(&tensor))
    });
    for (tensor, before) in held {
        assert_eq!(values(&tensor), before);
    }
    let (old, first, second) = (wave(LENGTH, 0.1), values(&moments.first), values(&moments.second));
    let (old, gradient) = (values(&old), values(&gradient));
    let (got, firsts, seconds) = (values(&updated), values(&after.first), values(&after.second));
    for index in 0..LENGTH {
        let gradient = f64::from(gradient[index]) * 0.5;
        let mean = 0.9 * f64::from(first[index]) + 0.1 * gradient;
        let square = 0.99 * f64::from(second[index]) + 0.01 * gradient * gradient;
        let divisor = (square / (1.0 - 0.99_f64.powi(3))).sqrt() + 1e-6;
        let want =
            f64::from(old[index]) * (1.0 - 0.001) - 0.01 * mean / (1.0 - 0.9_f64.powi(3)) / divisor;
        let near = |got: f32, want: f64| (f64::from(got) - want).abs() < 1e-6 * want.abs().max(0.1);
        assert!(near(firsts[index], mean) && near(seconds[index], square), "state {index}");
        assert!(near(got[index], want), "{index}: {} instead of {want}", got[index]);
    }
}

#[test]
fn blend_works_on_views_and_on_tensors_that_nobody_else_holds() {
    let (whole, source) = (wave(3 * LENGTH, 0.1), wave(LENGTH, 0.7));
    let view = whole.clone().narrow(0, LENGTH, LENGTH);
    let (old, add) = (values(&view), values(&source));
    let want: Vec<f32> =
        old.iter().zip(&add).map(|(old, add)| 0.75_f32.mul_add(*old, -2.0 * add)).collect();
    let before = values(&whole);
    assert_eq!(values(&blend(view, 0.75, &source, -2.0)), want);
    assert_eq!(values(&whole), before);
    let own = Tensor::from_data(TensorData::new(old, [LENGTH]), &Device::flex());
    assert_eq!(values(&blend(own, 0.75, &source, -2.0)), want);
}
