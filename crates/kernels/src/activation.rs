//! Element-wise activations.

use std::f32::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use crate::lanes::copy;
use crate::math::{erf, exp, sigmoid};
use crate::operation::{Operand, Operation, apply};
use crate::rows::write_elements;
use crate::storage;

/// What follows a linear layer, a convolution or a norm, fused into it when no gradient is asked
/// for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    Identity,
    /// `x * Phi(x)` with the exact error function.
    GeluErf,
    /// `x * Phi(x)` with the tanh approximation.
    GeluTanh,
    /// `x * sigmoid(x)`.
    Silu,
    /// `max(x, 0)`.
    Relu,
    /// `x * sigmoid(1.702 x)`, as the first CLIP has it.
    QuickGelu,
}

/// `x * Phi(x)`, where `Phi` is the normal distribution function by the exact error function.
pub fn gelu_erf<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Activation::GeluErf.apply(x)
}

/// `x * Phi(x)`, where `Phi` is approximated by tanh.
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Activation::GeluTanh.apply(x)
}

/// `x * sigmoid(x)`.
pub fn silu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Activation::Silu.apply(x)
}

impl Activation {
    /// The activation of every element, in f32 unless it is the identity.
    pub fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match Operand::new(&x) {
            Some(_) if self == Activation::Identity => x,
            Some(x) => apply(&Activate(self), [x]),
            None => self.oracle(x),
        }
    }

    /// The activation of one element.
    #[inline(always)]
    pub(crate) fn value(self, x: f32) -> f32 {
        match self {
            Activation::Identity => x,
            Activation::GeluErf => x * normal_distribution(x),
            Activation::GeluTanh => x / (1.0 + exp(-tanh_argument(x))),
            Activation::Silu => x / (1.0 + exp(-x)),
            Activation::Relu => relu(x),
            Activation::QuickGelu => x / (1.0 + exp(-QUICK * x)),
        }
    }

    /// Its derivative at `x`.
    #[inline(always)]
    fn slope(self, x: f32) -> f32 {
        match self {
            Activation::Identity => 1.0,
            Activation::GeluErf => {
                let density = (0.5 * FRAC_1_SQRT_2 * FRAC_2_SQRT_PI) * exp(-0.5 * x * x);
                x.mul_add(density, normal_distribution(x))
            }
            Activation::GeluTanh => {
                let gate = sigmoid(tanh_argument(x));
                let inner = (2.0 * TANH_SCALE) * (3.0 * TANH_CUBE * x).mul_add(x, 1.0);
                (x * gate * (1.0 - gate)).mul_add(inner, gate)
            }
            Activation::Silu => {
                let gate = sigmoid(x);
                gate * x.mul_add(1.0 - gate, 1.0)
            }
            Activation::Relu => f32::from(x > 0.0),
            Activation::QuickGelu => {
                let gate = sigmoid(QUICK * x);
                gate * (QUICK * x).mul_add(1.0 - gate, 1.0)
            }
        }
    }

    /// Applies it in place; to be called where the machine's instructions are already chosen.
    #[inline(always)]
    pub(crate) fn apply_slice(self, values: &mut [f32]) {
        match self {
            Activation::Identity => {}
            Activation::GeluErf => activate(Activation::GeluErf, values),
            Activation::GeluTanh => activate(Activation::GeluTanh, values),
            Activation::Silu => activate(Activation::Silu, values),
            Activation::Relu => activate(Activation::Relu, values),
            Activation::QuickGelu => activate(Activation::QuickGelu, values),
        }
    }

    /// Multiplies gradients by the derivative at `x`, called as [`Activation::apply_slice`] is.
    #[inline(always)]
    fn multiply_slope(self, gradients: &mut [f32], x: &[f32]) {
        match self {
            Activation::Identity => {}
            Activation::GeluErf => multiply(Activation::GeluErf, gradients, x),
            Activation::GeluTanh => multiply(Activation::GeluTanh, gradients, x),
            Activation::Silu => multiply(Activation::Silu, gradients, x),
            Activation::Relu => multiply(Activation::Relu, gradients, x),
            Activation::QuickGelu => multiply(Activation::QuickGelu, gradients, x),
        }
    }
}

/// A loop for one kind, which the callers give as a constant so that no branch is left in it.
#[inline(always)]
fn activate(kind: Activation, values: &mut [f32]) {
    for value in values {
        *value = kind.value(*value);
    }
}

/// The like for the gradient.
#[inline(always)]
fn multiply(kind: Activation, gradients: &mut [f32], x: &[f32]) {
    for (gradient, x) in gradients.iter_mut().zip(x) {
        *gradient *= kind.slope(*x);
    }
}

const TANH_SCALE: f32 = 0.5 * FRAC_2_SQRT_PI / FRAC_1_SQRT_2;
const TANH_CUBE: f32 = 0.044_715;
const QUICK: f32 = 1.702;

/// Twice the argument of the approximation's tanh, because `(1 + tanh u) / 2 = sigmoid(2 u)`.
#[inline(always)]
fn tanh_argument(x: f32) -> f32 {
    (2.0 * TANH_SCALE) * (TANH_CUBE * x * x).mul_add(x, x)
}

#[inline(always)]
fn normal_distribution(x: f32) -> f32 {
    0.5_f32.mul_add(erf(x * FRAC_1_SQRT_2), 0.5)
}

/// NaN is not below 0 and so stays NaN.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[derive(Clone, Debug)]
struct Activate(Activation);

impl Operation<1> for Activate {
    type Saved = FlexTensor;

    fn forward(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, FlexTensor) {
        let x = storage::contiguous(x);
        let values = storage::values(&x);
        let out = write_elements(
            values.len(),
            #[inline(always)]
            |range, slots| {
                let out = copy(slots, &values[range]);
                self.0.apply_slice(out);
                out
            },
        );
        (storage::tensor(out, storage::sizes(&x)), x)
    }

    fn backward(
        &self,
        x: FlexTensor,
        gradient: FlexTensor,
        _wanted: [bool; 1],
    ) -> [Option<FlexTensor>; 1] {
        let gradient = storage::contiguous(gradient);
        let (values, upstream) = (storage::values(&x), storage::values(&gradient));
        let out = write_elements(
            values.len(),
            #[inline(always)]
            |range, slots| {
                let out = copy(slots, &upstream[range.clone()]);
                self.0.multiply_slope(out, &values[range]);
                out
            },
        );
        [Some(storage::tensor(out, storage::sizes(&x)))]
    }
}

#[cfg(test)]
mod tests {
    use super::Activation;
    use crate::math::tests::reference_erf;

    /// The activation of one element in f64.
    fn reference(kind: Activation, x: f64) -> f64 {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        match kind {
            Activation::Identity => x,
            Activation::GeluErf => x * 0.5 * (1.0 + reference_erf(x * 0.5_f64.sqrt())),
            Activation::GeluTanh => {
                let scale = (2.0 / std::f64::consts::PI).sqrt();
                x * sigmoid(2.0 * scale * (x + 0.044_715 * x * x * x))
            }
            Activation::Silu => x * sigmoid(x),
            Activation::Relu => x.max(0.0),
            Activation::QuickGelu => x * sigmoid(1.702 * x),
        }
    }

    #[test]
    fn values_and_slopes_are_those_of_f64() {
        use Activation::{GeluErf, GeluTanh, Identity, QuickGelu, Relu, Silu};
        for kind in [Identity, GeluErf, GeluTanh, Silu, Relu, QuickGelu] {
            for step in -60_001..60_000 {
                // Never 0, where the derivative of relu does not exist.
                let x = (step as f32 + 0.5) / 4000.0;
                let (wide, value) = (f64::from(x), f64::from(kind.value(x)));
                let exact = reference(kind, wide);
                assert!((value - exact).abs() < 4e-7 * (1.0 + wide.abs()), "{kind:?}({x})");
                let near = 1e-5;
                let rise = reference(kind, wide + near) - reference(kind, wide - near);
                let slope = f64::from(kind.slope(x));
                assert!((slope - rise / (2.0 * near)).abs() < 2e-6, "slope of {kind:?} at {x}");
            }
        }
    }
}
