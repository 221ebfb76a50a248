//! What is left of a run: a diffusers folder, a LoRA, or one file. The same checkpoint is the same bytes.

mod files;
mod gguf;
mod names;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

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
use crate::schema::{ExpertConfig, LearnsConfig, Recipe, SourceConfig, TrainedConfig};
use crate::students::average_name;
use crate::working_folder::working_folder;

/// No index of a model is longer.
const LONGEST_INDEX: u64 = 16 << 20;

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
    /// Which of two experts it is, where both learnt.
    expert: Option<ExpertConfig>,
    /// The expert of low levels, where both are exported.
    beside: Option<Box<Student>>,
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
        let recipe: Recipe =
            serde_json::from_value(found.manifest.recipe.0.clone()).map_err(|err| {
                let path = found.path.display();
                Error::Recipe(format!("{path} holds no recipe of this version: {err}"))
            })?;
        let whole = std::fs::canonicalize(&found.path).unwrap_or_else(|_| found.path.clone());
        let run = whole.parent().and_then(Path::parent);
        let recipe = recipe.begun_in(run.map(working_folder).transpose()?.flatten());
        let config = trained(&recipe, role)?.clone();
        let states = match role {
            STUDENT => config.students(),
            _ => vec![(role, config.expert)],
        };
        let mut all = Vec::new();
        for (state, expert) in states {
            let learnt = learnt(&found, state, &which.prefix(&recipe, state)?)?;
            let model = recipe.model(role, (&config, expert), device, hub)?;
            let (step, facts) = (found.manifest.step, found.manifest.facts.clone());
            let (recipe, role) = (recipe.clone(), role.to_owned());
            let (dtype, beside) = (None, None);
            all.push(Student { recipe, step, model, learnt, facts, role, expert, beside, dtype });
        }
        let beside = (all.len() > 1).then(|| all.pop().map(Box::new)).flatten();
        Ok(Student { beside, ..all.remove(0) })
    }

    /// The same, written in another type.
    pub fn in_type(self, dtype: FloatDType) -> Student {
        let beside = self.beside.map(|own| Box::new(own.in_type(dtype)));
        Student { dtype: Some(dtype), beside, ..self }
    }

    /// One of two experts that learnt in the run.
    ///
    /// # Errors
    /// The run did not train it.
    pub fn only(self, expert: ExpertConfig) -> Result<Student> {
        let refuse = |reason: String| Err(Error::Recipe(reason));
        match (self.expert, self.beside) {
            (Some(own), _) if own == expert => Ok(Student { beside: None, ..self }),
            (_, Some(other)) if other.expert == Some(expert) => Ok(*other),
            (Some(own), _) => refuse(format!(
                "this run trained the {} expert, not the {} one",
                own.name(),
                expert.name()
            )),
            (None, _) => refuse("this run trained a model without experts".to_owned()),
        }
    }

    /// The files that are written where one is named: of two experts one each, with its name before the ending.
    pub fn files(&self, path: &Path) -> Vec<PathBuf> {
        self.parts(path).into_iter().map(|(path, _)| path).collect()
    }

    /// What is written to which file.
    fn parts(&self, path: &Path) -> Vec<(PathBuf, &Student)> {
        let Some(beside) = &self.beside else { return vec![(path.to_owned(), self)] };
        let named = |own: &Student| {
            let part = |part: Option<&OsStr>| {
                part.map_or_else(String::new, |own| own.to_string_lossy().into_owned())
            };
            let expert = own.expert.map_or("", ExpertConfig::name);
            let stem = part(path.file_stem());
            path.with_file_name(match path.extension() {
                None => format!("{stem}-{expert}"),
                ending => format!("{stem}-{expert}.{}", part(ending)),
            })
        };
        [self, &**beside].into_iter().map(|own| (named(own), own)).collect()
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
                let weights =
                    |own: &Student| format!("{}/diffusion_pytorch_model", own.model.component());
                let replaced: Vec<String> = self.networks().map(weights).collect();
                copy(from, aside, &|name| !replaced.iter().any(|own| name.starts_with(own)))?;
                let index = from.join("model_index.json");
                let text = kernels::read_text(&index, LONGEST_INDEX)
                    .map_err(|err| Error::file("read", &index, err))?;
                // Some editors begin a file with a mark that is no part of its text.
                let text = text.trim_start_matches('\u{feff}');
                let mut value: Value = serde_json::from_str(text)
                    .map_err(|err| Error::Recipe(format!("{}: {err}", index.display())))?;
                self.record().write_index(&mut value);
                write_json(&aside.join("model_index.json"), &value)?;
            }
        }
        for own in self.networks() {
            let component = aside.join(own.model.component());
            let weights = component.join("diffusion_pytorch_model.safetensors");
            own.write_store(own.store()?, &weights, own.metadata(&own.record()))?;
        }
        Ok(())
    }

    /// All that is exported.
    fn networks(&self) -> impl Iterator<Item = &Student> {
        std::iter::once(self).chain(self.beside.as_deref())
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

impl Which {
    /// Below what a checkpoint keeps the parameters of a role.
    fn prefix(self, recipe: &Recipe, role: &str) -> Result<String> {
        let name = match self {
            Which::Live => return Ok(format!("roles.{role}.transformer.")),
            Which::Average => "ema".to_owned(),
            Which::Decay(decay) => {
                let averages = recipe.callbacks.averages();
                let known: Vec<String> =
                    averages.iter().map(|(_, own)| own.decay.to_string()).collect();
                let found = averages.into_iter().find(|(_, own)| own.decay == decay);
                found.map(|(name, _)| name).ok_or_else(|| {
                    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                    Error::Recipe(format!(
                        "this run has no running average of decay {decay}; it has {known}"
                    ))
                })?
            }
        };
        Ok(format!("callbacks.{}.{role}.", average_name(&name, role)))
    }
}

/// What a checkpoint holds of a role below `prefix`.
fn learnt(found: &Found, role: &str, prefix: &str) -> Result<BTreeMap<String, Parameter>> {
    let own = found.state.iter().filter_map(|(name, value)| match value {
        train::Value::Tensor(tensor) => {
            Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()))
        }
        train::Value::Number(_) => None,
    });
    let learnt: BTreeMap<String, Parameter> = own.collect();
    match learnt.is_empty() {
        false => Ok(learnt),
        true => Err(Error::Recipe(format!(
            "{} holds no running average of the {role}; add callbacks.ema to the recipe, or export the {role} \
             itself",
            found.path.display()
        ))),
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
