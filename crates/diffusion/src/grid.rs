//! Evenly spaced numbers and timesteps, rounded where diffusers rounds them.

use crate::{Error, Result};
use nn::ConfigReader;

/// `count` numbers from `start` to `stop`, both included, with NumPy's arithmetic.
pub(crate) fn linspace(start: f64, stop: f64, count: usize) -> Vec<f64> {
    let gaps = count.saturating_sub(1);
    let step = (stop - start) / gaps.max(1) as f64;
    (0..count).map(|i| if i > 0 && i == gaps { stop } else { i as f64 * step + start }).collect()
}

/// How inference timesteps are spread over the trained ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Spacing {
    Linspace,
    Leading,
    Trailing,
}

/// The names of the spacings; the default of the multistep solvers comes first.
pub(crate) const MULTISTEP_SPACINGS: [(&str, Spacing); 3] = [
    ("linspace", Spacing::Linspace),
    ("leading", Spacing::Leading),
    ("trailing", Spacing::Trailing),
];

/// A spacing and the offset it is moved by (which only `leading` uses).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Grid {
    spacing: Spacing,
    offset: i64,
    trained: usize,
}

impl Grid {
    /// Reads `timestep_spacing` (the first of `spacings` is the default) and `steps_offset`.
    pub(crate) fn read(
        options: &mut ConfigReader,
        trained: usize,
        spacings: &[(&str, Spacing); 3],
    ) -> Result<Grid> {
        let spacing = options.choice("timestep_spacing", spacings)?;
        let offset = options.count("steps_offset", 0, 0..=trained)? as i64;
        Ok(Grid { spacing, offset, trained })
    }

    /// Falling timesteps of a one-step solver, the last of which may be 0.
    pub(crate) fn timesteps(&self, steps: usize, class: &'static str) -> Result<Vec<i64>> {
        check_steps(steps, self.trained, class)?;
        let timesteps: Vec<i64> = match self.spacing {
            Spacing::Linspace => {
                let grid = linspace(0.0, (self.trained - 1) as f64, steps);
                grid.into_iter().rev().map(rounded).collect()
            }
            Spacing::Leading => self.leading(self.trained / steps, (0..steps).rev()),
            Spacing::Trailing => self.trailing(self.trained, steps),
        };
        match timesteps.iter().find(|timestep| **timestep >= self.trained as i64) {
            None => Ok(timesteps),
            Some(&timestep) => Err(Error::Timestep { class, timestep, trained: self.trained }),
        }
    }

    /// Falling timesteps of a multistep solver: it cuts below `last` and leaves out timestep 0,
    /// which its final noise level stands for.
    ///
    /// `trailing` keeps its stride when `last` is lower than the trained length, so it may
    /// return fewer than `steps`.
    pub(crate) fn timesteps_below(
        &self,
        last: usize,
        steps: usize,
        class: &'static str,
    ) -> Result<Vec<i64>> {
        let limit = match self.spacing {
            Spacing::Linspace | Spacing::Leading => last.saturating_sub(1),
            Spacing::Trailing => last,
        };
        check_steps(steps, limit, class)?;
        Ok(match self.spacing {
            Spacing::Linspace => {
                let grid = linspace(0.0, (last - 1) as f64, steps + 1);
                grid.into_iter().skip(1).rev().map(rounded).collect()
            }
            Spacing::Leading => self.leading(last / (steps + 1), (1..=steps).rev()),
            Spacing::Trailing => self.trailing(last, steps),
        })
    }

    fn leading(&self, stride: usize, indices: impl Iterator<Item = usize>) -> Vec<i64> {
        indices.map(|i| (i * stride) as i64 + self.offset).collect()
    }

    /// Counts down from `last` by an uneven stride, as NumPy's `arange` does.
    ///
    /// Where rounding makes `arange` one element too long, diffusers ends at timestep -1
    /// (1000 timesteps in 61 steps, for one); we end at the step before.
    fn trailing(&self, last: usize, steps: usize) -> Vec<i64> {
        let start = last as f64;
        let stride = (start - self.trained as f64 / steps as f64) - start;
        (0..=steps)
            .map(|i| start + i as f64 * stride)
            .map(|timestep| rounded(timestep) - 1)
            .take_while(|timestep| *timestep >= 0)
            .collect()
    }
}

/// Refuses no steps and more than `limit`.
pub(crate) fn check_steps(steps: usize, limit: usize, class: &'static str) -> Result<()> {
    match (1..=limit).contains(&steps) {
        true => Ok(()),
        false => Err(Error::Steps { class, steps, limit }),
    }
}

fn rounded(timestep: f64) -> i64 {
    timestep.round_ties_even() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(spacing: Spacing) -> Grid {
        Grid { spacing, offset: 0, trained: 1000 }
    }

    #[test]
    fn linspace_ends_where_it_is_told() {
        assert_eq!(linspace(1.0, 0.1, 1), [1.0]);
        assert_eq!(linspace(0.0, 0.3, 4)[3], 0.3);
        assert!(linspace(0.0, 1.0, 0).is_empty());
    }

    #[test]
    fn every_spacing_gives_the_steps_it_is_asked_for_and_falls() {
        for spacing in [Spacing::Linspace, Spacing::Leading, Spacing::Trailing] {
            for steps in 1..=1000 {
                let timesteps = grid(spacing).timesteps(steps, "test").unwrap();
                assert_eq!(timesteps.len(), steps, "{spacing:?}");
                assert!(timesteps.is_sorted_by(|a, b| a > b), "{spacing:?} {steps}");
                assert!(timesteps.iter().all(|t| (0..1000).contains(t)), "{spacing:?} {steps}");
            }
        }
    }

    #[test]
    fn an_offset_past_the_trained_timesteps_is_refused() {
        let grid = Grid { offset: 1, ..grid(Spacing::Leading) };
        let message = grid.timesteps(1000, "test").unwrap_err().to_string();
        assert!(message.contains("timestep 1000") && message.contains("steps_offset"), "{message}");
    }
}
