//! Winograd's minimal filter: four neighbouring results of three taps by six products, not twelve.
//!
//! The six values are those of polynomials at 0, ±1/√2, ±√2 and infinity. With these points the
//! coefficients stay near 1, and a convolution is as exact as the plain sum to within a factor
//! of 1.4 (integer points would lose twice as much).

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

/// Results of one application.
pub(super) const RESULTS: usize = 4;
/// Taps of the filter.
pub(super) const TAPS: usize = 3;
/// Products of one application, and the inputs it looks at.
pub(super) const PRODUCTS: usize = RESULTS + TAPS - 1;

/// The inputs' side of the products.
#[inline(always)]
pub(super) fn of_inputs([x0, x1, x2, x3, x4, x5]: [f32; PRODUCTS]) -> [f32; PRODUCTS] {
    let even = x2.mul_add(-2.0, x4);
    let odd = x3.mul_add(FRAC_1_SQRT_2, -SQRT_2 * x1);
    let further_even = x2.mul_add(-0.5, x4);
    let further_odd = x3.mul_add(SQRT_2, -FRAC_1_SQRT_2 * x1);
    [
        x2.mul_add(-2.5, x0 + x4),
        even + odd,
        even - odd,
        further_even + further_odd,
        further_even - further_odd,
        x3.mul_add(-2.5, x1 + x5),
    ]
}

/// The taps' side of the products.
#[inline(always)]
pub(super) fn of_taps([w0, w1, w2]: [f32; TAPS]) -> [f32; PRODUCTS] {
    let even = w2.mul_add(0.5, w0) * (-2.0 / 3.0);
    let odd = w1 * (FRAC_1_SQRT_2 * (-2.0 / 3.0));
    let further_even = w2.mul_add(2.0, w0) * (1.0 / 6.0);
    let further_odd = w1 * (SQRT_2 / 6.0);
    [w0, even + odd, even - odd, further_even + further_odd, further_even - further_odd, w2]
}

/// The results of the (summed) products.
#[inline(always)]
pub(super) fn results([m0, m1, m2, m3, m4, m5]: [f32; PRODUCTS]) -> [f32; RESULTS] {
    let (sum, difference) = (m1 + m2, m1 - m2);
    let (further_sum, further_difference) = (m3 + m4, m3 - m4);
    [
        m0 + sum + further_sum,
        difference.mul_add(FRAC_1_SQRT_2, SQRT_2 * further_difference),
        sum.mul_add(0.5, 2.0 * further_sum),
        difference.mul_add(0.5 * FRAC_1_SQRT_2, (2.0 * SQRT_2).mul_add(further_difference, m5)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tap_reaches_its_inputs() {
        for tap in 0..TAPS {
            for input in 0..PRODUCTS {
                let unit = |at: usize, index: usize| f32::from(u8::from(at == index));
                let x = of_inputs(std::array::from_fn(|index| unit(input, index)));
                let w = of_taps(std::array::from_fn(|index| unit(tap, index)));
                let products = std::array::from_fn(|index| x[index] * w[index]);
                for (result, value) in results(products).into_iter().enumerate() {
                    let expected = unit(result + tap, input);
                    assert!((value - expected).abs() < 1e-6, "tap {tap}, input {input}, {result}");
                }
            }
        }
    }
}
