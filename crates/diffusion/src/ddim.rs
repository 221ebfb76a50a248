//! DDIM (Song et al. 2021): a deterministic step along the predicted noise, or a noisy one
//! where `eta` is above zero.

use crate::Result;
use crate::betas::{BASIC_SCHEDULES, Betas};
use crate::grid::{Grid, Spacing};
use crate::process::VpPrediction;
use crate::solver::{Solver, Step};
use crate::update::{Predicts, Scales, Update, VP_PREDICTIONS};
use nn::ConfigReader;

/// The class name in diffusers.
pub(crate) const CLASS: &str = "DDIMScheduler";

/// A checked `DDIMScheduler` config.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DdimConfig {
    pub(crate) betas: Betas,
    pub(crate) prediction: VpPrediction,
    grid: Grid,
    clip: Option<f32>,
    /// How much signal the last step arrives at.
    final_alpha: f32,
    /// How much of the DDPM noise is added.
    pub(crate) eta: f64,
}

/// The default of DDIM and DDPM comes first.
pub(crate) const SPACINGS: [(&str, Spacing); 3] = [
    ("leading", Spacing::Leading),
    ("trailing", Spacing::Trailing),
    ("linspace", Spacing::Linspace),
];

impl DdimConfig {
    pub(crate) fn read(options: &mut ConfigReader) -> Result<DdimConfig> {
        let betas = Betas::read(options, &BASIC_SCHEDULES)?;
        let to_one = options.flag("set_alpha_to_one", true)?;
        Ok(DdimConfig {
            prediction: options.choice("prediction_type", &VP_PREDICTIONS)?,
            grid: Grid::read(options, betas.trained(), &SPACINGS)?,
            clip: read_clip(options)?,
            final_alpha: if to_one { 1.0 } else { betas.alphas_cumprod[0] },
            eta: 0.0,
            betas,
        })
    }

    pub(crate) fn solver(&self, steps: usize) -> Result<Solver> {
        let timesteps = self.grid.timesteps(steps, CLASS)?;
        let stride = (self.betas.trained() / steps) as i64;
        let mut table = Vec::with_capacity(steps);
        let mut updates = Vec::with_capacity(steps);
        for timestep in timesteps {
            let alpha = self.betas.alphas_cumprod[timestep as usize];
            // The next noise level is a fixed stride away, whatever the spacing.
            let next = match usize::try_from(timestep - stride) {
                Ok(next) => self.betas.alphas_cumprod[next],
                Err(_) => self.final_alpha,
            };
            table.push(Step::new(timestep as f64, Scales::from_alpha_cumprod(alpha)));
            updates.push(self.update(alpha, next));
        }
        Solver::without_memory(CLASS, table, updates)
    }

    /// The step between two shares of signal.
    fn update(&self, alpha: f32, next: f32) -> Update {
        let scales = Scales::from_alpha_cumprod(alpha);
        let variance = (1.0 - next) / (1.0 - alpha) * (1.0 - alpha / next);
        let noise = self.eta as f32 * variance.sqrt();
        let stay = Update::stay(Predicts::Vp(self.prediction), scales);
        Update {
            clean: (stay.clean.0, next.sqrt()),
            clip: self.clip,
            // With `eta` 1 the difference can round to just below zero.
            epsilon: (stay.epsilon.0, (1.0 - next - noise * noise).max(0.0).sqrt()),
            sample: 0.0,
            noise,
            ..stay
        }
    }
}

/// Reads how the predicted clean sample is kept in range.
pub(crate) fn read_clip(options: &mut ConfigReader) -> Result<Option<f32>> {
    refuse_thresholding(options)?;
    let range = options.number("clip_sample_range", 1.0)?;
    if range < 0.0 {
        return Err(options.unsupported("clip_sample_range", &range.into(), "0 or more").into());
    }
    Ok(options.flag("clip_sample", true)?.then_some(range as f32))
}

/// Dynamic thresholding scales a token by a quantile of all the others, so regions could not be
/// denoised apart.
pub(crate) fn refuse_thresholding(options: &mut ConfigReader) -> Result<()> {
    options.must_be_off("thresholding", "false (`clip_sample` where the class has it)")?;
    options.number("dynamic_thresholding_ratio", 0.995)?;
    options.number("sample_max_value", 1.0)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::SchedulerConfig;

    #[test]
    fn a_range_to_clip_to_is_not_negative() {
        for class in ["DDIMScheduler", "DDPMScheduler"] {
            let read = |range: f64| {
                let text = format!(r#"{{"_class_name": "{class}", "clip_sample_range": {range}}}"#);
                SchedulerConfig::from_json(&text)
            };
            assert!(read(0.5).is_ok());
            let message = read(-0.5).unwrap_err().to_string();
            assert!(message.contains("`clip_sample_range` is -0.5"), "{message}");
        }
    }
}
