//! What the networks of one method must have in common: each is shown what another makes.

use data::store::Fingerprint;
use diffusion::{Geometry, Process, VpPrediction};
use nn::{Inputs, OneDevice, Schedule};
use train::STUDENT;

use crate::error::{Error, Result};
use crate::model::{Model, TextForm};

/// What the student is, as far as the others must be the same.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    family: &'static str,
    process: Process,
    geometry: Geometry,
    text: TextForm,
    encoders: Option<Fingerprint>,
}

impl Kind {
    /// That of a network.
    pub(crate) fn of(model: &Model) -> Kind {
        Kind {
            family: model.description.family.name,
            process: model.description.process.clone(),
            geometry: model.description.geometry,
            text: model.text,
            encoders: model.encoders.clone(),
        }
    }

    /// Refuses a network that cannot learn from this one, or teach it. Where no encoders say of what
    /// widths its latents and texts are, it predicts once from `inputs` of the student.
    ///
    /// # Errors
    /// It names the role, what differs, and both sides.
    pub(crate) fn check(&self, role: &str, other: &Model, inputs: &Inputs) -> Result<()> {
        let own = Kind::of(other);
        let refuse = |what: &str, theirs: String, ours: String| {
            Err(Error::Recipe(format!(
                "models.{role} has another {what} than models.{STUDENT}: {theirs}, not {ours}; each \
                 is shown what the other makes, so give a {role} of the student's kind"
            )))
        };
        if own.family != self.family {
            return refuse("family", own.family.to_owned(), self.family.to_owned());
        }
        if own.process != self.process {
            return refuse("process", told(&own.process), told(&self.process));
        }
        if own.geometry != self.geometry {
            let both = [own.geometry, self.geometry];
            let [theirs, ours] = match both.map(|it| tokens_of(&it)) {
                [theirs, ours] if theirs == ours => both.map(|it| format!("{it:?}")),
                words => words,
            };
            return refuse("geometry of tokens", theirs, ours);
        }
        if own.text != self.text {
            let [theirs, ours] = [own.text, self.text].map(|it| format!("{it:?}"));
            return refuse("form of text", theirs, ours);
        }
        if let (Some(theirs), Some(ours)) = (&own.encoders, &self.encoders) {
            let differing = theirs.0.iter().find(|(part, text)| ours.0.get(*part) != Some(*text));
            return match differing {
                None => Ok(()),
                Some((part, text)) => {
                    let ours = ours.0.get(part).cloned().unwrap_or_else(|| "none".to_owned());
                    refuse(&format!("encoder of {part}"), text.clone(), ours)
                }
            };
        }
        let predicted = OneDevice::default().predict(&**other.network(), &other.store, inputs);
        predicted.map(drop).map_err(|err| {
            Error::Recipe(format!("models.{role} cannot see what models.{STUDENT} sees: {err}"))
        })
    }
}

/// What a token covers, in words.
fn tokens_of(geometry: &Geometry) -> String {
    let by = |sizes: [usize; 3]| sizes.map(|size| size.to_string()).join(" x ");
    format!("a token is {} latents of {} pixels", by(geometry.patch), by(geometry.factors))
}

/// What a network predicts, in words.
fn told(process: &Process) -> String {
    match process {
        Process::Flow => "the velocity of a flow".to_owned(),
        Process::FlowClean => "the clean tokens of a flow".to_owned(),
        Process::Vp { alphas_cumprod, prediction } => {
            let what = match prediction {
                VpPrediction::Epsilon => "the noise",
                VpPrediction::Sample => "the clean tokens",
                VpPrediction::Velocity => "the velocity",
            };
            let last = alphas_cumprod.last().copied().unwrap_or_default();
            let steps = alphas_cumprod.len();
            format!("{what} of {steps} steps that keep the variance and end at a signal of {last}")
        }
    }
}
