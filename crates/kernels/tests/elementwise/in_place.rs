//! What is written over an input that nobody else holds has the bits of what is written beside it,
//! and an input that somebody holds stays as it is.

use burn::tensor::{Device, Tensor};

use crate::check::{levels, random, values};

fn bits<const D: usize>(x: Tensor<D>) -> Vec<u32> {
    values(x).into_iter().map(f32::to_bits).collect()
}

/// Checks `function` of a held input against that of one given away; enough rows for several tasks.
fn check<const D: usize>(shape: [usize; D], function: impl Fn(Tensor<D>) -> Tensor<D>) {
    let make = || random::<D>(5, shape, &Device::flex());
    let held = make();
    let beside = function(held.clone());
    assert!(bits(held) == bits(make()), "a held input stays");
    assert!(bits(function(make())) == bits(beside), "in place");
}

#[test]
fn rope() {
    for samples in [1, 2] {
        let angle: Tensor<3> = random(2, [samples, 211, 9], &Device::flex());
        let (cosine, sine) = (angle.clone().cos(), angle.sin());
        check([2, 211, 7, 18], |x| kernels::rope(x, cosine.clone(), sine.clone()));
    }
}

#[test]
fn gated_residual() {
    let gate: Tensor<3> = random(3, [2, 3, 150], &Device::flex());
    let residual: Tensor<3> = random(4, [2, 230, 150], &Device::flex());
    let index = levels(9, [2, 230], 3);
    check([2, 230, 150], |branch| {
        kernels::gated_residual(residual.clone(), branch, gate.clone(), Some(index.clone()))
    });
    let branch = residual;
    check([2, 230, 150], |residual| {
        kernels::gated_residual(residual, branch.clone(), gate.clone(), Some(index.clone()))
    });
}
