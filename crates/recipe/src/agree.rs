//! What sections of a recipe say about each other.

use crate::error::{Error, Result};
use crate::schema::{
    ExpertConfig, LearnsConfig, MethodConfig, ModelsConfig, Recipe, SamplerConfig, SourceConfig,
    TrainedConfig,
};
use train::LoraConfig;

impl Recipe {
    /// Checks that the sections go together; no file is looked at.
    ///
    /// # Errors
    /// A role is missing, superfluous or of the wrong kind, a negative prompt is missing.
    pub(crate) fn agree(&self) -> Result<()> {
        let ModelsConfig { student, teacher, critic, .. } = &self.models;
        trained("student", student)?;
        critic.as_ref().map_or(Ok(()), |critic| trained("critic", critic))?;
        if teacher.as_ref().is_some_and(|teacher| teacher.trainable) {
            return refuse(
                "models.teacher is marked trainable, but a teacher is frozen: its parameters never \
                 change; remove `trainable`, or train it in a run of its own",
            );
        }
        let name = self.method.name();
        if student.expert.is_some() && !matches!(self.method, MethodConfig::Finetune(_)) {
            return refuse(&format!(
                "models.student.expert: method {name} draws noise levels of its own, and an expert learns at \
                 some only; choose method finetune"
            ));
        }
        self.both_experts()?;
        match (&self.method, teacher, critic) {
            (MethodConfig::Dmd2(_), None, _) => refuse(
                "method dmd2 lacks the role models.teacher: the network whose distribution the \
                 student learns; add it with `from`",
            ),
            (MethodConfig::Dmd2(_), _, None) => refuse(
                "method dmd2 lacks the role models.critic: the network that follows the student's \
                 samples; add it with `from` and `rate`",
            ),
            (MethodConfig::Dmd2(config), _, _)
                if config.needs_negative_prompt()
                    && self.negative_prompt.is_none()
                    && !matches!(self.data.source, SourceConfig::Shapes(_)) =>
            {
                refuse(
                    "method dmd2 with guidance other than 1 needs the section negative_prompt, or \
                     method.unconditional: zero",
                )
            }
            (MethodConfig::Dmd2(_), _, _) if self.looks_in_steps() => refuse(
                "callbacks.validation.steps is given, but a student of dmd2 is looked at as it is \
                 sampled: at method.timesteps; remove steps",
            ),
            (MethodConfig::Dmd2(_), _, _) => Ok(()),
            (_, Some(_), _) => refuse(&superfluous(name, "teacher")),
            (_, _, Some(_)) => refuse(&superfluous(name, "critic")),
            _ => Ok(()),
        }
    }

    /// Refuses what cannot be said of two experts at once.
    fn both_experts(&self) -> Result<()> {
        let ModelsConfig { student, critic, .. } = &self.models;
        let both = |config: &TrainedConfig| config.expert == Some(ExpertConfig::Both);
        if critic.as_ref().is_some_and(both) {
            return refuse(
                "models.critic.expert: both are two networks, and there is one critic; choose one",
            );
        }
        if !both(student) {
            return Ok(());
        }
        let one = |key: &str, what: &str| {
            refuse(&format!(
                "models.student.{key} is {what}, but `expert: both` trains two; train each in a run of its own, \
                 with `expert: high` and `expert: low`"
            ))
        };
        if student.weights.is_some() {
            return one("weights", "the file of one transformer");
        }
        if let LearnsConfig::Lora(LoraConfig { from: Some(_), .. }) = &student.learns {
            return one("learns.from", "the LoRA of one transformer");
        }
        match self.levels.video {
            SamplerConfig::ShiftedLogitNormal { .. } => refuse(
                "levels.video: how much of shifted_logit_normal belongs to an expert depends on the number of \
                 tokens, which a step is drawn without; with `expert: both` choose another density",
            ),
            _ => Ok(()),
        }
    }

    fn looks_in_steps(&self) -> bool {
        self.callbacks.validation.as_ref().is_some_and(|look| look.steps.is_some())
    }
}

impl MethodConfig {
    /// What it is called in recipes.
    pub fn name(&self) -> &'static str {
        match self {
            MethodConfig::Finetune(_) => "finetune",
            MethodConfig::DiffusionForcing(_) => "diffusion_forcing",
            MethodConfig::Dmd2(_) => "dmd2",
        }
    }
}

fn superfluous(method: &str, role: &str) -> String {
    format!("method {method} has no {role}; remove models.{role} or choose method dmd2")
}

fn refuse(reason: &str) -> Result<()> {
    Err(Error::Recipe(reason.to_owned()))
}

fn trained(role: &str, config: &TrainedConfig) -> Result<()> {
    if !config.trainable {
        return refuse(&format!("models.{role} is marked as not trainable, but it is what learns"));
    }
    if config.new.is_some() && (config.weights.is_some() || config.expert.is_some()) {
        return refuse(&format!(
            "models.{role}: `weights` and `expert` are about a folder; give `from` instead of `new`"
        ));
    }
    match (&config.from, &config.new) {
        (Some(_), Some(_)) => refuse(&format!("models.{role} has both `from` and `new`; keep one")),
        (None, None) => refuse(&format!(
            "models.{role} has neither `from` (a folder or hub id) nor `new` (a family)"
        )),
        _ => Ok(()),
    }
}
