//! One row of a norm, forward and backward.
//!
//! With `n` the normalised row: `a = n * weight + bias` and `out = a * (1 + scale) + shift`. The
//! row stays in the first-level cache, so every step may be a loop of its own over it.

use crate::lanes::{copy, map, sum, update};
use crate::norm::Kind;
use crate::rows::Slots;

/// `n = (x - mean) * inverse`.
#[derive(Clone, Copy)]
pub(super) struct Statistics {
    mean: f32,
    inverse: f32,
}

impl Statistics {
    /// Two passes over the row, because the difference of two squares would lose the variance of a
    /// row far from 0.
    #[inline(always)]
    pub(super) fn new(kind: Kind, x: &[f32], epsilon: f32) -> Statistics {
        let count = x.len() as f32;
        let mean = match kind {
            Kind::Layer => sum([x], |[x]| x) / count,
            Kind::Rms => 0.0,
        };
        let variance = sum([x], |[x]| (x - mean) * (x - mean)) / count;
        Statistics { mean, inverse: 1.0 / (variance + epsilon).sqrt() }
    }

    #[inline(always)]
    fn normal(self, x: f32) -> f32 {
        (x - self.mean) * self.inverse
    }

    /// Turns the gradient of `n` into that of `x`.
    #[inline(always)]
    pub(super) fn backward(self, kind: Kind, x: &[f32], gradient: &mut [f32]) {
        let count = x.len() as f32;
        let mean = match kind {
            Kind::Layer => sum([gradient], |[g]| g) / count,
            Kind::Rms => 0.0,
        };
        let along = sum([gradient, x], |[g, x]| g * self.normal(x)) / count;
        update(gradient, [x], |g, [x]| self.normal(x).mul_add(-along, g - mean) * self.inverse);
    }
}

/// The parameters that apply to one row, each `[D]`.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'a> {
    pub(super) weight: Option<&'a [f32]>,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) scale: Option<&'a [f32]>,
    pub(super) shift: Option<&'a [f32]>,
}

impl Parameters<'_> {
    /// `out`.
    #[inline(always)]
    pub(super) fn forward<'s>(
        &self,
        x: &[f32],
        statistics: Statistics,
        slots: Slots<'s>,
    ) -> &'s mut [f32] {
        let out = self.affine(x, statistics, slots);
        if let (Some(scale), Some(shift)) = (self.scale, self.shift) {
            update(out, [scale, shift], |a, [scale, shift]| a.mul_add(1.0 + scale, shift));
        }
        out
    }

    /// `a`.
    #[inline(always)]
    fn affine<'s>(&self, x: &[f32], statistics: Statistics, slots: Slots<'s>) -> &'s mut [f32] {
        match (self.weight, self.bias) {
            (Some(weight), Some(bias)) => map(slots, [x, weight, bias], |[x, weight, bias]| {
                statistics.normal(x).mul_add(weight, bias)
            }),
            (Some(weight), None) => {
                map(slots, [x, weight], |[x, weight]| statistics.normal(x) * weight)
            }
            (None, _) => map(slots, [x], |[x]| statistics.normal(x)),
        }
    }

    /// The gradient of `n`, given that of `out`.
    #[inline(always)]
    pub(super) fn backward<'s>(&self, gradient: &[f32], slots: Slots<'s>) -> &'s mut [f32] {
        let out = copy(slots, gradient);
        if let Some(scale) = self.scale {
            update(out, [scale], |g, [scale]| g * (1.0 + scale));
        }
        if let Some(weight) = self.weight {
            update(out, [weight], |g, [weight]| g * weight);
        }
        out
    }

    /// Adds the row's gradients of weight, bias, scale and shift to the four parts of `sums`; a
    /// part whose parameter is absent stays as it is.
    #[inline(always)]
    pub(super) fn add_gradients(
        &self,
        x: &[f32],
        statistics: Statistics,
        gradient: &[f32],
        sums: &mut [f32],
    ) {
        let (affine, modulation) = sums.split_at_mut(2 * x.len());
        if self.weight.is_some() {
            let (weight, bias) = affine.split_at_mut(x.len());
            self.add_affine(x, statistics, gradient, [weight, bias]);
        }
        if self.scale.is_some() {
            let (scale, shift) = modulation.split_at_mut(x.len());
            self.add_scale(x, statistics, gradient, scale);
            update(shift, [gradient], |sum, [g]| sum + g);
        }
    }

    #[inline(always)]
    fn add_affine(
        &self,
        x: &[f32],
        statistics: Statistics,
        gradient: &[f32],
        [weight, bias]: [&mut [f32]; 2],
    ) {
        match self.scale {
            Some(scale) => {
                update(weight, [gradient, scale, x], |sum, [g, scale, x]| {
                    (g * (1.0 + scale)).mul_add(statistics.normal(x), sum)
                });
                update(bias, [gradient, scale], |sum, [g, scale]| g.mul_add(1.0 + scale, sum));
            }
            None => {
                update(weight, [gradient, x], |sum, [g, x]| g.mul_add(statistics.normal(x), sum));
                update(bias, [gradient], |sum, [g]| sum + g);
            }
        }
    }

    #[inline(always)]
    fn add_scale(&self, x: &[f32], statistics: Statistics, gradient: &[f32], scale: &mut [f32]) {
        match (self.weight, self.bias) {
            (Some(weight), Some(bias)) => {
                update(scale, [gradient, x, weight, bias], |sum, [g, x, weight, bias]| {
                    g.mul_add(statistics.normal(x).mul_add(weight, bias), sum)
                });
            }
            (Some(weight), None) => {
                update(scale, [gradient, x, weight], |sum, [g, x, weight]| {
                    g.mul_add(statistics.normal(x) * weight, sum)
                });
            }
            (None, _) => {
                update(scale, [gradient, x], |sum, [g, x]| g.mul_add(statistics.normal(x), sum));
            }
        }
    }
}
