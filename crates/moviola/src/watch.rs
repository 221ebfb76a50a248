//! A training run as it is seen: a bar or lines, with what matters of the last step.

use std::cell::Cell;
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
        Watch { voice, steps, meter: None, seconds: 0.0, goal: Goal::default() }
    }

    /// What its speed is measured against, to be said later.
    pub(crate) fn goal(&self) -> Goal {
        self.goal.clone()
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
