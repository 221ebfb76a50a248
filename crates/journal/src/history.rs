//! A run as its log tells it.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::Result;
use crate::metrics::{self, Line, Scalars, Step};
use crate::page::Series;

/// What was written about a run, in order of steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// The steps.
    pub steps: Vec<Step>,
    /// What others recorded.
    pub records: Vec<Scalars>,
}

/// Reads the log of the run in this folder, which may be under way.
///
/// # Errors
/// There is no log, or it is damaged other than at its end.
pub fn history(run: impl AsRef<Path>) -> Result<History> {
    let mut found = History::default();
    metrics::scan(&run.as_ref().join(metrics::FILE), |line, _| match line {
        Line::Step(step) => found.steps.push(step),
        Line::Scalars(record) => found.records.push(record),
    })?;
    Ok(found)
}

impl History {
    /// Every loss by its name.
    pub fn losses(&self) -> Vec<Series> {
        self.below("loss/")
    }

    /// Every loss by noise level, named like `video/0.25-0.50`.
    pub fn losses_by_level(&self) -> Vec<Series> {
        self.below("loss_by_level/")
    }

    /// The learning rate of every role.
    pub fn rates(&self) -> Vec<Series> {
        self.below("rate/")
    }

    /// The norm of every role's gradients, before clipping.
    pub fn gradient_norms(&self) -> Vec<Series> {
        self.below("gradient_norm/")
    }

    /// `samples_per_second`, `tokens_per_second` and, where it is known, `share_of_peak`.
    pub fn speeds(&self) -> Vec<Series> {
        self.below("speed/")
    }

    /// What others recorded, by its whole name.
    pub fn recorded(&self) -> Vec<Series> {
        let each = |record: &Scalars| {
            let step = record.step;
            let named = record.scalars.iter();
            named.map(move |(name, value)| (name.clone(), step, *value)).collect::<Vec<_>>()
        };
        gathered(self.records.iter().flat_map(each))
    }

    /// The curves of the steps whose names begin so, without that beginning.
    fn below(&self, prefix: &str) -> Vec<Series> {
        let each = |step: &Step| {
            let own = step.scalars().into_iter().filter_map(|(name, value)| {
                Some((name.strip_prefix(prefix)?.to_owned(), step.step, value))
            });
            own.collect::<Vec<_>>()
        };
        gathered(self.steps.iter().flat_map(each))
    }
}

/// Numbers in order of steps as one curve for each name.
fn gathered(numbers: impl Iterator<Item = (String, u64, f64)>) -> Vec<Series> {
    let mut curves: BTreeMap<String, Vec<(u64, f64)>> = BTreeMap::new();
    for (name, step, value) in numbers {
        curves.entry(name).or_default().push((step, value));
    }
    curves.into_iter().map(|(name, points)| Series { name, points }).collect()
}
