//! `2^x` for scores that are at most a little above zero.

use std::f32::consts::LN_2;

/// `2^x` to about two units in the last place for `x < 127`, exactly 1 at 0, and 0 below `-127`.
///
/// NaN stays NaN. It has no branch, so that loops over it vectorise.
#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    // The power of two that is made here from the bits of -127 is zero.
    const SMALLEST: f32 = -127.0;
    // A comparison rather than `max`: it lets NaN through.
    let bounded = if x < SMALLEST { SMALLEST } else { x };
    let shifted = bounded + ROUND;
    let rest = bounded - (shifted - ROUND);
    // Value and slope are those of 2^r at 0; the other coefficients make the largest relative error
    // for |rest| <= 1/2 as small as can be: 1e-7.
    let series = 1.330_060_5e-3_f32
        .mul_add(rest, 9.669_691e-3)
        .mul_add(rest, 5.550_558_5e-2)
        .mul_add(rest, 2.402_228_3e-1)
        .mul_add(rest, LN_2)
        .mul_add(rest, 1.0);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    series * power
}

#[cfg(test)]
mod tests {
    use super::exp2;

    #[test]
    fn exp2_is_close() {
        for step in -1_300_000..=20_000 {
            let x = step as f32 * 1e-4;
            let expected = f64::from(x).exp2();
            let error = (f64::from(exp2(x)) - expected).abs();
            // Below the smallest normal number the result may be flushed to zero.
            let least = f64::from(f32::MIN_POSITIVE);
            assert!(error <= 2e-7 * expected || (expected < least && error <= least), "2^{x}");
        }
    }

    #[test]
    fn exp2_keeps_special_values() {
        assert_eq!(exp2(0.0), 1.0);
        assert_eq!(exp2(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp2(-1e30), 0.0);
        assert!(exp2(f32::NAN).is_nan());
    }
}
