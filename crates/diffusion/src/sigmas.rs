//! Ladders of noise levels that are not simply the trained ones: Karras, exponential,
//! uniform in log-SNR, flow; and the way back from a noise level to a timestep.

use crate::grid::linspace;
use crate::{Error, Result};

/// Falls from `largest` to `smallest`, evenly in the seventh root (Karras et al. 2022).
pub(crate) fn karras(largest: f64, smallest: f64, steps: usize) -> Vec<f64> {
    const RHO: f64 = 7.0;
    let (high, low) = (libm::pow(largest, 1.0 / RHO), libm::pow(smallest, 1.0 / RHO));
    linspace(0.0, 1.0, steps)
        .into_iter()
        .map(|ramp| libm::pow(high + ramp * (low - high), RHO))
        .collect()
}

/// Falls from `largest` to `smallest`, evenly in the logarithm.
pub(crate) fn exponential(largest: f64, smallest: f64, steps: usize) -> Vec<f64> {
    let logs = linspace(libm::log(largest), libm::log(smallest), steps);
    logs.into_iter().map(libm::exp).collect()
}

/// Moves flow noise levels towards noise: `shift` 1 leaves them, more than 1 raises them.
pub(crate) fn shifted(sigma: f64, shift: f64) -> f64 {
    shift * sigma / (1.0 + (shift - 1.0) * sigma)
}

/// Moves a flow's noise level towards noise: a `shift` of 1 leaves it, more raises it.
///
/// Training and sampling of one model share the shift; there is one function for it.
pub fn shifted_level(level: f64, shift: f64) -> f64 {
    shifted(level, shift)
}

/// The level that [`shifted_level`] moves to `level`.
pub fn unshifted_level(level: f64, shift: f64) -> f64 {
    level / (shift - (shift - 1.0) * level)
}

/// Stretches flow noise levels away from pure noise, so that the last is `terminal`, if any.
pub(crate) fn to_terminal(
    sigmas: Vec<f64>,
    terminal: Option<f64>,
    class: &'static str,
) -> Result<Vec<f64>> {
    let (Some(end), Some(last)) = (terminal, sigmas.last()) else { return Ok(sigmas) };
    if *last == 1.0 {
        return Err(Error::Terminal { class, steps: sigmas.len(), terminal: end });
    }
    let stretch = (1.0 - last) / (1.0 - end);
    Ok(sigmas.iter().map(|sigma| 1.0 - (1.0 - sigma) / stretch).collect())
}

/// Refuses flow noise levels that do not fall from at most 1 to above 0.
pub(crate) fn check_custom(sigmas: &[f64], class: &'static str) -> Result<()> {
    let falls = |i: usize| i == 0 || sigmas[i] < sigmas[i - 1];
    let legal = |i: usize| sigmas[i] > 0.0 && sigmas[i] <= 1.0 && falls(i);
    match (0..sigmas.len()).find(|i| !legal(*i)) {
        Some(index) => Err(Error::Sigmas { class, index, sigma: sigmas[index] }),
        None => Ok(()),
    }
}

/// The logarithms of the trained noise levels, rising, by which timesteps are found.
pub(crate) struct LogSigmas(Vec<f32>);

impl LogSigmas {
    /// From rising noise levels, at least one.
    pub(crate) fn new(sigmas: &[f32]) -> LogSigmas {
        LogSigmas(sigmas.iter().map(|sigma| libm::logf(*sigma)).collect())
    }

    /// The logarithms of the highest and the lowest level.
    pub(crate) fn ends(&self) -> (f64, f64) {
        (f64::from(self.0[self.0.len() - 1]), f64::from(self.0[0]))
    }

    /// The fractional timestep whose noise level is `sigma`, kept within the trained ones.
    pub(crate) fn timestep(&self, sigma: f64) -> f64 {
        let wanted = libm::log(sigma.max(1e-10));
        let above = self.0.iter().rposition(|log| wanted >= f64::from(*log)).unwrap_or(0);
        let low = above.min(self.0.len().saturating_sub(2));
        let high = (low + 1).min(self.0.len() - 1);
        let (below, beyond) = (self.0[low], self.0[high]);
        let weight = (f64::from(below) - wanted) / f64::from(below - beyond);
        let weight = if weight.is_nan() { 0.0 } else { weight.clamp(0.0, 1.0) };
        (1.0 - weight) * low as f64 + weight * high as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ladders_fall_from_the_first_to_the_last() {
        for ladder in [karras, exponential] {
            let sigmas = ladder(80.0, 0.01, 9);
            assert!(sigmas.is_sorted_by(|a, b| a > b), "{sigmas:?}");
            assert!((sigmas[0] - 80.0).abs() < 1e-9 && (sigmas[8] - 0.01).abs() < 1e-9);
            assert_eq!(ladder(80.0, 0.01, 1).len(), 1);
        }
    }

    #[test]
    fn a_shift_can_be_undone() {
        for (level, shift) in [(0.0, 3.0), (0.3, 5.0), (0.999, 8.0), (1.0, 3.0), (0.4, 0.5)] {
            assert!((unshifted_level(shifted_level(level, shift), shift) - level).abs() < 1e-12);
        }
        assert_eq!(shifted_level(0.5, 3.0), 0.75);
    }

    #[test]
    fn a_trained_level_is_its_own_timestep() {
        let levels = [0.1, 0.5, 2.0, 9.0];
        let logs = LogSigmas::new(&levels);
        for (timestep, sigma) in levels.iter().enumerate() {
            assert!((logs.timestep(f64::from(*sigma)) - timestep as f64).abs() < 1e-6);
        }
        assert_eq!((logs.timestep(0.0), logs.timestep(1e9)), (0.0, 3.0));
    }
}
