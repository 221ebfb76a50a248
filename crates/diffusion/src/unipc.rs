//! UniPC (Zhao et al. 2023), multistep: each step first corrects the sample that the step before
//! predicted, with what the network says there, and then predicts the next one.
//!
//! Predictor and corrector are one formula: an expansion in the log-SNR around the newest value
//! that was known when the step began. The corrector has one value more, at the end of its step.

use crate::SolverState;
use crate::update::{Blend, Predicts, Scales, weighted};
use burn::tensor::Tensor;

/// What is expanded in the log-SNR.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Expands {
    Clean,
    Epsilon,
}

/// The paper's B(h), by which the differences are weighted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Weighting {
    /// `B(h) = h`.
    Bh1,
    /// `B(h) = exp(h) - 1`.
    Bh2,
}

/// The method: what is expanded, how differences are weighted, and how many values are used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Method {
    pub(crate) expands: Expands,
    pub(crate) weighting: Weighting,
    pub(crate) order: usize,
}

/// A solver with all of its coefficients.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UniPc {
    order: usize,
    steps: Vec<UniStep>,
}

#[derive(Debug, Clone, PartialEq)]
struct UniStep {
    conversion: Blend,
    /// How the sample that this step is given is corrected, by the order of the step before;
    /// none where the corrector is off.
    correctors: Vec<Expansion>,
    /// By order, from 1 to the highest that this step allows.
    predictors: Vec<Expansion>,
}

impl UniPc {
    /// `levels` are the noise levels before every step and after the last one, `highest` is the
    /// highest order that a step allows, `corrects` whether what a step predicts is corrected.
    pub(crate) fn new(
        method: Method,
        predicts: Predicts,
        levels: &[Scales],
        highest: impl Fn(usize) -> usize,
        corrects: impl Fn(usize) -> bool,
    ) -> UniPc {
        let orders = |step: usize| 1..=highest(step).min(step + 1);
        let corrector = |from: usize| {
            let ends = |order| Expansion::new(method, levels, from, Values::AndAtTheEnd(order));
            orders(from).map(ends).collect()
        };
        let steps = (0..levels.len() - 1)
            .map(|step| UniStep {
                conversion: match method.expands {
                    Expands::Clean => predicts.clean(levels[step]),
                    Expands::Epsilon => predicts.epsilon(levels[step]),
                },
                correctors: match step.checked_sub(1).filter(|before| corrects(*before)) {
                    Some(before) => corrector(before),
                    None => Vec::new(),
                },
                predictors: orders(step)
                    .map(|order| Expansion::new(method, levels, step, Values::Before(order)))
                    .collect(),
            })
            .collect();
        UniPc { order: method.order, steps }
    }

    /// The next sample. The state's history holds what earlier steps have expanded, newest
    /// first, and `before` the sample that the last one started from; the order rises as the
    /// history fills.
    pub(crate) fn step(
        &self,
        step: usize,
        state: &mut SolverState,
        sample: Tensor<3>,
        prediction: Tensor<3>,
    ) -> Tensor<3> {
        let UniStep { conversion, correctors, predictors } = &self.steps[step];
        let value = conversion.apply(&sample, &prediction);
        let history = &mut state.history;
        let order = correctors.len().min(history.len());
        let sample = match state.before.take().filter(|_| order > 0) {
            Some(before) => {
                let others = history[1..order].iter().chain([&value]);
                correctors[order - 1].apply(&before, &history[0], others)
            }
            None => sample,
        };
        history.insert(0, value);
        let order = predictors.len().min(history.len());
        let next = predictors[order - 1].apply(&sample, &history[0], history[1..order].iter());
        let is_corrected = self.steps.get(step + 1).is_some_and(|next| !next.correctors.is_empty());
        // Only a corrector looks at all the values that the predictor has used.
        history.truncate(if is_corrected { self.order } else { self.order - 1 });
        state.before = is_corrected.then_some(sample);
        next
    }

    /// The first step that could not be taken.
    pub(crate) fn first_not_finite(&self) -> Option<usize> {
        self.steps.iter().position(|step| {
            let mut expansions = step.correctors.iter().chain(&step.predictors);
            !step.conversion.is_finite() || expansions.any(|e| !e.is_finite())
        })
    }
}

/// Which values an expansion of some order knows.
#[derive(Clone, Copy)]
enum Values {
    /// That at the start of the step and those before it: a predictor.
    Before(usize),
    /// The same, and the one at the end of the step: a corrector.
    AndAtTheEnd(usize),
}

/// The weights of one step of one order.
#[derive(Debug, Clone, PartialEq)]
struct Expansion {
    /// Of the sample at the start of the step.
    sample: f32,
    /// Of the value there.
    value: f32,
    /// Of how far the other values are from it: those before it, newest first, then the one at
    /// the end of the step.
    differences: Vec<f32>,
}

impl Expansion {
    /// The step `from` one of the `levels` to the next. In f64, because the differences of
    /// exponentials in it cancel where steps are short.
    fn new(method: Method, levels: &[Scales], from: usize, values: Values) -> Expansion {
        let level = |level: usize| {
            let Scales { alpha, sigma } = levels[level];
            (f64::from(alpha), f64::from(sigma))
        };
        let lambda = |at: usize| libm::log(level(at).0) - libm::log(level(at).1);
        let ((start_alpha, start_sigma), (end_alpha, end_sigma)) = (level(from), level(from + 1));
        let length = lambda(from + 1) - lambda(from);
        // Where the other values are, in lengths of this step.
        let place = |at: usize| (lambda(at) - lambda(from)) / length;
        let places: Vec<f64> = match values {
            Values::Before(order) => (1..order).map(|age| place(from - age)).collect(),
            Values::AndAtTheEnd(order) => {
                (1..order).map(|age| place(from - age)).chain([1.0]).collect()
            }
        };
        let (signed, sample, scale) = match method.expands {
            Expands::Clean => (-length, end_sigma / start_sigma, end_alpha),
            Expands::Epsilon => (length, end_alpha / start_alpha, end_sigma),
        };
        let growth = libm::expm1(signed);
        let weight = match method.weighting {
            Weighting::Bh1 => signed,
            Weighting::Bh2 => growth,
        };
        let shares = shares(&places, signed, weight);
        let difference = |(share, place)| (-scale * weight * share / place) as f32;
        Expansion {
            sample: sample as f32,
            value: (-scale * growth) as f32,
            differences: shares.iter().zip(&places).map(difference).collect(),
        }
    }

    fn apply<'a>(
        &self,
        sample: &Tensor<3>,
        value: &Tensor<3>,
        others: impl Iterator<Item = &'a Tensor<3>>,
    ) -> Tensor<3> {
        let differences: Vec<_> = others.map(|other| other.clone() - value.clone()).collect();
        let mut terms = vec![(self.sample, sample), (self.value, value)];
        terms.extend(self.differences.iter().copied().zip(&differences));
        weighted(&terms)
    }

    fn is_finite(&self) -> bool {
        let numbers = [self.sample, self.value];
        numbers.iter().chain(&self.differences).all(|number| number.is_finite())
    }
}

/// How much each difference counts, so that the expansion is exact for polynomials: the rho of
/// the paper, or its short cut where there is only one.
fn shares(places: &[f64], signed: f64, weight: f64) -> Vec<f64> {
    if places.len() < 2 {
        return vec![0.5; places.len()];
    }
    let mut integral = libm::expm1(signed) / signed - 1.0;
    let mut factorial = 1.0;
    let mut powers = vec![1.0; places.len()];
    let mut rows = Vec::new();
    for row in 0..places.len() {
        rows.push(powers.iter().copied().chain([integral * factorial / weight]).collect());
        powers.iter_mut().zip(places).for_each(|(power, place)| *power *= place);
        factorial *= (row + 2) as f64;
        integral = integral / signed - 1.0 / factorial;
    }
    solve(rows)
}

/// Solves a small linear system, each of whose rows ends with its right-hand side.
fn solve(mut rows: Vec<Vec<f64>>) -> Vec<f64> {
    let size = rows.len();
    for column in 0..size {
        let largest = |row: &usize| rows[*row][column].abs();
        let pivot = (column..size).max_by(|a, b| largest(a).total_cmp(&largest(b)));
        rows.swap(column, pivot.unwrap_or(column));
        let scale = rows[column][column];
        rows[column].iter_mut().for_each(|element| *element /= scale);
        let pivot = rows[column].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(row, _)| *row != column) {
            let factor = row[column];
            row.iter_mut().zip(&pivot).for_each(|(element, pivot)| *element -= factor * pivot);
        }
    }
    rows.iter().map(|row| row[size]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_whose_first_pivot_is_zero_is_solved() {
        let rows =
            vec![vec![0.0, 2.0, 1.0, 7.0], vec![1.0, -1.0, 3.0, 8.0], vec![2.0, 4.0, -1.0, 7.0]];
        let found = solve(rows);
        for (found, want) in found.iter().zip([1.0, 2.0, 3.0]) {
            assert!((found - want).abs() < 1e-12, "{found}, not {want}");
        }
    }
}
