//! What a step brought: losses, rates, norms, speed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::method::{LossReport, MethodReport};

/// Upper bounds of the noise levels that losses are shown by.
pub const BUCKETS: [f32; 4] = [0.25, 0.5, 0.75, 1.0];

/// One step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StepReport {
    /// The step, from 1.
    pub step: u64,
    /// The mean of every loss over all samples of the step, of all micro-batches and ranks.
    pub losses: BTreeMap<String, f64>,
    /// The mean of every loss by noise level.
    pub buckets: Vec<BucketReport>,
    /// The roles that were due for an update.
    pub roles: Vec<RoleReport>,
    /// Samples.
    pub samples: u64,
    /// Tokens that went through a backward pass.
    pub tokens: u64,
    /// How long it took.
    pub seconds: f64,
}

/// The mean loss of the samples within a range of noise levels.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BucketReport {
    /// Which loss.
    pub loss: String,
    /// From this level on.
    pub from: f32,
    /// Up to this level.
    pub to: f32,
    /// The mean.
    pub mean: f64,
    /// Over so many samples.
    pub samples: u64,
}

/// The update of one role.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoleReport {
    /// The role.
    pub role: &'static str,
    /// Its learning rate.
    pub rate: f64,
    /// The norm of its gradients before clipping.
    pub gradient_norm: f64,
    /// What they were multiplied by: 1 unless they were clipped.
    pub clip: f64,
    /// What became of the update.
    pub outcome: Outcome,
    /// How many of its updates were skipped so far.
    pub skipped: u64,
}

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was made.
    Updated,
    /// A loss of this role was not finite.
    LossNotFinite,
    /// A gradient of this role was not finite.
    GradientNotFinite,
}

impl StepReport {
    /// Samples per second.
    pub fn samples_per_second(&self) -> f64 {
        self.samples as f64 / self.seconds.max(1e-9)
    }

    /// Tokens per second.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds.max(1e-9)
    }
}

/// Adds up the reports of micro-batches, as numbers that can be added up over ranks too.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    losses: BTreeMap<String, Sums>,
    pub(crate) samples: u64,
    pub(crate) tokens: u64,
}

#[derive(Debug, Default, Clone)]
struct Sums {
    role: String,
    total: f64,
    count: f64,
    buckets: [[f64; 2]; BUCKETS.len()],
}

impl Tally {
    pub(crate) fn add(&mut self, report: &MethodReport, samples: usize) {
        self.samples += samples as u64;
        self.tokens += report.tokens;
        for loss in &report.losses {
            self.losses.entry(loss.name.to_owned()).or_default().add(loss);
        }
    }

    /// Which losses there are, and whose: a line each.
    pub(crate) fn kinds(&self) -> String {
        self.losses.iter().map(|(name, sums)| format!("{}\t{name}\n", sums.role)).collect()
    }

    /// Makes room for what other ranks have: whether a track has a loss may depend on the samples.
    pub(crate) fn expect(&mut self, kinds: &str) {
        for (role, name) in kinds.lines().filter_map(|line| line.split_once('\t')) {
            let fresh = || Sums { role: role.to_owned(), ..Sums::default() };
            self.losses.entry(name.to_owned()).or_insert_with(fresh);
        }
    }

    /// Everything as a row of numbers, in an order that all ranks share.
    pub(crate) fn numbers(&self) -> Vec<f64> {
        let mut numbers = vec![self.samples as f64, self.tokens as f64];
        for sums in self.losses.values() {
            numbers.extend([sums.total, sums.count]);
            numbers.extend(sums.buckets.iter().flatten());
        }
        numbers
    }

    /// Takes the row back.
    pub(crate) fn set_numbers(&mut self, numbers: &[f64]) {
        (self.samples, self.tokens) = (numbers[0] as u64, numbers[1] as u64);
        let wide = 2 + 2 * BUCKETS.len();
        for (sums, row) in self.losses.values_mut().zip(numbers[2..].chunks(wide)) {
            (sums.total, sums.count) = (row[0], row[1]);
            for (bucket, pair) in sums.buckets.iter_mut().zip(row[2..].chunks(2)) {
                *bucket = [pair[0], pair[1]];
            }
        }
    }

    /// Whether all losses of a role are finite.
    pub(crate) fn is_finite(&self, role: &str) -> bool {
        self.losses.values().filter(|sums| sums.role == role).all(|sums| sums.total.is_finite())
    }

    pub(crate) fn means(&self) -> BTreeMap<String, f64> {
        let mean = |(name, sums): (&String, &Sums)| (name.clone(), sums.total / sums.count);
        self.losses.iter().map(mean).collect()
    }

    pub(crate) fn buckets(&self) -> Vec<BucketReport> {
        let mut found = Vec::new();
        for (name, sums) in &self.losses {
            for (index, [total, count]) in sums.buckets.iter().enumerate() {
                if *count > 0.0 {
                    let from = if index == 0 { 0.0 } else { BUCKETS[index - 1] };
                    let (loss, mean) = (name.clone(), total / count);
                    let (to, samples) = (BUCKETS[index], *count as u64);
                    found.push(BucketReport { loss, from, to, mean, samples });
                }
            }
        }
        found
    }
}

impl Sums {
    fn add(&mut self, loss: &LossReport) {
        loss.role.clone_into(&mut self.role);
        for (sample, value) in loss.values.iter().enumerate() {
            self.total += f64::from(*value);
            self.count += 1.0;
            let Some(sigmas) = &loss.sigmas else { continue };
            // A level on a bound belongs to the range above it, but the last range is closed.
            let passed = BUCKETS.iter().filter(|bound| sigmas[sample] >= **bound).count();
            let bucket = &mut self.buckets[passed.min(BUCKETS.len() - 1)];
            bucket[0] += f64::from(*value);
            bucket[1] += 1.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_fall_into_the_range_of_their_own_level() {
        let loss = |name, values: &[f32], sigmas: &[f32]| LossReport {
            role: "student",
            name,
            values: values.to_vec(),
            sigmas: Some(sigmas.to_vec()),
        };
        let losses = vec![
            loss("video", &[1.0, 3.0, 5.0, 7.0], &[0.0, 0.25, 0.3, 1.0]),
            loss("audio", &[2.0, 2.0, 2.0, 8.0], &[0.9, 0.9, 0.8, 0.1]),
        ];
        let mut tally = Tally::default();
        tally.add(&MethodReport { losses, tokens: 12 }, 4);
        let row = tally.numbers();
        tally.set_numbers(&row);
        // A rank whose samples have no sound makes room for those that have.
        let mut other = Tally::default();
        other.expect(&tally.kinds());
        assert_eq!((other.kinds(), other.numbers().len()), (tally.kinds(), row.len()));
        let found: Vec<_> = tally
            .buckets()
            .into_iter()
            .map(|bucket| (bucket.loss, bucket.from, bucket.mean, bucket.samples))
            .collect();
        let video = |from, mean, samples| ("video".to_owned(), from, mean, samples);
        let audio = |from, mean, samples| ("audio".to_owned(), from, mean, samples);
        let want = [
            audio(0.0, 8.0, 1),
            audio(0.75, 2.0, 3),
            video(0.0, 1.0, 1),
            video(0.25, 4.0, 2),
            video(0.75, 7.0, 1),
        ];
        assert_eq!(found, want);
        assert_eq!(tally.means()["video"], 4.0);
        assert!(tally.is_finite("student"));
        tally.add(&MethodReport { losses: vec![loss("audio", &[f32::NAN], &[0.5])], tokens: 0 }, 1);
        assert!(!tally.is_finite("student") && tally.is_finite("critic"));
    }
}
