//! Learning rates, counted in the updates of their own role.
//!
//! A role that is updated every fifth step moves along its schedule once in five steps, so its horizon
//! is the number of its updates, not of steps. A skipped update does not move it at all.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the learning rate goes after the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Decay {
    /// It stays.
    #[default]
    Constant,
    /// Straight down to `end` of the peak.
    Linear {
        /// The share of the peak at the horizon.
        #[serde(default)]
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        end: f64,
    },
    /// Half a cosine down to `end` of the peak.
    Cosine {
        /// The share of the peak at the horizon.
        #[serde(default)]
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        end: f64,
    },
    /// Half a cosine down to `end` of the peak, over and over: each time it begins at the peak again.
    CosineRestarts {
        /// How often it goes down.
        #[schemars(range(min = 1))]
        cycles: u64,
        /// The share of the peak at the end of each.
        #[serde(default)]
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        end: f64,
    },
    /// `(1 - progress)^power` down to `end` of the peak.
    Polynomial {
        /// The power.
        #[schemars(extend("exclusiveMinimum" = 0))]
        power: f64,
        /// The share of the peak at the horizon.
        #[serde(default)]
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        end: f64,
    },
    /// Steps: from each update on, the given share of the peak; before the first of them, all of it.
    Piecewise {
        /// Pairs of an update and a share, rising.
        steps: Vec<(u64, f64)>,
    },
}

/// A learning rate by update.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningRateSchedule {
    peak: f64,
    warmup: u64,
    decay: Decay,
    horizon: u64,
}

impl LearningRateSchedule {
    /// `peak` after `warmup` updates, then `decay` until `horizon` updates of this role are over.
    ///
    /// # Errors
    /// A rate that is not a positive number, a warm-up beyond the horizon, shares outside 0 to 1,
    /// more cycles than updates, steps that do not rise.
    pub fn new(peak: f64, warmup: u64, decay: Decay, horizon: u64) -> Result<LearningRateSchedule> {
        if !(peak.is_finite() && peak > 0.0) {
            return Err(Error::setting("rate.peak", peak, "it is a number above 0"));
        }
        if warmup > horizon {
            let want = format!("this role is updated only {horizon} times");
            return Err(Error::setting("rate.warmup", warmup, want));
        }
        let share = |end: f64| match (0.0..=1.0).contains(&end) {
            true => Ok(()),
            false => {
                Err(Error::setting("rate.decay.end", end, "it is a share of the peak, from 0 to 1"))
            }
        };
        match &decay {
            Decay::Constant => {}
            Decay::Linear { end } | Decay::Cosine { end } => share(*end)?,
            Decay::CosineRestarts { cycles, end } => {
                share(*end)?;
                if *cycles == 0 {
                    return Err(Error::setting("rate.decay.cycles", 0, "it is at least 1"));
                }
                // More of them would be seen at single updates, as if at random.
                let left = horizon - warmup;
                if *cycles > left {
                    let want =
                        format!("{left} updates follow the warm-up, so it is at most {left}");
                    return Err(Error::setting("rate.decay.cycles", cycles, want));
                }
            }
            Decay::Polynomial { power, end } => {
                share(*end)?;
                if !(power.is_finite() && *power > 0.0) {
                    return Err(Error::setting(
                        "rate.decay.power",
                        power,
                        "it is a number above 0",
                    ));
                }
            }
            Decay::Piecewise { steps } => {
                steps.iter().try_for_each(|(_, step)| share(*step))?;
                if steps.is_empty() || !steps.is_sorted_by(|a, b| a.0 < b.0) {
                    let listed = format!("{steps:?}");
                    return Err(Error::setting(
                        "rate.decay.steps",
                        listed,
                        "updates rise, and there is one",
                    ));
                }
            }
        }
        Ok(LearningRateSchedule { peak, warmup, decay, horizon })
    }

    /// A rate that never changes.
    ///
    /// # Errors
    /// It is not a positive number.
    pub fn constant(rate: f64) -> Result<LearningRateSchedule> {
        LearningRateSchedule::new(rate, 0, Decay::Constant, 0)
    }

    /// The learning rate of the update after `done` updates.
    pub fn rate(&self, done: u64) -> f64 {
        if done < self.warmup {
            return self.peak * (done + 1) as f64 / self.warmup as f64;
        }
        let span = self.horizon.saturating_sub(self.warmup).max(1) as f64;
        let progress = ((done - self.warmup) as f64 / span).min(1.0);
        let toward = |end: f64, left: f64| end + (1.0 - end) * left;
        self.peak
            * match &self.decay {
                Decay::Constant => 1.0,
                Decay::Linear { end } => toward(*end, 1.0 - progress),
                Decay::Cosine { end } => {
                    toward(*end, 0.5 * (1.0 + (std::f64::consts::PI * progress).cos()))
                }
                Decay::CosineRestarts { cycles, end } => {
                    let place = progress * *cycles as f64;
                    let within = if progress >= 1.0 { 1.0 } else { place.fract() };
                    toward(*end, 0.5 * (1.0 + (std::f64::consts::PI * within).cos()))
                }
                Decay::Polynomial { power, end } => toward(*end, (1.0 - progress).powf(*power)),
                Decay::Piecewise { steps } => {
                    let passed = steps.iter().rev().find(|(update, _)| *update <= done);
                    passed.map_or(1.0, |(_, share)| *share)
                }
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(decay: Decay, warmup: u64, horizon: u64, at: &[u64]) -> Vec<f64> {
        let learning_rate = LearningRateSchedule::new(2.0, warmup, decay, horizon).unwrap();
        at.iter().map(|done| learning_rate.rate(*done)).collect()
    }

    #[track_caller]
    fn near(got: Vec<f64>, want: &[f64]) {
        let off = got.iter().zip(want).any(|(got, want)| (got - want).abs() > 1e-12);
        assert!(!off && got.len() == want.len(), "{got:?} instead of {want:?}");
    }

    #[test]
    fn each_kind_goes_its_way_after_the_warm_up() {
        near(rates(Decay::Constant, 4, 4, &[0, 1, 3, 4, 99]), &[0.5, 1.0, 2.0, 2.0, 2.0]);
        let at = [2, 7, 12, 50];
        near(rates(Decay::Linear { end: 0.1 }, 2, 12, &at), &[2.0, 1.1, 0.2, 0.2]);
        near(rates(Decay::Cosine { end: 0.0 }, 2, 12, &at), &[2.0, 1.0, 0.0, 0.0]);
        near(rates(Decay::Cosine { end: 0.05 }, 2, 12, &at), &[2.0, 1.05, 0.1, 0.1]);
        // diffusers' cosine_with_restarts.
        let again = |at: &[u64]| rates(Decay::CosineRestarts { cycles: 2, end: 0.0 }, 2, 12, at);
        let low = 1.0 + (0.8 * std::f64::consts::PI).cos();
        near(again(&[2, 6, 7, 11, 12, 99]), &[2.0, low, 2.0, low, 0.0, 0.0]);
        let square = Decay::Polynomial { power: 2.0, end: 0.0 };
        near(rates(square, 2, 12, &at), &[2.0, 0.5, 0.0, 0.0]);
        let steps = Decay::Piecewise { steps: vec![(3, 0.5), (5, 0.0)] };
        near(rates(steps, 0, 9, &[0, 2, 3, 4, 5]), &[2.0, 2.0, 1.0, 1.0, 0.0]);
    }

    /// FastVideo's polynomial has a power of 0 by default and its piecewise schedule cannot be given
    /// its steps: both are refused here instead of degenerating.
    #[test]
    fn what_cannot_be_is_refused() {
        let refused =
            |peak, warmup, decay| LearningRateSchedule::new(peak, warmup, decay, 10).is_err();
        assert!(refused(0.0, 0, Decay::Constant) && refused(f64::NAN, 0, Decay::Constant));
        assert!(refused(1.0, 11, Decay::Constant));
        assert!(refused(1.0, 0, Decay::Linear { end: 1.5 }));
        assert!(refused(1.0, 0, Decay::Polynomial { power: 0.0, end: 0.0 }));
        assert!(refused(1.0, 0, Decay::CosineRestarts { cycles: 0, end: 0.0 }));
        assert!(refused(1.0, 3, Decay::CosineRestarts { cycles: 8, end: 0.0 }));
        assert!(!refused(1.0, 3, Decay::CosineRestarts { cycles: 7, end: 0.0 }));
        assert!(refused(1.0, 0, Decay::Piecewise { steps: vec![] }));
        assert!(refused(1.0, 0, Decay::Piecewise { steps: vec![(5, 0.5), (3, 0.1)] }));
        // A share of exactly 0 is a value like any other.
        assert_eq!(
            LearningRateSchedule::new(1.0, 0, Decay::Cosine { end: 0.0 }, 4).unwrap().rate(4),
            0.0
        );
    }
}
