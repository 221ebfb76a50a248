//! What a run makes of its student, in the words of requests: how it is sampled, what it is shown.

use std::collections::BTreeMap;

use families::{Condition, Record, SampledBy};
use strategies::{ConditionKind, StrategyConfig};

use crate::model::Model;
use crate::schema::Recipe;

impl Recipe {
    /// What an exported student says of itself, and how it is looked at along the way; `facts` are what
    /// its strategy says of the data.
    pub(crate) fn record(&self, student: &Model, facts: &BTreeMap<String, String>) -> Record {
        let conditions = self.strategy.shown();
        let scale = facts.get("reference_spatial_scale_factor");
        let scale = scale.and_then(|scale| scale.parse().ok()).unwrap_or(1);
        let refers = conditions.contains(&Condition::Reference);
        let timesteps = self.method.student_timesteps(&student.description.process);
        let own = Record {
            sampled: Some(timesteps.map_or(SampledBy::Scheduler, SampledBy::Renoise)),
            conditions,
            reference_scale: refers.then_some(scale),
            cross_levels: student.description.cross_levels().filter(|_| self.strategy.meets()),
        };
        student.record.clone().trained_on(own)
    }
}

/// Strategies as conditions of requests.
trait Shown {
    /// What a model that was trained so may be given.
    fn shown(&self) -> Vec<Condition>;

    /// Whether a video and its sound take part.
    fn meets(&self) -> bool;
}

impl Shown for StrategyConfig {
    fn meets(&self) -> bool {
        self.flexible().modalities().into_iter().count() == 2
    }

    fn shown(&self) -> Vec<Condition> {
        let config = self.flexible();
        let mut all = Vec::new();
        if config.video.as_ref().is_some_and(|video| !video.generated) {
            all.push(Condition::Video);
        }
        for condition in config.video.iter().flat_map(|video| &video.conditions) {
            all.extend_from_slice(match condition.kind {
                ConditionKind::FirstFrame {} => &[Condition::Image, Condition::VideoPrefix][..],
                ConditionKind::Prefix { .. } => &[Condition::VideoPrefix],
                ConditionKind::Suffix { .. } => &[Condition::LastImage],
                ConditionKind::Keyframes { .. } => &[Condition::Keyframe],
                ConditionKind::Rectangle { .. } | ConditionKind::Mask { .. } => {
                    &[Condition::Video, Condition::Mask]
                }
                ConditionKind::Reference { .. } => &[Condition::Reference],
            });
        }
        if config.audio.is_some_and(|audio| !audio.generated) {
            all.push(Condition::Audio);
        }
        all.sort();
        all.dedup();
        all
    }
}
