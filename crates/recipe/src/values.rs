//! Values that cannot be, found by the checks of whoever uses them, before any model is opened.
//!
//! Every section is checked by itself, so that all complaints come at once. Each names the recipe's own key.

use diffusion::TimestepSampler;
use train::{Decay, Ema, Error, LearningRateSchedule, LoopConfig, LoraConfig, STUDENT};

use crate::error;
use crate::idle::Idle;
use crate::schema::{
    AveragesConfig, LearnsConfig, MethodConfig, Recipe, RecomputeConfig, SourceConfig,
    TrainedConfig,
};

/// What a check says, as a complaint about a key below `section`.
fn complaint(section: &str, checked: train::Result<()>) -> Option<Idle> {
    match checked {
        Err(Error::Setting { key, value, want }) => {
            Some(wrong(format!("{section}{key}"), &value, &want))
        }
        Err(other) => {
            let key = section.trim_end_matches('.').to_owned();
            Some(Idle { reason: format!("`{key}`: {other}"), key })
        }
        Ok(()) => None,
    }
}

fn wrong(key: String, value: &str, want: &str) -> Idle {
    Idle { reason: format!("`{key}` is {value}, but {want}"), key }
}

/// The key, if its value is not what is wanted.
fn unless(is_right: bool, key: &str, value: impl ToString, want: &str) -> Option<Idle> {
    (!is_right).then(|| wrong(key.to_owned(), &value.to_string(), want))
}

impl Recipe {
    /// Everything of a value that cannot be.
    pub(crate) fn wrong_values(&self) -> Vec<Idle> {
        let critic = self.models.critic.as_ref().map(|critic| self.wrong_role("critic", critic));
        let all = self.wrong_loop().into_iter();
        all.chain(self.wrong_role(STUDENT, &self.models.student))
            .chain(critic.into_iter().flatten())
            .chain(self.wrong_method())
            .chain(self.wrong_strategy())
            .chain(self.wrong_data())
            .chain(self.wrong_callbacks())
            .collect()
    }

    fn wrong_loop(&self) -> Vec<Idle> {
        let LoopConfig { steps, accumulation, clip, .. } = self.run;
        let right = LoopConfig { steps: 1, accumulation: 1, clip: None, ..self.run };
        let each = [
            LoopConfig { steps, ..right },
            LoopConfig { accumulation, ..right },
            LoopConfig { clip, ..right },
        ];
        each.iter().filter_map(|own| complaint("", own.check())).collect()
    }

    fn wrong_role(&self, role: &str, config: &TrainedConfig) -> Vec<Idle> {
        let section = format!("models.{role}.");
        let updates = self.method.horizon(role, self.run.steps);
        let rate = &config.rate;
        let schedule = |peak: f64, warmup: u64, decay: Decay| {
            LearningRateSchedule::new(peak, warmup, decay, updates).map(drop)
        };
        // A warm-up that is too long is said by itself.
        let begun = if rate.warmup > updates { 0 } else { rate.warmup };
        let mut all = vec![
            complaint(&section, schedule(rate.peak, 0, Decay::Constant)),
            complaint(&section, schedule(1.0, begun, rate.decay.clone())),
            complaint(&section, config.optimizer.check()),
        ];
        // A run that is cut short keeps the warm-up that its recipe was written with.
        if rate.warmup > updates && self.run.steps > 0 {
            let key = format!("{section}rate.warmup");
            let fitting = updates / 10;
            let want = format!(
                "with `loop.steps` {} the {role} is updated only {updates} times; add --set \
                 {key}={fitting}, or more steps",
                self.run.steps
            );
            all.push(Some(wrong(key, &rate.warmup.to_string(), &want)));
        }
        match &config.learns {
            LearnsConfig::Lora(lora) => all.extend(wrong_lora(&section, lora)),
            LearnsConfig::Only { patterns } => {
                let key = format!("{section}learns.patterns");
                all.push(unless(
                    !patterns.is_empty(),
                    &key,
                    "empty",
                    "it names a layer or parameter",
                ));
            }
            LearnsConfig::All => {}
        }
        if let RecomputeConfig::Within { gibibytes } = config.recompute {
            let is_right = gibibytes.is_finite() && gibibytes > 0.0;
            let key = format!("{section}recompute.gibibytes");
            all.push(unless(is_right, &key, gibibytes, "it is above 0"));
        }
        all.into_iter().flatten().collect()
    }

    fn wrong_method(&self) -> Option<Idle> {
        complaint(
            "",
            match &self.method {
                MethodConfig::Finetune(config) => config.check(),
                MethodConfig::DiffusionForcing(config) => config.check(),
                MethodConfig::Dmd2(config) => config.check(),
            },
        )
    }

    fn wrong_strategy(&self) -> Option<Idle> {
        if let Some(share) =
            self.strategy.first_frame_probability().filter(|own| !(0.0..=1.0).contains(own))
        {
            let key = "strategy.first_frame_probability".to_owned();
            return Some(wrong(key, &share.to_string(), "a probability lies between 0 and 1"));
        }
        complaint("", self.strategy.flexible().check())
    }

    fn wrong_data(&self) -> Vec<Idle> {
        let dropout = self.data.caption_dropout;
        let is_share = (0.0..=1.0).contains(&dropout);
        let mut all = vec![
            unless(self.data.batch > 0, "data.batch", 0, "it is at least 1"),
            unless(is_share, "data.caption_dropout", dropout, "it is a share from 0 to 1"),
        ];
        let levels =
            [("levels.video", Some(self.levels.video)), ("levels.audio", self.levels.audio)];
        for (key, config) in levels {
            if let Some(Err(err)) = config.map(|config| config.sampler()) {
                all.push(Some(wrong_density(key, &err)));
            }
        }
        if let SourceConfig::Shapes(shapes) = &self.data.source {
            all.push(unless(shapes.clips > 0, "data.source.clips", 0, "it is at least 1"));
        }
        if let SourceConfig::Mix(mix) = &self.data.source {
            let wrong = mix.check().err();
            all.push(wrong.map(|reason| Idle { key: "data.source.of".to_owned(), reason }));
        }
        all.into_iter().flatten().collect()
    }

    fn wrong_callbacks(&self) -> Vec<Idle> {
        let averages = self.callbacks.averages();
        let ema = averages.iter().map(|(_, config)| {
            complaint("callbacks.", Ema::new("ema", STUDENT, *config).map(drop))
        });
        let mut all: Vec<Option<Idle>> = ema.collect();
        let twice = (1..averages.len())
            .find(|at| averages[..*at].iter().any(|(_, own)| own.decay == averages[*at].1.decay));
        all.push(twice.map(|at| {
            let want = "each of several averages has another decay, which it is called by";
            wrong("callbacks.ema".to_owned(), &format!("twice {}", averages[at].1.decay), want)
        }));
        if matches!(&self.callbacks.ema, Some(AveragesConfig::Several(own)) if own.is_empty()) {
            let want = "it lists one average or more; leave it out for none";
            all.push(Some(wrong("callbacks.ema".to_owned(), "empty", want)));
        }
        if let Some(look) = &self.callbacks.validation {
            let key = |name: &str| format!("callbacks.validation.{name}");
            let stored = !matches!(self.data.source, SourceConfig::Shapes(_));
            all.extend([
                unless(look.every > 0, &key("every"), 0, "it is at least 1"),
                unless(look.steps != Some(0), &key("steps"), 0, "it is at least 1"),
                unless(
                    !(stored && look.prompts.is_empty()),
                    &key("prompts"),
                    "empty",
                    "it says what to make, in one prompt or more",
                ),
                unless(
                    look.guidance.is_none_or(f64::is_finite),
                    &key("guidance"),
                    look.guidance.unwrap_or_default(),
                    "it is a number",
                ),
            ]);
        }
        all.into_iter().flatten().collect()
    }
}

/// What is wrong with adapters, each setting by itself.
fn wrong_lora(section: &str, lora: &LoraConfig) -> Vec<Option<Idle>> {
    let targets = vec!["*".to_owned()];
    let right = LoraConfig { rank: 1, alpha: None, dropout: 0.0, targets, ..lora.clone() };
    let LoraConfig { rank, alpha, dropout, .. } = *lora;
    let each = [
        LoraConfig { targets: lora.targets.clone(), ..right.clone() },
        LoraConfig { rank, ..right.clone() },
        LoraConfig { dropout, ..right.clone() },
        LoraConfig { rank: rank.max(1), alpha, ..right },
    ];
    let of_recipe = |err| match err {
        Error::Setting { key, value, want } => {
            Error::Setting { key: key.replace("lora.", "learns."), value, want }
        }
        other => other,
    };
    each.iter().map(|own| complaint(section, own.check().map_err(of_recipe))).collect()
}

/// A density of levels that cannot be, by the key of what is wrong with it.
fn wrong_density(section: &str, err: &error::Error) -> Idle {
    match err {
        error::Error::Diffusion(diffusion::Error::Sampler {
            parameter, value, allowed, ..
        }) => {
            let want = format!("supported are {allowed}");
            wrong(format!("{section}.{parameter}"), &value.to_string(), &want)
        }
        other => Idle { key: section.to_owned(), reason: format!("`{section}`: {other}") },
    }
}

/// A density between the levels that a network predicts at.
///
/// # Errors
/// It ends before they begin, or begins after they end; the error names the key.
pub(crate) fn within(
    section: &str,
    density: TimestepSampler,
    [low, high]: [f64; 2],
) -> error::Result<TimestepSampler> {
    density.within([low, high]).map_err(|err| match err {
        diffusion::Error::Sampler { parameter, value, .. } => {
            let key = parameter.trim_end_matches(" level");
            error::Error::Recipe(format!(
                "`{section}.{key}`: with its shift the {key} level is {value}, but the network predicts at levels \
                 from {low:.3} to {high:.3} and would learn none of them; choose levels that reach there, or \
                 another `models.{STUDENT}.expert`"
            ))
        }
        other => other.into(),
    })
}
