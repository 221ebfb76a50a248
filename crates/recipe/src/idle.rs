//! Keys of a recipe that would do nothing where they stand, and sources that nothing can hold.
//!
//! A key that nobody reads is a wish that is not granted, so it is refused with the reason. A value
//! that is the default asks for nothing and passes: a recipe that was printed with every default
//! filled in is a recipe.

use data::store::{AUDIO_LATENTS, LATENTS, MASK, REF_LATENTS, TEXT};
use methods::{Dmd2Config, Unconditional};
use nn::{Tracks, most_similar};
use strategies::{ConditionConfig, ConditionKind, FlexibleConfig, ModalityConfig};
use train::STUDENT;

use crate::schema::{LevelsConfig, MethodConfig, Recipe, SourceConfig};

/// A key that is refused although its type is right.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Idle {
    /// Its dotted name.
    pub(crate) key: String,
    /// What is wrong with it, and what to do.
    pub(crate) reason: String,
}

/// The key, if it is there although `why` nobody reads it.
fn idle(is_there: bool, key: impl Into<String>, why: &str) -> Option<Idle> {
    let key = key.into();
    let reason = format!("`{key}` would do nothing: {why}; remove it");
    is_there.then_some(Idle { key, reason })
}

impl Recipe {
    /// Keys that would do nothing, or that name what is not there: the first of each section.
    pub(crate) fn idle(&self) -> Vec<Idle> {
        let strategy = self.strategy.flexible();
        let all = [
            unknown_source(&strategy),
            self.idle_levels(&strategy),
            self.idle_method(),
            self.idle_negative(),
            self.idle_data(&strategy),
            idle_weight(&strategy),
            idle_condition(&strategy),
            self.idle_average(),
            self.idle_meeting(&strategy),
        ];
        all.into_iter().flatten().collect()
    }

    fn idle_average(&self) -> Option<Idle> {
        let updates = self.method.horizon(STUDENT, self.run.steps);
        let why = format!("the student has {updates} updates, so nothing is averaged");
        let late = |start: u64| start > 0 && start >= updates;
        let any = self.callbacks.averages().iter().any(|(_, own)| late(own.start));
        idle(any, "callbacks.ema.start", &why)
    }

    fn idle_meeting(&self, strategy: &FlexibleConfig) -> Option<Idle> {
        let alone = strategy.modalities().into_iter().count() < 2;
        let why = "the strategy has not both a video and a sound, which would meet";
        idle(self.models.cross_timestep.is_some() && alone, "models.cross_timestep", why)
    }

    fn idle_levels(&self, strategy: &FlexibleConfig) -> Option<Idle> {
        let own = LevelsConfig::default();
        let sounds = strategy.audio.as_ref().is_some_and(|audio| audio.generated);
        let LevelsConfig { video, audio, stratified } = &self.levels;
        let video = *video != own.video;
        match &self.method {
            MethodConfig::Dmd2(_) => idle(
                self.levels != own,
                "levels",
                "method dmd2 scores at levels of its own (method.score_range, method.shift) and \
                 runs the student at method.timesteps",
            ),
            MethodConfig::DiffusionForcing(_) => {
                let why = "method diffusion_forcing draws a level for each chunk of frames by itself \
                           (method.range, method.shift)";
                idle(video, "levels.video", why)
                    .or_else(|| idle(*stratified && !sounds, "levels.stratified", why))
            }
            MethodConfig::Finetune(_) => {
                let why = "the strategy generates no video";
                let generates = strategy.video.as_ref().is_some_and(|own| own.generated);
                // Where there is a sound without levels of its own, these are its.
                let used = generates || sounds && audio.is_none();
                idle(video && !used, "levels.video", why)
            }
        }
        .or_else(|| {
            let why = "the strategy generates no sound";
            idle(audio.is_some() && !sounds, "levels.audio", why)
        })
    }

    fn idle_method(&self) -> Option<Idle> {
        let MethodConfig::Dmd2(config) = &self.method else { return None };
        let Dmd2Config { guidance, unconditional, shift, warp, .. } = config;
        let without = *guidance == 1.0 && *unconditional == Unconditional::Zero;
        let why = "method.guidance is 1, so the teacher predicts nothing unconditionally";
        idle(without, "method.unconditional", why).or_else(|| {
            let why = "method.shift is 1, which moves no timestep";
            idle(*warp && *shift == 1.0, "method.warp", why)
        })
    }

    fn idle_negative(&self) -> Option<Idle> {
        let is_there = self.negative_prompt.is_some();
        let why = match &self.method {
            MethodConfig::Finetune(_) | MethodConfig::DiffusionForcing(_) => {
                format!("method {} has no guidance", self.method.name())
            }
            MethodConfig::Dmd2(config) if config.guidance == 1.0 => {
                "method.guidance is 1, which pushes away from nothing".to_owned()
            }
            MethodConfig::Dmd2(config) if config.unconditional == Unconditional::Zero => {
                "method.unconditional is zero, so zeros stand in its place".to_owned()
            }
            MethodConfig::Dmd2(_) => match &self.data.source {
                SourceConfig::Shapes(_) => {
                    "the shapes world has words of its own for no caption".to_owned()
                }
                SourceConfig::Store(_) | SourceConfig::Mix(_) => return None,
            },
        };
        idle(is_there, "negative_prompt", &why)
    }

    fn idle_data(&self, strategy: &FlexibleConfig) -> Option<Idle> {
        let looks = self.callbacks.validation.is_some();
        let why = "samples are held out for callbacks.validation, which is not there";
        let held_out = idle(self.data.held_out > 0 && !looks, "data.held_out", why);
        let SourceConfig::Shapes(shapes) = &self.data.source else { return held_out };
        held_out
            .or_else(|| {
                let refers = strategy.sources().iter().any(|source| source == REF_LATENTS);
                let why = "the strategy looks at no reference (ref_latents)";
                idle(shapes.recoloured && !refers, "data.source.recoloured", why)
            })
            .or_else(|| {
                let silent = strategy.audio.is_none();
                let why = "the strategy takes no sound (audio_latents)";
                idle(shapes.world.tone.is_some() && silent, "data.source.world.tone", why)
            })
    }
}

/// A share of the loss for what has none.
fn idle_weight(strategy: &FlexibleConfig) -> Option<Idle> {
    strategy.modalities().named().into_iter().find_map(|(name, config)| {
        let why = "what is given, not generated, has no loss";
        let key = format!("strategy.{name}.weight");
        idle(!config.generated && config.weight != 1.0, key, why)
    })
}

/// A condition that is never given.
fn idle_condition(strategy: &FlexibleConfig) -> Option<Idle> {
    strategy.modalities().named().into_iter().find_map(|(name, config)| {
        let never = |condition: &ConditionConfig| condition.probability == 0.0;
        let at = config.conditions.iter().position(never)?;
        let key = format!("strategy.{name}.conditions.{at}");
        idle(true, key, "its probability is 0, so it is never given")
    })
}

/// A source of a name that neither the shapes world nor a dataset of ours ever holds.
fn unknown_source(strategy: &FlexibleConfig) -> Option<Idle> {
    let known = Tracks { video: Some(&[LATENTS, REF_LATENTS][..]), audio: Some(&[AUDIO_LATENTS]) };
    let all = strategy.modalities().zip(known).named();
    all.into_iter().find_map(|(name, (config, known))| wrong_names(name, config, known))
}

fn wrong_names(name: &str, config: &ModalityConfig, latents: &[&str]) -> Option<Idle> {
    let wrong = |key: String, source: &str, known: &[&str]| {
        let is_known = known.contains(&source) || known == [TEXT] && source.starts_with(TEXT);
        let near = most_similar(source, known.iter().copied());
        let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let reason = format!(
            "`{key}` is `{source}`, which no data hold; they hold {}{near}",
            known.join(", ")
        );
        (!is_known).then_some(Idle { key, reason })
    };
    let key = |part: &str| format!("strategy.{name}.{part}");
    wrong(key("source"), &config.source, latents)
        .or_else(|| wrong(key("text"), &config.text, &[TEXT]))
        .or_else(|| {
            config.conditions.iter().find_map(|condition| match &condition.kind {
                ConditionKind::Mask { source } => wrong(key("conditions"), source, &[MASK]),
                ConditionKind::Reference { source } => wrong(key("conditions"), source, latents),
                _ => None,
            })
        })
}
