//! Models as a worker keeps them: what is open stays open between jobs, and LoRAs are changed without opening the base
//! again.

use engine::Pipeline;

use crate::ask::{Ask, LoraAsk};
use crate::error::Refusal;
use crate::model::{Loras, Model, Models, Stamp};

/// The pipelines of a worker.
pub(crate) struct Pipelines(Vec<Kept>);

struct Kept {
    model: String,
    base: Pipeline,
    /// The same with the LoRAs of the last job that had any.
    adapted: Option<Adapted>,
}

/// A pipeline with LoRAs, as their files were when it was made.
struct Adapted {
    loras: Vec<(LoraAsk, Option<Stamp>)>,
    pipeline: Pipeline,
}

impl Pipelines {
    /// Those of all models that are served.
    pub(crate) fn of(models: &Models) -> Pipelines {
        let keep = |model: &Model| Kept {
            model: model.id().to_owned(),
            base: model.pipeline(),
            adapted: None,
        };
        Pipelines(models.0.iter().map(keep).collect())
    }

    /// The pipeline of a job.
    ///
    /// # Errors
    /// Its model is served no more, or one of its LoRAs cannot be used.
    pub(crate) fn of_ask(&mut self, ask: &Ask, loras: &Loras) -> engine::Result<&mut Pipeline> {
        let gone =
            || engine::Error::Unknown(format!("the model `{}` is served no more", ask.model));
        let kept = self.0.iter_mut().find(|kept| kept.model == ask.model).ok_or_else(gone)?;
        if ask.loras.is_empty() {
            return Ok(&mut kept.base);
        }
        let stamped = loras.stamped(&ask.loras);
        if kept.adapted.as_ref().is_none_or(|own| own.loras != stamped) {
            kept.adapted = None;
            let unfit = |refusal: Refusal| engine::Error::Unknown(refusal.message().to_owned());
            let pipeline = loras.adapted(&kept.base, &ask.loras).map_err(unfit)?;
            kept.adapted = Some(Adapted { loras: stamped, pipeline });
        }
        Ok(&mut kept.adapted.as_mut().expect("it was made just now").pipeline)
    }
}
