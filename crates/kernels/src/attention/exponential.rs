//! `2^x` for scores that are at most a little above zero.

/// `2^x` to about one unit in the last place for `x < 127`; 0 below the smallest normal number.
///
/// NaN stays NaN. It has no branch, so that loops over it vectorise.
#[inline(always)]
pub(super) fn exp2(x: f32) -> f32 {
    // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum.
    const ROUND: f32 = 12_582_912.0;
    const SMALLEST: f32 = -126.0;
    // A comparison rather than `max`: it lets NaN through.
    let bounded = if x < SMALLEST { SMALLEST } else { x };
    let shifted = bounded + ROUND;
    let rest = bounded - (shifted - ROUND);
    // The series of 2^r: powers of ln 2 over factorials.
    let series = 1.540_353e-4_f32
        .mul_add(rest, 1.333_355_8e-3)
        .mul_add(rest, 9.618_129e-3)
        .mul_add(rest, 5.550_411e-2)
        .mul_add(rest, 2.402_265_1e-1)
        .mul_add(rest, 6.931_472e-1)
        .mul_add(rest, 1.0);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < SMALLEST { 0.0 } else { series * power }
}
