//! A training run as it is seen: a bar or lines, with what matters of the last step.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use train::{Callback, Event, Method, Outcome, StepReport};

use crate::voice::{Meter, Voice};

/// How much of the shown speed is from before the last step.
const INERTIA: f64 = 0.9;

/// Shows the steps of a run.
pub(crate) struct Watch {
    voice: Voice,
    steps: u64,
    meter: Option<Meter>,
    seconds: f64,
    goal: Goal,
    spikes: Spikes,
}

/// Tokens per second at the machine's peak, known once the run is built.
#[derive(Clone, Default)]
pub(crate) struct Goal(Rc<Cell<f64>>);

impl Goal {
    /// Says what it is.
    pub(crate) fn set(&self, tokens_per_second: f64) {
        self.0.set(tokens_per_second);
    }
}

impl Watch {
    /// A run of so many steps.
    pub(crate) fn new(steps: u64, voice: Voice) -> Watch {
        Watch {
            voice,
            steps,
            meter: None,
            seconds: 0.0,
            goal: Goal::default(),
            spikes: Spikes::default(),
        }
    }

    /// The same, whose speed is measured against what is said later.
    pub(crate) fn with_goal(self, goal: Goal) -> Watch {
        Watch { goal, ..self }
    }

    fn line(&mut self, report: &StepReport) -> String {
        self.seconds = match self.seconds {
            0.0 => report.seconds,
            before => INERTIA * before + (1.0 - INERTIA) * report.seconds,
        };
        let mut parts: Vec<String> =
            report.losses.iter().map(|(name, loss)| format!("{name} {loss:.4}")).collect();
        for role in &report.roles {
            let note = match role.outcome {
                Outcome::Updated => String::new(),
                Outcome::LossNotFinite | Outcome::GradientNotFinite => " skipped".to_owned(),
            };
            parts.push(format!("lr {:.1e} norm {:.2}{note}", role.rate, role.gradient_norm));
        }
        let per_second = |count: u64| count as f64 / self.seconds.max(1e-9);
        parts.push(format!("{:.0} samples/s", per_second(report.samples)));
        let tokens = per_second(report.tokens);
        parts.push(format!("{tokens:.0} tokens/s"));
        let goal = self.goal.0.get();
        if goal > 0.0 {
            parts.push(format!("{:.0} % of peak", 100.0 * tokens / goal));
        }
        parts.join("  ")
    }
}

impl Callback for Watch {
    fn name(&self) -> &str {
        "watch"
    }

    fn on(&mut self, event: &Event<'_>, _: &dyn Method) -> train::Result<()> {
        match event {
            Event::Started { step } => {
                let mut meter = self.voice.meter("train", self.steps);
                meter.resume_after(*step);
                self.meter = Some(meter);
            }
            Event::Stepped { report } => {
                if let Some(note) = self.spikes.note(report) {
                    self.voice.warn(&note);
                }
                let line = self.line(report);
                if let Some(meter) = &mut self.meter {
                    meter.reach(report.step, &line);
                }
            }
            Event::Finished { .. } => {
                self.meter.take().map(Meter::finish);
            }
            Event::Updated { .. } | Event::Saved { .. } | Event::Resting { .. } => {}
        }
        Ok(())
    }
}

/// A loss so many times its running mean is told.
const SPIKE: f64 = 10.0;

/// How much of the running mean is from before the last step, once it knows a few.
const MEMORY: f64 = 0.98;

/// At least so many steps lie between two notes: a run that goes wrong says so, but not at every step.
const QUIET: u64 = 100;

/// Notices losses that leap, and updates that had to be skipped.
#[derive(Default)]
struct Spikes {
    /// The running mean of each loss, and over how many steps it is.
    means: BTreeMap<String, (f64, u64)>,
    told: Option<u64>,
}

impl Spikes {
    /// What is to be said of a step, if anything.
    fn note(&mut self, report: &StepReport) -> Option<String> {
        let mut note = None;
        for (name, loss) in &report.losses {
            let (mean, steps) = self.means.entry(name.clone()).or_insert((*loss, 0));
            if *steps >= 10 && *loss > SPIKE * *mean {
                let times = loss / *mean;
                note = Some(format!("{name} is {loss:.4}, {times:.0} times its mean so far"));
            }
            if loss.is_finite() {
                let kept = MEMORY.min(*steps as f64 / (*steps + 1) as f64);
                (*mean, *steps) = (kept * *mean + (1.0 - kept) * loss, *steps + 1);
            }
        }
        for role in &report.roles {
            let what = match role.outcome {
                Outcome::Updated => continue,
                Outcome::LossNotFinite => "its loss",
                Outcome::GradientNotFinite => "a gradient",
            };
            let (role, skipped) = (role.role, role.skipped);
            note = Some(format!(
                "the update of the {role} was skipped, because {what} is not finite ({skipped} so far)"
            ));
        }
        let note = note.filter(|_| self.told.is_none_or(|told| report.step >= told + QUIET))?;
        self.told = Some(report.step);
        Some(format!("step {}: {note}", report.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(step: u64, loss: f64) -> StepReport {
        StepReport {
            step,
            losses: [("loss".to_owned(), loss)].into(),
            buckets: Vec::new(),
            roles: Vec::new(),
            samples: 1,
            tokens: 1,
            seconds: 1.0,
        }
    }

    #[test]
    fn a_leap_is_told_once_and_a_slow_rise_is_not() {
        let mut spikes = Spikes::default();
        for step in 1..50 {
            assert_eq!(spikes.note(&report(step, 1.0 + step as f64 / 50.0)), None);
        }
        let note = spikes.note(&report(50, 30.0)).unwrap_or_default();
        assert!(note.contains("step 50: loss is 30") && note.contains("times its mean"), "{note}");
        assert_eq!(spikes.note(&report(51, 3000.0)), None);
        assert!(spikes.note(&report(150, 3000.0)).is_some());
    }
}
