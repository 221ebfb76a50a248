//! How fast the signal fades: beta schedules and the cumulative product of their alphas.
//!
//! The numbers are f32 where diffusers computes in f32. The transcendental functions come from
//! `libm`, so they do not depend on the machine.

use crate::{Error, Result};
use nn::ConfigReader;

/// A named schedule of betas.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum BetaSchedule {
    Linear,
    ScaledLinear,
    SquaredCosine,
    Sigmoid,
    Laplace,
}

/// The schedules that every class has; the first is the default.
pub(crate) const BASIC_SCHEDULES: [(&str, BetaSchedule); 3] = [
    ("linear", BetaSchedule::Linear),
    ("scaled_linear", BetaSchedule::ScaledLinear),
    ("squaredcos_cap_v2", BetaSchedule::SquaredCosine),
];

/// The most timesteps a process can be trained with; a larger number is a typing error.
const MOST_TIMESTEPS: usize = 1_000_000;

/// A variance-preserving process on discrete timesteps.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Betas {
    /// How much of the signal's variance is left at each timestep.
    pub(crate) alphas_cumprod: Vec<f32>,
    pub(crate) schedule: BetaSchedule,
    /// Whether the last timestep was made pure noise.
    pub(crate) zero_snr: bool,
}

impl Betas {
    /// Reads every option that shapes the betas.
    pub(crate) fn read(
        options: &mut ConfigReader,
        schedules: &[(&str, BetaSchedule)],
    ) -> Result<Betas> {
        let count = options.count("num_train_timesteps", 1000, 1..=MOST_TIMESTEPS)?;
        let start = options.number("beta_start", 0.0001)?;
        let end = options.number("beta_end", 0.02)?;
        let schedule = options.choice("beta_schedule", schedules)?;
        let betas = match options.numbers("trained_betas")? {
            Some(betas) if betas.len() == count => betas.iter().map(|beta| *beta as f32).collect(),
            Some(betas) => {
                let lengths = format!("null, lists of `num_train_timesteps` = {count} numbers");
                let value = format!("a list of {}", betas.len()).into();
                return Err(options.unsupported("trained_betas", &value, &lengths).into());
            }
            None => schedule.betas(start, end, count),
        };
        let zero_snr = options.flag("rescale_betas_zero_snr", false)?;
        let betas = if zero_snr { without_terminal_signal(&betas) } else { betas };
        match betas.iter().position(|beta| !(0.0..=1.0).contains(beta)) {
            Some(timestep) => {
                let (class, beta) = (options.name().to_owned(), betas[timestep]);
                Err(Error::Beta { class, timestep, beta })
            }
            None => Ok(Betas { alphas_cumprod: cumulative_alphas(&betas), schedule, zero_snr }),
        }
    }

    /// The same for a solver that counts in log-SNR, which pure noise does not have.
    pub(crate) fn read_with_some_signal(
        options: &mut ConfigReader,
        schedules: &[(&str, BetaSchedule)],
    ) -> Result<Betas> {
        let mut betas = Betas::read(options, schedules)?;
        if betas.zero_snr {
            // This is the smallest signal that f16 has.
            let last = betas.trained() - 1;
            betas.alphas_cumprod[last] = 2f32.powi(-24);
        }
        Ok(betas)
    }

    /// How much noise there is for one part of signal at each timestep, rising.
    pub(crate) fn noise_to_signal(&self) -> Vec<f32> {
        let ratio = |alpha: &f32| ((1.0 - alpha) / alpha).sqrt();
        self.alphas_cumprod.iter().map(ratio).collect()
    }

    /// How many timesteps the process was trained with.
    pub(crate) fn trained(&self) -> usize {
        self.alphas_cumprod.len()
    }
}

impl BetaSchedule {
    fn betas(self, start: f64, end: f64, count: usize) -> Vec<f32> {
        match self {
            BetaSchedule::Linear => linspace(start as f32, end as f32, count),
            BetaSchedule::ScaledLinear => {
                let roots = linspace(libm::sqrt(start) as f32, libm::sqrt(end) as f32, count);
                roots.into_iter().map(|root| root * root).collect()
            }
            BetaSchedule::SquaredCosine => betas_of(squared_cosine, count),
            BetaSchedule::Laplace => betas_of(laplace, count),
            BetaSchedule::Sigmoid => linspace(-6.0, 6.0, count)
                .into_iter()
                .map(|x| 1.0 / (1.0 + libm::expf(-x)) * (end - start) as f32 + start as f32)
                .collect(),
        }
    }
}

/// The betas whose alphas multiply to `signal(t)`, for t from 0 to 1, each at most 0.999.
fn betas_of(signal: fn(f64) -> f64, count: usize) -> Vec<f32> {
    let time = |i: usize| i as f64 / count as f64;
    (0..count).map(|i| (1.0 - signal(time(i + 1)) / signal(time(i))).min(0.999) as f32).collect()
}

fn squared_cosine(time: f64) -> f64 {
    let cosine = libm::cos((time + 0.008) / 1.008 * std::f64::consts::PI / 2.0);
    cosine * cosine
}

fn laplace(time: f64) -> f64 {
    let distance = (0.5 - time).abs();
    let log_snr = -0.5 * 1f64.copysign(0.5 - time) * libm::log(1.0 - 2.0 * distance + 1e-6);
    let snr = libm::exp(log_snr);
    libm::sqrt(snr / (1.0 + snr))
}

/// `count` f32 numbers from `start` to `stop`, filled from both ends as PyTorch does.
fn linspace(start: f32, stop: f32, count: usize) -> Vec<f32> {
    let step = (stop - start) / count.saturating_sub(1).max(1) as f32;
    let from_start = |i: usize| start + step * i as f32;
    let from_stop = |i: usize| stop - step * (count - 1 - i) as f32;
    let first_half = (count / 2).max(usize::from(count == 1));
    (0..count).map(|i| if i < first_half { from_start(i) } else { from_stop(i) }).collect()
}

/// PyTorch multiplies in f64 and stores f32, and so do we.
fn cumulative_alphas(betas: &[f32]) -> Vec<f32> {
    let mut product = 1f64;
    let mut multiply = |beta: &f32| {
        product *= f64::from(1.0 - beta);
        product as f32
    };
    betas.iter().map(&mut multiply).collect()
}

/// Rescales betas so that the last timestep keeps no signal: algorithm 1 of "Common diffusion
/// noise schedules and sample steps are flawed" (arXiv 2305.08891).
fn without_terminal_signal(betas: &[f32]) -> Vec<f32> {
    let roots: Vec<f32> = cumulative_alphas(betas).iter().map(|alpha| alpha.sqrt()).collect();
    let (first, last) = (roots[0], roots[roots.len() - 1]);
    let stretch = first / (first - last);
    let squared = |root: &f32| ((root - last) * stretch) * ((root - last) * stretch);
    let signal: Vec<f32> = roots.iter().map(squared).collect();
    let alphas = signal.windows(2).map(|pair| pair[1] / pair[0]);
    std::iter::once(signal[0]).chain(alphas).map(|alpha| 1.0 - alpha).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linspace_is_symmetric_and_survives_one_element() {
        assert_eq!(linspace(0.5, 9.0, 1), [0.5]);
        assert_eq!(linspace(0.0, 1.0, 5), [0.0, 0.25, 0.5, 0.75, 1.0]);
    }

    #[test]
    fn a_rescaled_schedule_ends_in_pure_noise_and_keeps_its_start() {
        let betas = BetaSchedule::ScaledLinear.betas(0.00085, 0.012, 1000);
        let rescaled = cumulative_alphas(&without_terminal_signal(&betas));
        assert_eq!(rescaled[999], 0.0);
        assert!((rescaled[0] - cumulative_alphas(&betas)[0]).abs() < 1e-6);
    }
}
