//! Which noise levels training visits: densities over levels from 0 (clean) to 1 (pure noise).
//!
//! A level is a function of the draw alone, which is keyed by sample: neither the batch nor the
//! rank nor the order of calls changes it. Numbers are f64 with `libm` until the last.
//!
//! Levels are drawn as the papers draw them. diffusers and FastVideo look the drawn number up in
//! a *falling* grid, so that their `logit_mean` has the opposite sign; the other densities are
//! symmetric.

use crate::sigmas::shifted;
use crate::{Draw, Error, Result};
use std::f64::consts::PI;

/// How LTX-2 shifts its density by the number of tokens: through these two points.
const FEW_TOKENS: (f64, f64) = (1024.0, 0.95);
const MANY_TOKENS: (f64, f64) = (4096.0, 2.05);

/// The normal numbers that 0.5 % are below and 0.1 % are above, as LTX-2 rounds them.
const LOW_PERCENTILE: f64 = -2.5758;
const HIGH_PERCENTILE: f64 = 3.0902;

/// The scales between which the mode density is one: [-1, 2 / (pi - 2)] (Esser et al. 2024).
const MODE_SCALES: [f64; 2] = [-1.0, 1.75];

/// A density of noise levels for training.
///
/// ```
/// use diffusion::{Draw, TimestepSampler};
///
/// # fn main() -> diffusion::Result<()> {
/// let sampler = TimestepSampler::logit_normal(0.0, 1.0)?;
/// let draw = Draw::new(7).stream("level").step(100);
/// let levels = [8, 9, 10].map(|sample| sampler.level(draw.sample(sample), 4096));
/// assert!(levels.iter().all(|level| (0.0..=1.0).contains(level)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimestepSampler {
    density: Density,
    /// Moves every level towards noise, as a flow's schedule does; 1 leaves them.
    shift: f64,
    /// The lowest and the highest level, where only a part of the density is visited.
    range: Option<[f64; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Density {
    Uniform { lowest: f64, highest: f64 },
    LogitNormal { mean: f64, deviation: f64 },
    Stretched(Stretched),
    Mode { scale: f64 },
}

impl TimestepSampler {
    /// All levels from `lowest` to `highest` alike.
    ///
    /// # Errors
    ///
    /// If the bounds are not in order within 0 and 1.
    pub fn uniform(lowest: f64, highest: f64) -> Result<TimestepSampler> {
        check("uniform", "lowest", lowest, 0.0..=1.0)?;
        check("uniform", "highest", highest, lowest..=1.0)?;
        Ok(Density::Uniform { lowest, highest }.into())
    }

    /// The sigmoid of a normal number: most levels are in the middle, or where `mean` moves
    /// them (above 0: towards noise).
    ///
    /// # Errors
    ///
    /// If `mean` is not finite or `deviation` not above 0.
    pub fn logit_normal(mean: f64, deviation: f64) -> Result<TimestepSampler> {
        check("logit_normal", "mean", mean, f64::MIN..=f64::MAX)?;
        check("logit_normal", "deviation", deviation, f64::MIN_POSITIVE..=f64::MAX)?;
        Ok(Density::LogitNormal { mean, deviation }.into())
    }

    /// LTX-2's: a logit-normal density whose mean rises with the number of tokens, stretched
    /// from its percentiles to the whole range, and mixed with a share `uniform` of uniform
    /// levels. No level is below `floor`.
    ///
    /// The mean is not bounded: at 24,576 tokens hardly anything but the uniform share lies
    /// outside of the highest levels. LTX-2 has `deviation` 1, `floor` 1e-3, `uniform` 0.1.
    ///
    /// # Errors
    ///
    /// If `deviation` is not above 0, or the others are no shares.
    pub fn shifted_logit_normal(
        deviation: f64,
        floor: f64,
        uniform: f64,
    ) -> Result<TimestepSampler> {
        let name = "shifted_logit_normal";
        check(name, "deviation", deviation, f64::MIN_POSITIVE..=f64::MAX)?;
        check(name, "floor", floor, 0.0..=0.5)?;
        check(name, "uniform", uniform, 0.0..=1.0)?;
        Ok(Density::Stretched(Stretched { deviation, floor, uniform }).into())
    }

    /// Stable Diffusion 3's density with heavy tails: `scale` above 0 prefers the middle, below
    /// 0 the ends.
    ///
    /// # Errors
    ///
    /// If `scale` is outside of -1 to 1.75, beyond which it is no density.
    pub fn mode(scale: f64) -> Result<TimestepSampler> {
        check("mode", "scale", scale, MODE_SCALES[0]..=MODE_SCALES[1])?;
        Ok(Density::Mode { scale }.into())
    }

    /// The same density moved towards noise by the shift of a flow's schedule (Wan: 3, 5, 8).
    ///
    /// # Errors
    ///
    /// If `shift` is not above 0.
    pub fn with_shift(self, shift: f64) -> Result<TimestepSampler> {
        check("timestep sampler", "shift", shift, f64::MIN_POSITIVE..=f64::MAX)?;
        Ok(TimestepSampler { shift, ..self })
    }

    /// The same density between two levels, and nothing elsewhere: what an expert for a part of the levels
    /// learns from.
    ///
    /// # Errors
    ///
    /// If the bounds are not in order within 0 and 1, or the density has nothing between them.
    pub fn within(self, [lowest, highest]: [f64; 2]) -> Result<TimestepSampler> {
        const NAME: &str = "timestep sampler";
        check(NAME, "lowest level", lowest, 0.0..=1.0)?;
        check(NAME, "highest level", highest, lowest..=1.0)?;
        if let Density::Uniform { lowest: low, highest: high } = self.density {
            check(NAME, "lowest level", shifted(low, self.shift), 0.0..=highest)?;
            check(NAME, "highest level", shifted(high, self.shift), lowest..=1.0)?;
        }
        let range = [lowest, highest];
        Ok(TimestepSampler { range: (range != [0.0, 1.0]).then_some(range), ..self })
    }

    /// The share of the density between two levels. None where it depends on the number of tokens.
    pub fn share(&self, range: [f64; 2]) -> Option<f64> {
        if let Density::Stretched(_) = self.density {
            return None;
        }
        // None of the other densities asks the draw for more numbers.
        let level = |share: f64| {
            f64::from(self.level_from(Draw::new(0), share, || normal_quantile(share), 0))
        };
        let [from, to] = range.map(|wanted| share_before(wanted, &level));
        Some((to - from).abs())
    }

    /// The level of one sample of `tokens` generated tokens (references do not count).
    ///
    /// `draw` is keyed by the step and by the sample's global index; its first numbers are used.
    pub fn level(&self, draw: Draw, tokens: usize) -> f32 {
        let normal = || f64::from(draw.normal(0..1)[0]);
        if let Some(range) = self.range {
            return self.level_between(range, draw, f64::from(draw.uniform(0..1)[0]), tokens);
        }
        self.level_from(draw, f64::from(draw.uniform(0..1)[0]), normal, tokens)
    }

    /// The same, drawn from one of `count` parts of the density that are equally likely.
    ///
    /// Samples of a batch that take one part each visit all levels evenly, so that their mean loss
    /// varies less from step to step; each level by itself follows the density as before once parts
    /// are dealt at random.
    ///
    /// # Panics
    /// Panics if there is no such part.
    pub fn level_in(&self, part: u64, count: u64, draw: Draw, tokens: usize) -> f32 {
        assert!(part < count, "part {part} of {count}");
        let unit = (part as f64 + f64::from(draw.uniform(0..1)[0])) / count as f64;
        if let Some(range) = self.range {
            return self.level_between(range, draw, unit, tokens);
        }
        self.level_from(draw, unit, || normal_quantile(unit), tokens)
    }

    /// The level between two bounds that a share `unit` of the density between them lies before.
    fn level_between(&self, range: [f64; 2], draw: Draw, unit: f64, tokens: usize) -> f32 {
        let level =
            |share: f64| f64::from(self.level_from(draw, share, || normal_quantile(share), tokens));
        let [from, to] = range.map(|wanted| share_before(wanted, &level));
        level(from + unit * (to - from)).clamp(range[0], range[1]) as f32
    }

    /// The level for a uniform number, or for a normal one where the density is made of these.
    fn level_from(&self, draw: Draw, uniform: f64, normal: impl Fn() -> f64, tokens: usize) -> f32 {
        let level = match self.density {
            Density::Uniform { lowest, highest } => lowest + uniform * (highest - lowest),
            Density::LogitNormal { mean, deviation } => sigmoid(normal() * deviation + mean),
            Density::Mode { scale } => mode(uniform, scale),
            Density::Stretched(density) => match f64::from(draw.uniform(1..2)[0]) < density.uniform
            {
                true => density.floor + uniform * (1.0 - density.floor),
                false => density.level(normal(), mean_for(tokens)),
            },
        };
        shifted(level, self.shift) as f32
    }
}

impl From<Density> for TimestepSampler {
    fn from(density: Density) -> TimestepSampler {
        TimestepSampler { density, shift: 1.0, range: None }
    }
}

/// LTX-2's density.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Stretched {
    deviation: f64,
    floor: f64,
    uniform: f64,
}

impl Stretched {
    /// The level for a normal number: between the percentiles from 0 to 1, what is below the
    /// floor reflected at it, what is above 1 cut off.
    fn level(&self, normal: f64, mean: f64) -> f64 {
        let at = |normal: f64| sigmoid(mean + normal * self.deviation);
        let (low, high) = (at(LOW_PERCENTILE), at(HIGH_PERCENTILE));
        let stretched = (at(normal) - low) / (high - low);
        let reflected =
            if stretched < self.floor { 2.0 * self.floor - stretched } else { stretched };
        reflected.clamp(0.0, 1.0)
    }
}

/// The share of a density that lies before a level, where `level` says which one a share lies before: levels
/// rise or fall with it.
fn share_before(wanted: f64, level: &dyn Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (1e-6, 1.0 - 1e-6);
    let rises = level(low) < level(high);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        match (level(middle) < wanted) == rises {
            true => low = middle,
            false => high = middle,
        }
    }
    0.5 * (low + high)
}

/// The mean of LTX-2's density, linear in the number of tokens.
fn mean_for(tokens: usize) -> f64 {
    let slope = (MANY_TOKENS.1 - FEW_TOKENS.1) / (MANY_TOKENS.0 - FEW_TOKENS.0);
    FEW_TOKENS.1 + slope * (tokens as f64 - FEW_TOKENS.0)
}

fn mode(uniform: f64, scale: f64) -> f64 {
    let cosine = libm::cos(PI / 2.0 * uniform);
    1.0 - uniform - scale * (cosine * cosine - 1.0 + uniform)
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// The normal number that a share `below` of all is below, within 2e-9 (Acklam's approximation).
fn normal_quantile(below: f64) -> f64 {
    const CENTRE: [f64; 6] = [
        -3.969683028665376e1,
        2.209460984245205e2,
        -2.759285104469687e2,
        1.38357751867269e2,
        -3.066479806614716e1,
        2.506628277459239,
    ];
    const UNDER_CENTRE: [f64; 6] = [
        -5.447609879822406e1,
        1.615858368580409e2,
        -1.556989798598866e2,
        6.680131188771972e1,
        -1.328068155288572e1,
        1.0,
    ];
    const TAIL: [f64; 6] = [
        -7.784894002430293e-3,
        -3.223964580411365e-1,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ];
    const UNDER_TAIL: [f64; 5] =
        [7.784695709041462e-3, 3.224671290700398e-1, 2.445134137142996, 3.754408661907416, 1.0];
    let polynomial = |terms: &[f64], x: f64| terms.iter().fold(0.0, |sum, term| sum * x + term);
    let tail = |share: f64| {
        // No f32 uniform number is nearer to 0 or 1 than this, but for 0 itself.
        let x = libm::sqrt(-2.0 * libm::log(share.max(1e-12)));
        polynomial(&TAIL, x) / polynomial(&UNDER_TAIL, x)
    };
    match below {
        low if low < 0.02425 => tail(low),
        high if high > 1.0 - 0.02425 => -tail(1.0 - high),
        middle => {
            let (x, square) = (middle - 0.5, (middle - 0.5) * (middle - 0.5));
            x * polynomial(&CENTRE, square) / polynomial(&UNDER_CENTRE, square)
        }
    }
}

/// Refuses a parameter that is not a number within `range`.
fn check(
    sampler: &'static str,
    parameter: &'static str,
    value: f64,
    range: std::ops::RangeInclusive<f64>,
) -> Result<()> {
    match range.contains(&value) {
        true => Ok(()),
        false => {
            let [low, high] = [*range.start(), *range.end()];
            let allowed = match (low == f64::MIN, low == f64::MIN_POSITIVE) {
                (true, _) => "finite numbers".to_owned(),
                (_, true) => "finite numbers above 0".to_owned(),
                _ => format!("numbers from {low} to {high}"),
            };
            Err(Error::Sampler { sampler, parameter, value, allowed })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, want: f64) {
        assert!((found - want).abs() < 1e-6, "{found}, not {want}");
    }

    /// The values that LTX-2's formulas give.
    #[test]
    fn the_mean_is_linear_in_the_tokens() {
        let known =
            [(93, 0.616634), (256, 0.675), (1024, 0.95), (4032, 2.027083), (24_576, 9.383333)];
        known.into_iter().for_each(|(tokens, mean)| near(mean_for(tokens), mean));
    }

    #[test]
    fn percentiles_are_stretched_and_the_lowest_reflected() {
        let density = Stretched { deviation: 1.0, floor: 1e-3, uniform: 0.1 };
        near(sigmoid(2.05 + HIGH_PERCENTILE), 0.994178);
        near(sigmoid(2.05 + LOW_PERCENTILE), 0.371497);
        let known =
            [(-3.0, 0.150731), (-1.0, 0.593045), (0.0, 0.826187), (1.0, 0.936733), (4.0, 1.0)];
        known.into_iter().for_each(|(normal, level)| near(density.level(normal, 2.05), level));
        near(density.level(LOW_PERCENTILE, 2.05), 2e-3);
        near(density.level(HIGH_PERCENTILE, -7.0), 1.0);
    }

    /// Shares by the distributions themselves.
    #[test]
    fn shares_of_densities_are_known() {
        let [above, all] = [[0.875, 1.0], [0.0, 1.0]];
        let share = |own: TimestepSampler, range| own.share(range).unwrap();
        let close =
            |found: f64, want: f64| assert!((found - want).abs() < 1e-5, "{found}, not {want}");
        close(share(TimestepSampler::uniform(0.0, 1.0).unwrap(), above), 0.125);
        close(share(TimestepSampler::uniform(0.5, 1.0).unwrap(), above), 0.25);
        close(share(TimestepSampler::uniform(0.9, 1.0).unwrap(), above), 1.0);
        let normal = TimestepSampler::logit_normal(0.0, 1.0).unwrap();
        close(share(normal, all), 1.0);
        close(share(normal, [0.5, 1.0]), 0.5);
        // As many as lie beyond ln(7 / 5) of a normal number.
        close(share(normal.with_shift(5.0).unwrap(), above), 0.368_257);
        close(share(TimestepSampler::mode(0.8).unwrap(), [0.0, 0.5]), 0.5);
        let stretched = TimestepSampler::shifted_logit_normal(1.0, 1e-3, 0.1).unwrap();
        assert_eq!(stretched.share(above), None);
    }

    #[test]
    fn the_mode_density_keeps_its_ends_and_its_middle_and_falls() {
        for scale in [-1.0, -0.3, 0.0, 0.8, 1.29, 1.75] {
            let levels: Vec<f64> = (0..=200).map(|i| mode(f64::from(i) / 200.0, scale)).collect();
            near(levels[0], 1.0);
            near(levels[100], 0.5);
            near(levels[200], 0.0);
            assert!(levels.is_sorted_by(|a, b| a >= b), "{scale}");
        }
        // 1 - 1/4 - s (cos²(pi/8) - 3/4)
        near(mode(0.25, 1.0), 0.75 - (0.853_553_39 - 0.75));
    }
}
