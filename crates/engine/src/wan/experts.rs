//! One transformer, or two that share the steps: one for much noise, one for little.

use burn::tensor::Device;
use models::dit::wan::{Wan, WanConfig};
use nn::{Dit, Store};

use crate::component::{Component, Holding, Loras};
use crate::error::{Error, Result};
use crate::folder::ModelFolder;
use crate::lora::{LoraSource, Naming};
use crate::pipeline::{Residency, Setup};

/// The timesteps that Wan counts from no noise to pure noise.
const TIMESTEPS: f64 = 1000.0;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// `transformer`: the only one, or the one for much noise.
    First,
    /// `transformer_2`: the one for little noise.
    Second,
}

struct Expert {
    model: Wan,
    component: Component,
}

/// The transformers of a folder.
pub(super) struct Experts {
    first: Expert,
    /// With the timestep below which it takes over.
    second: Option<(Expert, f64)>,
    residency: Residency,
}

impl Experts {
    /// Opens `transformer` and, where the index lists it, `transformer_2`.
    ///
    /// # Errors
    /// One is missing, damaged or unsupported, or the two do not fit each other.
    pub(super) fn open(folder: &ModelFolder, setup: &Setup) -> Result<Experts> {
        let first = Expert::open(folder, "transformer", setup, &setup.loras)?;
        let boundary = folder.option::<f64>("boundary_ratio")?;
        let second = match (folder.has("transformer_2"), boundary) {
            (false, None) if setup.second_loras.is_empty() => None,
            (false, None) => {
                let reason = "this model has one expert; leave --lora-2 out";
                return Err(Error::Request(reason.to_owned()));
            }
            (true, Some(ratio)) if (0.0..=1.0).contains(&ratio) => {
                let second = Expert::open(folder, "transformer_2", setup, &setup.second_loras)?;
                if second.model.config != first.model.config {
                    let reason = "transformer and transformer_2 differ in their config; two experts must be alike";
                    return Err(Error::Request(reason.to_owned()));
                }
                Some((second, ratio * TIMESTEPS))
            }
            (_, ratio) => {
                return Err(Error::Json {
                    path: folder.path().join("model_index.json"),
                    reason: format!(
                        "`transformer_2` and a `boundary_ratio` from 0 to 1 come together, but the ratio is {}",
                        ratio.map_or("missing".to_owned(), |ratio| ratio.to_string())
                    ),
                });
            }
        };
        Ok(Experts { first, second, residency: setup.residency })
    }

    /// What both are.
    pub(super) fn config(&self) -> &WanConfig {
        &self.first.model.config
    }

    /// Whether there are two.
    pub(super) fn are_two(&self) -> bool {
        self.second.is_some()
    }

    /// Which one predicts at a timestep.
    pub(super) fn part(&self, timestep: f64) -> Part {
        match &self.second {
            Some((_, boundary)) if timestep < *boundary => Part::Second,
            _ => Part::First,
        }
    }

    /// The network of a part with its weights, opened now if they are not yet.
    ///
    /// # Errors
    /// They cannot be opened.
    pub(super) fn at(&mut self, part: Part, device: &Device) -> Result<(&Wan, &Store)> {
        let expert = match (part, &mut self.second) {
            (Part::Second, Some((second, _))) => {
                if self.residency == Residency::OneAtATime {
                    self.first.component.close();
                }
                second
            }
            (_, second) => {
                if let (Some((second, _)), Residency::OneAtATime) = (second, self.residency) {
                    second.component.close();
                }
                &mut self.first
            }
        };
        Ok((&expert.model, expert.component.open(device)?))
    }

    /// Puts other parameters in the place of the first one's.
    ///
    /// # Errors
    /// They are not those of this transformer.
    pub(super) fn replace_first(&mut self, store: Store) -> Result<()> {
        let Expert { model, component } = &mut self.first;
        Ok(component.replace(store, |weights| model.declare(weights))?)
    }

    /// Lets go of all weights.
    pub(super) fn close(&mut self) {
        self.first.component.close();
        if let Some((second, _)) = &mut self.second {
            second.component.close();
        }
    }
}

impl Expert {
    fn open(
        folder: &ModelFolder,
        name: &str,
        setup: &Setup,
        loras: &[LoraSource],
    ) -> Result<Expert> {
        let model = Wan { config: WanConfig::from_json(&folder.text(name, "config.json")?)? };
        let ignored = model.ignored();
        let ignored: Vec<&str> = ignored.iter().map(String::as_str).collect();
        let holding = Holding { precision: setup.precision, kept: &Wan::KEPT };
        let component = Component::new(folder.weights(name)?, holding, &ignored, |weights| {
            model.declare(weights)
        })?;
        let loras = Loras { sources: loras.to_vec(), naming: Naming::Wan };
        let component = component.adapted(loras)?;
        Ok(Expert { model, component })
    }
}
