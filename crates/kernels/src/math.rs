//! Elementary functions without branches, so that loops over them vectorise.
//!
//! A scalar tail runs the very same operations as the vector body, which is what makes an element's
//! result independent of its place in a row. NaN stays NaN in all of them.

use std::f32::consts::{FRAC_2_SQRT_PI, LOG2_E};

/// `e^x` to about one unit in the last place; 0 below the smallest normal number.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // The logarithms of the largest finite and the smallest normal number, rounded inwards.
    const LARGEST: f32 = 88.722_83;
    const SMALLEST: f32 = -87.336_54;
    // ln 2 in two parts; the first has so few digits that its multiples are exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;

    let shifted = x.mul_add(LOG2_E, ROUND);
    let whole = shifted - ROUND;
    let rest = (-whole).mul_add(LN2_HIGH, x);
    let rest = (-whole).mul_add(LN2_LOW, rest);
    let series = 1.987_569_1e-4_f32
        .mul_add(rest, 1.398_199_9e-3)
        .mul_add(rest, 8.333_452e-3)
        .mul_add(rest, 4.166_579_6e-2)
        .mul_add(rest, 1.666_666_5e-1)
        .mul_add(rest, 0.5)
        .mul_add(rest * rest, rest)
        + 1.0;
    // Added to the exponent field rather than multiplied: 2^128 itself is not a finite number,
    // though 2^128 times a series below 1 may be.
    let scaled = f32::from_bits(series.to_bits().wrapping_add(shifted.to_bits() << 23));
    let scaled = if x > LARGEST { f32::INFINITY } else { scaled };
    let scaled = if x < SMALLEST { 0.0 } else { scaled };
    if x.is_nan() { x } else { scaled }
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// The error function, to about three units in the last place everywhere.
///
/// An odd rational function `x P(x^2) / Q(x^2)`, fitted to the least relative error on
/// [-3.92, 3.92]; beyond that the nearest f32 is 1.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    const LAST: f32 = 3.92;
    let square = x * x;
    let numerator = 2.169_64e-6_f32
        .mul_add(square, 2.798_813_5e-4)
        .mul_add(square, 3.378_556_3e-3)
        .mul_add(square, 5.155_594_3e-2)
        .mul_add(square, 1.808_806e-1)
        .mul_add(square, FRAC_2_SQRT_PI);
    let denominator = 3.907_405e-5_f32
        .mul_add(square, 1.075_836_2e-3)
        .mul_add(square, 1.418_719_1e-2)
        .mul_add(square, 1.102_331_95e-1)
        .mul_add(square, 4.936_353e-1)
        .mul_add(square, 1.0);
    let ratio = x * numerator / denominator;
    // Within the bounds, rounding may step over 1 by a unit in the last place.
    let ratio = if x > LAST || ratio > 1.0 { 1.0 } else { ratio };
    if x < -LAST || ratio < -1.0 { -1.0 } else { ratio }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{erf, exp, sigmoid};

    /// Every 499th f32, both signs, from zero to infinity.
    fn every_few() -> impl Iterator<Item = f32> {
        (0..=f32::INFINITY.to_bits()).step_by(499).flat_map(|bits| {
            let x = f32::from_bits(bits);
            [x, -x]
        })
    }

    /// The distance of `value` from `exact` in units of the last place of an f32.
    fn units(value: f32, exact: f64) -> f64 {
        let spacing = f64::from((exact as f32).next_up()) - f64::from((exact as f32).next_down());
        (f64::from(value) - exact).abs() / (spacing / 2.0)
    }

    #[test]
    fn exp_is_within_two_units_wherever_the_result_is_normal() {
        let mut worst = 0.0_f64;
        let close_to_the_ends = (0..2000).flat_map(|step| {
            let top = f32::from_bits(88.722_85_f32.to_bits() - step);
            let bottom = f32::from_bits((-87.336_56_f32).to_bits() - step);
            [top, bottom]
        });
        for x in every_few().chain(close_to_the_ends) {
            let (value, exact) = (exp(x), f64::from(x).exp());
            if exact < f64::from(f32::MIN_POSITIVE) {
                assert!(value <= 2.0 * f32::MIN_POSITIVE, "exp({x:e}) = {value:e}");
            } else if exact > f64::from(f32::MAX) {
                assert_eq!(value, f32::INFINITY, "exp({x:e})");
            } else {
                let flushed = value == 0.0 && exact < 1.00002 * f64::from(f32::MIN_POSITIVE);
                worst = worst.max(if flushed { 0.0 } else { units(value, exact) });
            }
        }
        assert!(worst <= 2.0, "{worst} units");
    }

    #[test]
    fn exp_at_the_edges_of_the_numbers() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(-1e30), 0.0);
        assert_eq!(exp(1e30), f32::INFINITY);
        for bits in [0x7fc0_0000_u32, 0x7f80_0001, 0xffff_ffff, 0x7fff_fe55] {
            assert!(exp(f32::from_bits(bits)).is_nan(), "{bits:x}");
        }
    }

    #[test]
    fn sigmoid_is_within_three_units() {
        for x in every_few().filter(|x| x.abs() < 80.0) {
            let off = units(sigmoid(x), 1.0 / (1.0 + (-f64::from(x)).exp()));
            assert!(off <= 3.0, "sigmoid({x:e}): {off} units");
        }
        assert!(sigmoid(f32::NAN).is_nan());
    }

    #[test]
    fn erf_is_close_everywhere() {
        for x in every_few() {
            let (value, exact) = (f64::from(erf(x)), reference_erf(f64::from(x)));
            let bound = 4e-7 * exact.abs() + f64::from(f32::MIN_POSITIVE);
            assert!((value - exact).abs() <= bound, "erf({x:e}) = {value:e}, exactly {exact:e}");
        }
        assert!(erf(f32::NAN).is_nan());
        assert_eq!(erf(f32::INFINITY), 1.0);
    }

    /// The error function in f64: its Taylor series near 0, its continued fraction elsewhere.
    pub(crate) fn reference_erf(x: f64) -> f64 {
        if x.abs() > 6.0 {
            return x.signum();
        }
        if x.abs() > 3.0 {
            let tail = (1..=60).rev().fold(x.abs(), |rest, k| x.abs() + f64::from(k) / 2.0 / rest);
            return x.signum() * (1.0 - (-x * x).exp() / tail / std::f64::consts::PI.sqrt());
        }
        let (mut term, mut sum) = (x, x);
        for k in 1..80 {
            term *= -x * x / f64::from(k);
            sum += term / f64::from(2 * k + 1);
        }
        sum * std::f64::consts::FRAC_2_SQRT_PI
    }
}
