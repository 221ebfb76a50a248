//! The arithmetic of a step: weights for tensors, applied in f32.
//!
//! A solver that remembers nothing is a table of [`Update`]s. Every operation is element-wise,
//! so a range of tokens is updated alone with the same bits.

use crate::process::VpPrediction;
use burn::tensor::Tensor;

/// What a network predicts, as the solvers see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Predicts {
    Vp(VpPrediction),
    /// The velocity of a straight flow; signal and noise add up to one.
    Flow,
}

/// The names that configs have for the predictions of a variance-preserving process.
pub(crate) const VP_PREDICTIONS: [(&str, VpPrediction); 3] = [
    ("epsilon", VpPrediction::Epsilon),
    ("v_prediction", VpPrediction::Velocity),
    ("sample", VpPrediction::Sample),
];

/// How much signal and noise a sample holds: `sample = alpha clean + sigma epsilon`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scales {
    pub(crate) alpha: f32,
    pub(crate) sigma: f32,
}

impl Scales {
    /// From the share of the signal's variance that is left.
    pub(crate) fn from_alpha_cumprod(alpha: f32) -> Scales {
        Scales { alpha: alpha.sqrt(), sigma: (1.0 - alpha).sqrt() }
    }

    /// From the noise for one part of signal, in a process that preserves the variance.
    pub(crate) fn from_noise_to_signal(ratio: f32) -> Scales {
        let alpha = 1.0 / (ratio * ratio + 1.0).sqrt();
        Scales { alpha, sigma: ratio * alpha }
    }

    /// From the share of noise in a flow.
    pub(crate) fn from_flow(sigma: f32) -> Scales {
        Scales { alpha: 1.0 - sigma, sigma }
    }
}

impl Predicts {
    /// How to get the clean sample from sample and prediction.
    pub(crate) fn clean(self, Scales { alpha, sigma }: Scales) -> Blend {
        match self {
            Predicts::Vp(VpPrediction::Epsilon) => {
                Blend { sample: 1.0, prediction: -sigma, divisor: alpha }
            }
            Predicts::Vp(VpPrediction::Velocity) => Blend::new(alpha, -sigma),
            Predicts::Vp(VpPrediction::Sample) => Blend::new(0.0, 1.0),
            Predicts::Flow => Blend::new(1.0, -sigma),
        }
    }

    /// How to get the noise from sample and prediction.
    pub(crate) fn epsilon(self, Scales { alpha, sigma }: Scales) -> Blend {
        match self {
            Predicts::Vp(VpPrediction::Epsilon) => Blend::new(0.0, 1.0),
            Predicts::Vp(VpPrediction::Velocity) => Blend::new(sigma, alpha),
            Predicts::Vp(VpPrediction::Sample) => {
                Blend { sample: 1.0, prediction: -alpha, divisor: sigma }
            }
            Predicts::Flow => Blend::new(1.0, alpha),
        }
    }
}

/// `(sample * x + prediction * p) / divisor`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Blend {
    sample: f32,
    prediction: f32,
    divisor: f32,
}

impl Blend {
    fn new(sample: f32, prediction: f32) -> Blend {
        Blend { sample, prediction, divisor: 1.0 }
    }

    pub(crate) fn apply(&self, sample: &Tensor<3>, prediction: &Tensor<3>) -> Tensor<3> {
        let mixed = weighted(&[(self.sample, sample), (self.prediction, prediction)]);
        if self.divisor == 1.0 { mixed } else { mixed / self.divisor }
    }

    /// A zero divisor would make every later value infinite.
    pub(crate) fn is_finite(&self) -> bool {
        self.sample.is_finite() && self.prediction.is_finite() && self.divisor.is_normal()
    }
}

/// One step of a solver without memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Update {
    /// How to get the clean sample, and how much of it goes into the next sample.
    pub(crate) clean: (Blend, f32),
    /// Where the clean sample is clipped, on both sides.
    pub(crate) clip: Option<f32>,
    /// How to get the noise, and how much of it goes into the next sample.
    pub(crate) epsilon: (Blend, f32),
    /// How much of the sample itself stays.
    pub(crate) sample: f32,
    /// How much of the raw prediction is added.
    pub(crate) prediction: f32,
    /// How much fresh noise is added.
    pub(crate) noise: f32,
}

impl Update {
    /// An update that does nothing, for a sample of these scales.
    pub(crate) fn stay(predicts: Predicts, scales: Scales) -> Update {
        Update {
            clean: (predicts.clean(scales), 0.0),
            clip: None,
            epsilon: (predicts.epsilon(scales), 0.0),
            sample: 1.0,
            prediction: 0.0,
            noise: 0.0,
        }
    }

    /// The next sample; all tensors are f32 and `[batch, tokens, channels]`.
    pub(crate) fn apply(
        &self,
        sample: Tensor<3>,
        prediction: Tensor<3>,
        noise: Option<Tensor<3>>,
    ) -> Tensor<3> {
        let mut terms = Vec::with_capacity(5);
        if self.clean.1 != 0.0 {
            let clean = self.clean.0.apply(&sample, &prediction);
            let clipped = |clean: Tensor<3>| match self.clip {
                Some(limit) => clean.clamp(-limit, limit),
                None => clean,
            };
            terms.push((self.clean.1, clipped(clean)));
        }
        if self.epsilon.1 != 0.0 {
            terms.push((self.epsilon.1, self.epsilon.0.apply(&sample, &prediction)));
        }
        terms.extend([(self.sample, sample), (self.prediction, prediction)]);
        terms.extend(noise.map(|noise| (self.noise, noise)));
        weighted(&terms.iter().map(|(weight, tensor)| (*weight, tensor)).collect::<Vec<_>>())
    }

    /// Whether every number that [`Update::apply`] uses is finite.
    pub(crate) fn is_finite(&self) -> bool {
        let blend = |(blend, weight): &(Blend, f32)| {
            *weight == 0.0 || (weight.is_finite() && blend.is_finite())
        };
        let weights = [self.sample, self.prediction, self.noise];
        blend(&self.clean) && blend(&self.epsilon) && weights.iter().all(|w| w.is_finite())
    }
}

/// The sum of weighted tensors, in order. Those of weight zero are left out.
pub(crate) fn weighted(terms: &[(f32, &Tensor<3>)]) -> Tensor<3> {
    let scaled = |(weight, tensor): &(f32, &Tensor<3>)| match *weight {
        1.0 => (*tensor).clone(),
        weight => (*tensor).clone() * weight,
    };
    let counted = terms.iter().filter(|(weight, _)| *weight != 0.0);
    let sum = counted.map(scaled).reduce(|sum, term| sum + term);
    sum.unwrap_or_else(|| terms[0].1.zeros_like())
}
