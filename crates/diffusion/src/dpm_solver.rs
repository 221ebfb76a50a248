//! DPM-Solver and DPM-Solver++ (Lu et al. 2022), multistep: a Taylor expansion in the log-SNR of
//! what the network has predicted at this step and at up to two steps before.

use crate::update::{Blend, Predicts, Scales, weighted};
use burn::tensor::Tensor;

/// What is expanded, and whether fresh noise is added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Algorithm {
    /// The clean sample (`dpmsolver++`).
    Clean,
    /// The noise (`dpmsolver`).
    Epsilon,
    /// The clean sample, stochastic (`sde-dpmsolver++`).
    NoisyClean,
    /// The noise, stochastic (`sde-dpmsolver`).
    NoisyEpsilon,
}

impl Algorithm {
    /// How to get what is expanded from a sample of these scales and its prediction.
    fn conversion(self, predicts: Predicts, scales: Scales) -> Blend {
        match self {
            Algorithm::Clean | Algorithm::NoisyClean => predicts.clean(scales),
            Algorithm::Epsilon | Algorithm::NoisyEpsilon => predicts.epsilon(scales),
        }
    }
}

/// How the slope of a second-order step is weighted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Slope {
    Midpoint,
    Heun,
}

/// The method: what is expanded, how far, and how slopes are weighted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Method {
    pub(crate) algorithm: Algorithm,
    pub(crate) slope: Slope,
    pub(crate) order: usize,
}

/// A multistep solver with all of its coefficients.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DpmSolver {
    order: usize,
    steps: Vec<MultiStep>,
}

#[derive(Debug, Clone, PartialEq)]
struct MultiStep {
    conversion: Blend,
    /// By order, from 1 to the highest that this step allows.
    expansions: Vec<Expansion>,
}

impl DpmSolver {
    /// `levels` are the noise levels before every step and after the last one; `highest` is the
    /// highest order that a step allows.
    pub(crate) fn new(
        method: Method,
        predicts: Predicts,
        levels: &[Scales],
        highest: impl Fn(usize) -> usize,
    ) -> DpmSolver {
        let steps = (0..levels.len() - 1)
            .map(|step| MultiStep {
                conversion: method.algorithm.conversion(predicts, levels[step]),
                expansions: (1..=highest(step).min(step + 1))
                    .map(|order| Expansion::new(method, &levels[step + 1 - order..], order))
                    .collect(),
            })
            .collect();
        DpmSolver { order: method.order, steps }
    }

    /// How much fresh noise `step` adds; the same for every order.
    pub(crate) fn noise(&self, step: usize) -> Option<f32> {
        Some(self.steps.get(step)?.expansions.first()?.noise)
    }

    /// The next sample. `history` holds what earlier steps have expanded, newest first; the
    /// order rises as it fills.
    pub(crate) fn step(
        &self,
        step: usize,
        history: &mut Vec<Tensor<3>>,
        (sample, prediction): (Tensor<3>, Tensor<3>),
        noise: Option<Tensor<3>>,
    ) -> Tensor<3> {
        let MultiStep { conversion, expansions } = &self.steps[step];
        history.insert(0, conversion.apply(&sample, &prediction));
        let order = expansions.len().min(history.len());
        let next = expansions[order - 1].apply(&sample, history, noise.as_ref());
        history.truncate(self.order - 1);
        next
    }

    /// The first step that could not be taken.
    pub(crate) fn first_not_finite(&self) -> Option<usize> {
        self.steps.iter().position(|step| {
            !step.conversion.is_finite() || step.expansions.iter().any(|e| !e.is_finite())
        })
    }
}

/// The weights of one step of one order.
#[derive(Debug, Clone, PartialEq)]
struct Expansion {
    sample: f32,
    /// Of the newest value, its slope and its curvature, as far as the order goes.
    derivatives: Vec<f32>,
    /// The inverse lengths of the steps before, relative to this one: newest first.
    inverse_gaps: Vec<f32>,
    noise: f32,
}

impl Expansion {
    /// `levels` start `order - 1` steps before this one and hold the one after it.
    fn new(method: Method, levels: &[Scales], order: usize) -> Expansion {
        let (from, to) = (levels[order - 1], levels[order]);
        let lambda = |scales: &Scales| libm::logf(scales.alpha) - libm::logf(scales.sigma);
        let length = lambda(&to) - lambda(&from);
        let weights = Weights::new(method.algorithm, from, to, length);
        let slope = match (order, method.slope) {
            (2, Slope::Midpoint) => 0.5 * weights.value,
            _ => weights.slope,
        };
        // The newest of the earlier steps ends where this one starts.
        let gap = |end: usize| lambda(&levels[end]) - lambda(&levels[end - 1]);
        Expansion {
            sample: weights.sample,
            derivatives: [weights.value, slope, weights.curvature][..order].to_vec(),
            inverse_gaps: (1..order).rev().map(|end| 1.0 / (gap(end) / length)).collect(),
            noise: weights.noise,
        }
    }

    fn apply(
        &self,
        sample: &Tensor<3>,
        history: &[Tensor<3>],
        noise: Option<&Tensor<3>>,
    ) -> Tensor<3> {
        let derivatives = self.derivatives_of(history);
        let mut terms = vec![(self.sample, sample)];
        terms.extend(self.derivatives.iter().copied().zip(&derivatives));
        terms.extend(noise.map(|noise| (self.noise, noise)));
        weighted(&terms)
    }

    /// The newest value, then its slope and its curvature by divided differences.
    fn derivatives_of(&self, history: &[Tensor<3>]) -> Vec<Tensor<3>> {
        let difference =
            |age: usize| (history[age].clone() - history[age + 1].clone()) * self.inverse_gaps[age];
        let newest = history[0].clone();
        match self.inverse_gaps[..] {
            [] => vec![newest],
            [_] => vec![newest, difference(0)],
            [inverse_newer, inverse_older, ..] => {
                let (newer, older) = (1.0 / inverse_newer, 1.0 / inverse_older);
                let slope = difference(0);
                let bend = slope.clone() - difference(1);
                let curvature = bend.clone() * (1.0 / (newer + older));
                vec![newest, slope + bend * (newer / (newer + older)), curvature]
            }
        }
    }

    fn is_finite(&self) -> bool {
        let numbers = [self.sample, self.noise];
        numbers.iter().chain(&self.derivatives).chain(&self.inverse_gaps).all(|n| n.is_finite())
    }
}

/// The integrals of the expansion over one step of log-SNR `length`.
struct Weights {
    sample: f32,
    value: f32,
    slope: f32,
    curvature: f32,
    noise: f32,
}

impl Weights {
    fn new(algorithm: Algorithm, from: Scales, to: Scales, length: f32) -> Weights {
        let Scales { alpha, sigma } = to;
        let square = length * length;
        match algorithm {
            Algorithm::Clean => {
                let decay = libm::expf(-length) - 1.0;
                Weights {
                    sample: sigma / from.sigma,
                    value: -(alpha * decay),
                    slope: alpha * (decay / length + 1.0),
                    curvature: -(alpha * ((decay + length) / square - 0.5)),
                    noise: 0.0,
                }
            }
            Algorithm::Epsilon => {
                let growth = libm::expf(length) - 1.0;
                Weights {
                    sample: alpha / from.alpha,
                    value: -(sigma * growth),
                    slope: -(sigma * (growth / length - 1.0)),
                    curvature: -(sigma * ((growth - length) / square - 0.5)),
                    noise: 0.0,
                }
            }
            Algorithm::NoisyClean => {
                let gain = 1.0 - libm::expf(-2.0 * length);
                let double = 2.0 * length;
                Weights {
                    sample: sigma / from.sigma * libm::expf(-length),
                    value: alpha * gain,
                    slope: alpha * (gain / -double + 1.0),
                    curvature: alpha * ((gain - double) / (double * double) - 0.5),
                    noise: sigma * gain.sqrt(),
                }
            }
            Algorithm::NoisyEpsilon => {
                let growth = libm::expf(length) - 1.0;
                Weights {
                    sample: alpha / from.alpha,
                    value: -2.0 * (sigma * growth),
                    slope: -2.0 * (sigma * (growth / length - 1.0)),
                    // The config refuses the third order here, as diffusers has none.
                    curvature: f32::NAN,
                    noise: sigma * (libm::expf(2.0 * length) - 1.0).sqrt(),
                }
            }
        }
    }
}
