//! Classifier-free guidance: which predictions are needed, and how two become one.

use crate::{Error, Result};
use burn::tensor::{FloatDType, Tensor};

/// Which text a prediction is conditioned on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Branch {
    /// The prompt.
    Conditional,
    /// The negative prompt, or nothing.
    Unconditional,
}

/// How far a prediction is pushed away from the unconditional one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guidance {
    scale: f64,
}

impl Guidance {
    /// The conditional prediction alone.
    pub const NONE: Guidance = Guidance { scale: 1.0 };

    /// Any finite scale; 1 or less means the conditional prediction alone.
    pub fn new(scale: f64) -> Result<Guidance> {
        if scale.is_finite() { Ok(Guidance { scale }) } else { Err(Error::Guidance { scale }) }
    }

    /// The scale.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// The predictions that are needed: both, or the conditional one alone.
    pub fn branches(&self) -> &'static [Branch] {
        match self.scale > 1.0 {
            true => &[Branch::Conditional, Branch::Unconditional],
            false => &[Branch::Conditional],
        }
    }

    /// `unconditional + scale (conditional - unconditional)`, in f32; all are
    /// `[batch, tokens, channels]`.
    pub fn combine(&self, conditional: Tensor<3>, unconditional: Tensor<3>) -> Tensor<3> {
        let conditional = conditional.cast(FloatDType::F32);
        let unconditional = unconditional.cast(FloatDType::F32);
        unconditional.clone() + (conditional - unconditional) * self.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    #[test]
    fn a_scale_of_one_or_less_needs_no_second_pass() {
        for (scale, branches) in [(-2.0, 1), (0.0, 1), (1.0, 1), (1.001, 2), (7.5, 2)] {
            assert_eq!(Guidance::new(scale).unwrap().branches().len(), branches, "{scale}");
        }
        assert!(Guidance::new(f64::NAN).is_err() && Guidance::new(f64::INFINITY).is_err());
    }

    #[test]
    fn the_scale_extrapolates_from_the_unconditional_prediction() {
        let tensor = |values| Tensor::<3>::from_floats([[values]], &Device::flex());
        let (conditional, unconditional) = (tensor([3.0, -1.0]), tensor([1.0, 1.0]));
        let combine = |scale| {
            let guidance = Guidance::new(scale).unwrap();
            let combined = guidance.combine(conditional.clone(), unconditional.clone());
            combined.try_into_vec_as::<f32>().unwrap()
        };
        assert_eq!(combine(4.5), [10.0, -8.0]);
        assert_eq!(combine(1.0), [3.0, -1.0]);
    }
}
