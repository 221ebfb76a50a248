//! What is left of a run: a diffusers folder, a LoRA, or one file. The same checkpoint is the same bytes.

mod files;
mod gguf;
mod names;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, FloatDType};
use data::aside::{AsideFolder, Existing};
use families::{Record, SampledBy};
use folder::Hub;
use nn::{Parameter, Store};
use serde_json::{Value, json};
use train::checkpoint::{self, Found};
use train::{LoraConfig, STUDENT};

use self::files::{copy, make_parent, write_json};
pub use self::names::Dialect;
use crate::error::{Error, Result};
use crate::model::{Model, Origin};
use crate::schema::{LearnsConfig, Recipe, SourceConfig, TrainedConfig};

/// Which parameters of a checkpoint are exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Which {
    /// Those of the last step.
    Live,
    /// Their running average; of several the first.
    Average,
    /// The running average of this decay.
    Decay(f64),
}

/// A network that learnt, as a checkpoint holds it: the student, or another role.
pub struct Student {
    /// The recipe it was trained by.
    pub recipe: Recipe,
    /// The step it was saved after.
    pub step: u64,
    model: Model,
    /// What was learnt, by name.
    learnt: BTreeMap<String, Parameter>,
    /// What its method says that users must know.
    facts: BTreeMap<String, String>,
    /// Which role it had.
    role: String,
    /// The type it is written in; as it is stored if not said.
    dtype: Option<FloatDType>,
}

impl Student {
    /// Reads the newest checkpoint of a run's folder that can be used, or the one at `path` itself.
    ///
    /// # Errors
    /// There is none, it was made by another version, or its model is gone.
    pub fn open(path: &Path, which: Which, device: &Device, hub: &Hub) -> Result<Student> {
        Student::open_role(path, STUDENT, which, device, hub)
    }

    /// The same for any role that learns.
    ///
    /// # Errors
    /// As [`Student::open`], or the run has no such role.
    pub fn open_role(
        path: &Path,
        role: &str,
        which: Which,
        device: &Device,
        hub: &Hub,
    ) -> Result<Student> {
        let checkpoints = path.join("checkpoints");
        let found = match checkpoints.is_dir() {
            true => checkpoint::find(&checkpoints, device)?,
            false if path.join("manifest.json").is_file() => checkpoint::read(path, device)?,
            false => return Err(no_run(path)),
        };
        Student::of(found, role, which, device, hub)
    }

    fn of(found: Found, role: &str, which: Which, device: &Device, hub: &Hub) -> Result<Student> {
        let Found { path, manifest, state, .. } = found;
        let recipe: Recipe = serde_json::from_value(manifest.recipe.0).map_err(|err| {
            Error::Recipe(format!("{} holds no recipe of this version: {err}", path.display()))
        })?;
        let prefix = match which {
            Which::Live => format!("roles.{role}.transformer."),
            Which::Average => format!("callbacks.ema.{role}."),
            Which::Decay(decay) => {
                let averages = recipe.callbacks.averages();
                let name =
                    averages.iter().find(|(_, own)| own.decay == decay).map(|(name, _)| name);
                let Some(name) = name else {
                    let known: Vec<String> =
                        averages.iter().map(|(_, own)| own.decay.to_string()).collect();
                    return Err(Error::Recipe(format!(
                        "this run has no running average of decay {decay}; it has {}",
                        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
                    )));
                };
                format!("callbacks.{name}.{role}.")
            }
        };
        let config = trained(&recipe, role)?.clone();
        let own = state.iter().filter_map(|(name, value)| match value {
            train::Value::Tensor(tensor) => {
                Some((name.strip_prefix(&prefix)?.to_owned(), tensor.clone()))
            }
            train::Value::Number(_) => None,
        });
        let learnt: BTreeMap<String, Parameter> = own.collect();
        if learnt.is_empty() {
            return Err(Error::Recipe(format!(
                "{} holds no running average of the {role}; add callbacks.ema to the recipe, or export \
                 the {role} itself",
                path.display()
            )));
        }
        let model = recipe.model(role, &config, device, hub)?;
        let (step, facts, role) = (manifest.step, manifest.facts, role.to_owned());
        Ok(Student { recipe, step, model, learnt, facts, role, dtype: None })
    }

    /// The same, written in another type.
    pub fn in_type(self, dtype: FloatDType) -> Student {
        Student { dtype: Some(dtype), ..self }
    }

    fn config(&self) -> Result<&TrainedConfig> {
        trained(&self.recipe, &self.role)
    }

    /// The settings of its LoRA, if that is what was learnt.
    pub fn lora(&self) -> Option<&LoraConfig> {
        match &self.config().ok()?.learns {
            LearnsConfig::Lora(config) => Some(config),
            LearnsConfig::All | LearnsConfig::Only { .. } => None,
        }
    }

    /// All parameters, a LoRA merged into the layers it adapts.
    ///
    /// # Errors
    /// A layer of the LoRA is not in the model.
    pub fn store(&self) -> Result<Store> {
        let mut store = self.model.store.clone();
        for (name, parameter) in &self.learnt {
            store.insert(name.clone(), parameter.clone());
        }
        if let Some(config) = self.lora() {
            store.merge_pairs(config.strength() as f32)?;
        }
        Ok(store)
    }

    /// Writes a diffusers folder: what the student came from, with its new transformer.
    ///
    /// # Errors
    /// Something stands there already, or the disk is full.
    pub fn write_folder(&self, path: &Path) -> Result<()> {
        make_parent(path)?;
        let fault = |err| Error::file("write", path, err);
        let aside = AsideFolder::create(path, Existing::Refuse).map_err(fault)?;
        self.fill(aside.path())?;
        aside.commit().map_err(fault)
    }

    /// Writes all files of a diffusers folder into an empty one.
    fn fill(&self, aside: &Path) -> Result<()> {
        match &self.model.origin {
            Origin::New(files) => {
                for (file, value) in files {
                    let mut value = value.clone();
                    if *file == "model_index.json" {
                        self.record().write_index(&mut value);
                        self.write_rate(&mut value);
                    }
                    write_json(&aside.join(file), &value)?;
                }
            }
            Origin::Folder(from) => {
                let replaced = format!("{}/diffusion_pytorch_model", self.model.component());
                copy(from, aside, &|name| !name.starts_with(&replaced))?;
                let index = from.join("model_index.json");
                let text = std::fs::read_to_string(&index)
                    .map_err(|err| Error::file("read", &index, err))?;
                let mut value: Value = serde_json::from_str(&text)
                    .map_err(|err| Error::Recipe(format!("{}: {err}", index.display())))?;
                self.record().write_index(&mut value);
                write_json(&aside.join("model_index.json"), &value)?;
            }
        }
        let component = aside.join(self.model.component());
        let weights = component.join("diffusion_pytorch_model.safetensors");
        self.write_store(self.store()?, &weights, self.metadata(&self.record()))
    }

    /// Says how fast the clips of its world play, in an index that has a place for it.
    fn write_rate(&self, index: &mut Value) {
        const KEY: &str = "frame_rate";
        let known = self.model.description.family.options.contains(&KEY);
        if let (SourceConfig::Shapes(shapes), true) = (&self.recipe.data.source, known) {
            index[KEY] = json!(shapes.world.fps);
        }
    }

    /// How the student is sampled, and what it was shown.
    pub fn record(&self) -> Record {
        let own = self.recipe.record(&self.model, &self.facts);
        match self.role.as_str() {
            STUDENT => own,
            // Only the student is of few steps.
            _ => Record { sampled: Some(SampledBy::Scheduler), ..own },
        }
    }
}

/// The settings of a role that learns.
fn trained<'a>(recipe: &'a Recipe, role: &str) -> Result<&'a TrainedConfig> {
    let known =
        [(STUDENT, Some(&recipe.models.student)), ("critic", recipe.models.critic.as_ref())];
    let found = known.iter().find(|(name, _)| *name == role).and_then(|(_, config)| *config);
    found.ok_or_else(|| {
        let names: Vec<&str> =
            known.iter().filter(|(_, own)| own.is_some()).map(|(name, _)| *name).collect();
        let names = names.join(", ");
        Error::Recipe(match (role, &recipe.models.teacher) {
            ("teacher", Some(teacher)) => format!(
                "the teacher does not learn: it is {} itself; of this run there can be exported: {names}",
                teacher.from
            ),
            _ => format!("this run has no role `{role}` that learns; it has {names}"),
        })
    })
}

/// What to say of a path where nothing of a run is.
fn no_run(path: &Path) -> Error {
    Error::Recipe(match path.exists() {
        false => format!("there is no run or checkpoint {}; check the name", path.display()),
        true => format!(
            "{} is neither a run, which has a folder `checkpoints`, nor a checkpoint",
            path.display()
        ),
    })
}
