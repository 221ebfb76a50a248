//! Finetuning: the student learns what its process asks of it, on the strategy's inputs.

use std::collections::BTreeMap;

use diffusion::Process;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use train::{
    Batch, Form, Method, MethodReport, ModelInputs, Pass, Result, STUDENT, Strategy, Trained,
};

use crate::report::Noted;

/// Settings of finetuning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FinetuneConfig {
    /// Which quantity the loss compares.
    pub form: Form,
    /// How much each noise level weighs.
    pub weight: Weighting,
}

/// How much the error at a noise level weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
pub enum Weighting {
    /// All levels alike.
    #[default]
    Even,
    /// `1 / max(level, floor)^2`: errors of the clean tokens as the errors of a velocity they are.
    InverseSquare {
        /// Levels below this weigh as this one.
        floor: f32,
    },
}

impl Weighting {
    fn apply(self, inputs: &mut ModelInputs) {
        match self {
            Weighting::Even => {}
            Weighting::InverseSquare { floor } => {
                inputs.weigh(|level| 1.0 / level.max(floor).powi(2));
            }
        }
    }
}

impl FinetuneConfig {
    /// # Errors
    /// A floor that is not above 0.
    pub fn check(&self) -> Result<()> {
        match self.weight {
            Weighting::InverseSquare { floor } if !(floor.is_finite() && floor > 0.0) => {
                Err(train::Error::setting("method.weight.floor", floor, "it is above 0"))
            }
            _ => Ok(()),
        }
    }

    /// What a network is given of a batch, and what it should answer.
    pub(crate) fn prepare(
        &self,
        strategy: &dyn Strategy,
        process: &Process,
        batch: &Batch,
        pass: &Pass,
    ) -> Result<ModelInputs> {
        let mut inputs = strategy.prepare(process, batch, &pass.draws)?;
        inputs.form = self.form;
        self.weight.apply(&mut inputs);
        Ok(inputs)
    }
}

/// One role, one strategy.
pub struct Finetune {
    /// The network that learns.
    pub student: Trained,
    strategy: Box<dyn Strategy>,
    process: Process,
    config: FinetuneConfig,
}

impl Finetune {
    /// A student that learns `strategy` under its family's `process`.
    ///
    /// # Errors
    /// A floor that is not above 0.
    pub fn new(
        student: Trained,
        strategy: Box<dyn Strategy>,
        process: Process,
        config: FinetuneConfig,
    ) -> Result<Finetune> {
        config.check()?;
        Ok(Finetune { student, strategy, process, config })
    }
}

impl Method for Finetune {
    fn name(&self) -> &'static str {
        "finetune"
    }

    fn accumulate(&mut self, batch: &Batch, pass: &Pass) -> Result<MethodReport> {
        let inputs = self.config.prepare(&*self.strategy, &self.process, batch, pass)?;
        learn(&mut self.student, &*self.strategy, &inputs, pass)
    }

    fn updates(&self, _: u64) -> Vec<&'static str> {
        vec![STUDENT]
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.strategy.metadata()
    }

    fn trained(&self) -> Vec<&Trained> {
        vec![&self.student]
    }

    fn trained_mut(&mut self) -> Vec<&mut Trained> {
        vec![&mut self.student]
    }
}

/// Adds the gradients of the strategy's loss on `inputs`.
pub(crate) fn learn(
    role: &mut Trained,
    strategy: &dyn Strategy,
    inputs: &ModelInputs,
    pass: &Pass,
) -> Result<MethodReport> {
    let mut noted = Noted::default();
    let total = role.accumulate(&inputs.seen.inputs, pass, &mut |prediction| {
        let losses = strategy.loss(prediction, inputs);
        noted = Noted::new(&losses);
        Ok(losses.total())
    })?;
    let losses = noted.reports(role.name(), total, inputs);
    Ok(MethodReport { losses, tokens: inputs.seen.count() })
}
