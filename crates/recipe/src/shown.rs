//! What a strategy shows a model beside prompts, in the words of requests.

use families::Condition;
use strategies::{ConditionKind, StrategyConfig};

/// Strategies as conditions of requests.
pub(crate) trait Shown {
    /// What a model that was trained so may be given.
    fn shown(&self) -> Vec<Condition>;
}

impl Shown for StrategyConfig {
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
