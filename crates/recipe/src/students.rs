//! The networks that are wanted in the end: one, or two experts that take turns.

use burn::tensor::Device;
use folder::Hub;
use methods::{EXPERTS, Turns};
use strategies::Flexible;
use train::{Averaged, Callback, Ema, EmaConfig, STUDENT};

use crate::error::{Error, Result};
use crate::model::Model;
use crate::schema::{ExpertConfig, Recipe, TrainedConfig};

/// The least share of steps that an expert is worth: below is rounding.
const LEAST: f64 = 1e-5;

/// A student with its role and what it learns.
pub(crate) struct Learner {
    pub(crate) role: &'static str,
    pub(crate) model: Model,
    pub(crate) strategy: Flexible,
    /// How often it is updated.
    pub(crate) updates: u64,
}

impl TrainedConfig {
    /// The roles of a student, each with the expert that it is if its folder has two.
    pub(crate) fn students(&self) -> Vec<(&'static str, Option<ExpertConfig>)> {
        match self.expert {
            Some(ExpertConfig::Both) => {
                let both = [ExpertConfig::High, ExpertConfig::Low];
                EXPERTS.into_iter().zip(both.map(Some)).collect()
            }
            one => vec![(STUDENT, one)],
        }
    }
}

impl Recipe {
    /// Whose turn each step is, where two experts learn.
    ///
    /// # Errors
    /// One of them has no levels to learn at, or no step.
    pub(crate) fn turns(&self, student: &Model) -> Result<Option<Turns>> {
        if self.models.student.expert != Some(ExpertConfig::Both) {
            return Ok(None);
        }
        let refuse =
            |reason: String| Err(Error::Recipe(format!("models.student.expert: {reason}")));
        let [boundary, _] = student.description.expert_levels(0);
        let high = self.levels.video.sampler()?.share([boundary, 1.0]);
        let Some(high) = high.filter(|high| (LEAST..=1.0 - LEAST).contains(high)) else {
            return refuse(format!(
                "levels.video has nothing on one side of the boundary at {boundary:.3}, so only one of two \
                 experts could learn; choose `high` or `low`, or other levels"
            ));
        };
        let (turns, steps) = (Turns::new(self.run.seed, high), self.run.steps);
        match ["high", "low"].into_iter().enumerate().find(|(at, _)| turns.of(*at, steps) == 0) {
            None => Ok(Some(turns)),
            Some((at, name)) => {
                let share = [high, 1.0 - high][at] * 100.0;
                refuse(format!(
                    "none of {steps} steps is the {name} expert's, which has {share:.1} % of levels.video; \
                     raise loop.steps, or choose one expert"
                ))
            }
        }
    }

    /// The students, opened, with what each of them learns.
    ///
    /// # Errors
    /// One cannot be opened, or a setting does not suit how often it is updated.
    pub(crate) fn learners(
        &self,
        device: &Device,
        hub: &Hub,
    ) -> Result<(Vec<Learner>, Option<Turns>)> {
        let config = &self.models.student;
        let mut models = Vec::new();
        for (role, expert) in config.students() {
            models.push((role, self.model(STUDENT, (config, expert), device, hub)?));
        }
        let turns = self.turns(&models[0].1)?;
        let mut learners = Vec::new();
        for (at, (role, model)) in models.into_iter().enumerate() {
            let all = self.method.horizon(STUDENT, self.run.steps);
            let updates = turns.map_or(all, |turns| turns.of(at, self.run.steps));
            self.learning_rate(STUDENT, config, updates)?;
            let late = |own: &EmaConfig| own.start > 0 && own.start >= updates;
            if self.callbacks.averages().iter().any(|(_, own)| late(own)) {
                return Err(Error::Recipe(format!(
                    "callbacks.ema.start: the {role} has {updates} updates, so nothing is averaged; lower it"
                )));
            }
            self.begins(role, &config.learns, &model)?;
            let strategy = self.strategy(&model)?;
            learners.push(Learner { role, model, strategy, updates });
        }
        Ok((learners, turns))
    }

    /// Running averages of a role, and a handle on the first of them.
    pub(crate) fn averages_of(
        &self,
        role: &'static str,
        callbacks: &mut Vec<Box<dyn Callback>>,
    ) -> Result<Option<Averaged>> {
        let mut first = None;
        for (name, config) in self.callbacks.averages() {
            let name = average_name(&name, role);
            let (ema, handle) = Ema::new(name, role, config)?;
            callbacks.push(Box::new(ema));
            first.get_or_insert(handle);
        }
        Ok(first)
    }
}

/// What a checkpoint calls the average of a role: two callbacks cannot share a name.
pub(crate) fn average_name(name: &str, role: &str) -> String {
    match role.strip_prefix(STUDENT).filter(|rest| !rest.is_empty()) {
        None => name.to_owned(),
        Some(expert) => format!("{name}{expert}"),
    }
}
