//! Rotary embedding.

use burn::tensor::{Device, Tensor};
use kernels::oracle;
use proptest::prelude::*;

use crate::check::{check, close, random, values};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn equals_its_oracle(
        seed: u64,
        [batch, tokens, heads] in [1_usize..4, 1_usize..70, 1_usize..5],
        half in 1_usize..40,
        shared: bool,
    ) {
        let samples = if shared { 1 } else { batch };
        let x = |l: &[Tensor<1>]| l[0].clone().reshape([batch, tokens, heads, 2 * half]);
        let [cosine, sine] =
            [1, 2].map(|i| move |l: &[Tensor<1>]| l[i].clone().reshape([samples, tokens, half]));
        let angles = samples * tokens * half;
        check(seed, &[batch * tokens * heads * 2 * half, angles, angles], 2e-6,
            |l| kernels::rope(x(l), cosine(l), sine(l)),
            |l| oracle::rope(x(l), cosine(l), sine(l)));
    }
}

/// Turning forth and back is nothing, and lengths are kept.
#[test]
fn is_a_rotation() {
    let device = Device::flex();
    let x: Tensor<4> = random(1, [2, 5, 3, 16], &device);
    let angle: Tensor<3> = random(2, [1, 5, 8], &device);
    let (cosine, sine) = (angle.clone().cos(), angle.sin());
    let turned = kernels::rope(x.clone(), cosine.clone(), sine.clone());
    let squares = |x: Tensor<4>| values((x.clone() * x).sum_dim(3));
    close("lengths", &squares(turned.clone()), &squares(x.clone()), 1e-6);
    let back = kernels::rope(turned, cosine, -sine);
    close("forth and back", &values(back), &values(x), 1e-6);
}
