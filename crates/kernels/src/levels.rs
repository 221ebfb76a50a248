//! Which row of a per-level table belongs to which token, and sums over tokens back into it.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Int, Tensor};

use crate::lanes::update;
use crate::rows::{Cut, Slots, tasks, write};

/// How many rows are added up before their sum joins the total: bounds the rounding error of a sum
/// over many tokens, and is one task of a backward pass.
const RUN: usize = 64;

/// The level of every token of `[B, T, D]` in a table `[B, K, D]`.
#[derive(Clone, Debug)]
pub(crate) struct Levels {
    batch: usize,
    tokens: usize,
    count: usize,
    /// The row of the table `[B * K, D]` for each of the `B * T` tokens; `None` where `K` is 1.
    rows: Option<Arc<[usize]>>,
}

/// Neighbouring rows of one sample that share a level.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Run {
    level: usize,
    rows: Range<usize>,
}

impl Levels {
    /// `index` is `[B, T]` with values below `K`, or absent where `K` is 1.
    ///
    /// # Panics
    /// Panics if the index does not fit the table or the tokens.
    pub(crate) fn new(
        [batch, tokens]: [usize; 2],
        [samples, count]: [usize; 2],
        index: Option<&Tensor<2, Int>>,
    ) -> Levels {
        assert_eq!(batch, samples, "modulation for {samples} samples meets a batch of {batch}");
        let Some(index) = index else {
            assert_eq!(count, 1, "modulation with {count} levels needs an index of its tokens");
            return Levels { batch, tokens, count, rows: None };
        };
        assert_eq!(index.dims(), [batch, tokens], "the index gives every token a level");
        let data = index.clone().into_data();
        let rows = data.iter::<i64>().enumerate().map(|(row, level)| {
            let inside = usize::try_from(level).ok().filter(|level| *level < count);
            let level = inside.unwrap_or_else(|| panic!("level {level} of {count} does not exist"));
            row / tokens * count + level
        });
        Levels { batch, tokens, count, rows: Some(rows.collect()) }
    }

    /// `rows` rows without levels.
    pub(crate) fn none(rows: usize) -> Levels {
        Levels { batch: 1, tokens: rows, count: 1, rows: None }
    }

    /// The row of the table that belongs to a row of the tokens.
    #[inline(always)]
    pub(crate) fn of(&self, row: usize) -> usize {
        match &self.rows {
            Some(rows) => rows[row],
            None => row / self.tokens,
        }
    }

    /// The row of `table` `[B * K, D]` that belongs to a row of the tokens.
    #[inline(always)]
    pub(crate) fn row<'a>(&self, table: &'a [f32], width: usize, row: usize) -> &'a [f32] {
        let level = self.of(row);
        &table[level * width..][..width]
    }

    /// Writes `[B, T, D]` row by row, adding up `partial` values beside it in every [`Run`].
    ///
    /// Runs start at the sample's own tokens 0, 64, 128, … and where the level changes, so a
    /// sample's sums do not depend on the others of its batch.
    pub(crate) fn write(
        &self,
        width: usize,
        partial: usize,
        kernel: impl for<'a> Fn(usize, Slots<'a>, &mut [f32]) -> &'a mut [f32] + Sync,
    ) -> (Vec<f32>, Sums) {
        let length = self.batch * self.tokens * width;
        if partial == 0 {
            let tasks = tasks(self.batch * self.tokens, width);
            return (write(&Cut { length, width, tasks: &tasks }, 0, kernel).0, Sums::default());
        }
        let runs = self.runs();
        let tasks: Vec<_> = runs.iter().map(|run| run.rows.clone()).collect();
        let (values, partials) = write(&Cut { length, width, tasks: &tasks }, partial, kernel);
        (values, Sums { runs, partials, levels: self.batch * self.count })
    }

    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for row in 0..self.batch * self.tokens {
            let level = self.of(row);
            match runs.last_mut() {
                Some(run) if run.level == level && !(row % self.tokens).is_multiple_of(RUN) => {
                    run.rows.end = row + 1;
                }
                _ => runs.push(Run { level, rows: row..row + 1 }),
            }
        }
        runs
    }
}

/// What [`Levels::write`] added up.
#[derive(Default)]
pub(crate) struct Sums {
    runs: Vec<Run>,
    partials: Vec<Vec<f32>>,
    levels: usize,
}

impl Sums {
    /// One of the sums per level: `[B * K, D]`, where `part` says which of the partial values.
    pub(crate) fn per_level(&self, part: Range<usize>) -> Vec<f32> {
        let width = part.len();
        let mut table = vec![0.0; self.levels * width];
        for (run, partial) in self.runs.iter().zip(&self.partials) {
            let row = &mut table[run.level * width..][..width];
            update(row, [&partial[part.clone()]], |sum, [value]| sum + value);
        }
        table
    }

    /// One of the sums over everything: `[D]`.
    pub(crate) fn total(&self, part: Range<usize>) -> Vec<f32> {
        let mut total = vec![0.0; part.len()];
        for partial in &self.partials {
            update(&mut total, [&partial[part.clone()]], |sum, [value]| sum + value);
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::{Levels, Run};

    #[test]
    fn runs_start_anew_at_samples_levels_and_every_64_tokens() {
        let levels = |level: usize, count: usize| std::iter::repeat_n(level, count);
        let rows = levels(0, 100).chain(levels(1, 30)).chain(levels(2, 130)).collect();
        let levels = Levels { batch: 2, tokens: 130, count: 2, rows: Some(rows) };
        let expected = [
            (0, 0..64),
            (0, 64..100),
            (1, 100..128),
            (1, 128..130),
            (2, 130..194),
            (2, 194..258),
            (2, 258..260),
        ];
        assert_eq!(levels.runs(), expected.map(|(level, rows)| Run { level, rows }));
    }
}
