//! What is left of a run: a diffusers folder, a LoRA, or one file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device, TensorData};
use data::aside::{AsideFile, AsideFolder, Existing};
use families::{Record, SampledBy};
use folder::Hub;
use nn::{Parameter, Store};
use safetensors::tensor::{Dtype, TensorView};
use serde_json::{Value, json};
use train::checkpoint::{self, Found};
use train::{LoraConfig, STUDENT};

use crate::error::{Error, Result};
use crate::model::{Model, Origin};
use crate::schema::{LearnsConfig, Recipe};

/// Which parameters of a checkpoint are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those of the last step.
    Live,
    /// Their running average.
    Average,
}

/// How the layers of a LoRA are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `transformer.<layer>.lora_A.weight`.
    Diffusers,
    /// `diffusion_model.<layer>.lora_A.weight`.
    ComfyUi,
}

/// A student as a checkpoint holds it.
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
}

impl Student {
    /// Reads the newest checkpoint of a run's folder that can be used, or the one at `path` itself.
    ///
    /// # Errors
    /// There is none, it was made by another version, or its model is gone.
    pub fn open(path: &Path, which: Which, device: &Device, hub: &Hub) -> Result<Student> {
        let checkpoints = path.join("checkpoints");
        if !checkpoints.is_dir() && !path.join("manifest.json").is_file() {
            return Err(Error::Recipe(format!(
                "{} is neither a run nor a checkpoint; give the folder of a run",
                path.display()
            )));
        }
        let found = match checkpoints.is_dir() {
            true => checkpoint::find(&checkpoints, device)?,
            false => checkpoint::read(path, device)?,
        };
        Student::of(found, which, device, hub)
    }

    fn of(found: Found, which: Which, device: &Device, hub: &Hub) -> Result<Student> {
        let Found { path, manifest, state, .. } = found;
        let recipe: Recipe = serde_json::from_value(manifest.recipe.0).map_err(|err| {
            Error::Recipe(format!("{} holds no recipe of this version: {err}", path.display()))
        })?;
        let prefix = match which {
            Which::Live => format!("roles.{STUDENT}.transformer."),
            Which::Average => format!("callbacks.ema.{STUDENT}."),
        };
        let own = state.iter().filter_map(|(name, value)| match value {
            train::Value::Tensor(tensor) => {
                Some((name.strip_prefix(&prefix)?.to_owned(), tensor.clone()))
            }
            train::Value::Number(_) => None,
        });
        let learnt: BTreeMap<String, Parameter> = own.collect();
        if learnt.is_empty() {
            return Err(Error::Recipe(format!(
                "{} holds no running average; add callbacks.ema to the recipe, or export the student",
                path.display()
            )));
        }
        let config = &recipe.models.student;
        let model = match (&config.new, &config.from) {
            (Some(new), _) => Model::new(new, recipe.run.seed, device)?,
            (None, Some(from)) => Model::open(&folder::locate(from, hub)?, device)?,
            (None, None) => return Err(Error::Recipe("the student comes from nowhere".to_owned())),
        };
        Ok(Student { recipe, step: manifest.step, model, learnt, facts: manifest.facts })
    }

    /// The settings of its LoRA, if that is what was learnt.
    pub fn lora(&self) -> Option<&LoraConfig> {
        match &self.recipe.models.student.learns {
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
                    }
                    write_json(&aside.join(file), &value)?;
                }
            }
            Origin::Folder(from) => {
                copy(from, aside, &|name| {
                    !name.starts_with("transformer/diffusion_pytorch_model")
                })?;
                let index = from.join("model_index.json");
                let text = std::fs::read_to_string(&index)
                    .map_err(|err| Error::file("read", &index, err))?;
                let mut value: Value = serde_json::from_str(&text)
                    .map_err(|err| Error::Recipe(format!("{}: {err}", index.display())))?;
                self.record().write_index(&mut value);
                write_json(&aside.join("model_index.json"), &value)?;
            }
        }
        let weights = aside.join("transformer/diffusion_pytorch_model.safetensors");
        write_store(&self.store()?, &weights, None)
    }

    /// How the student is sampled, and what it was shown.
    pub fn record(&self) -> Record {
        self.recipe.record(&self.model, &self.facts)
    }

    /// Writes the LoRA alone, with its alpha.
    ///
    /// # Errors
    /// No LoRA was learnt, something stands there already, or the disk is full.
    pub fn write_lora(&self, path: &Path, dialect: Dialect) -> Result<()> {
        let Some(config) = self.lora() else {
            return Err(Error::Recipe(
                "this run did not train a LoRA; export a folder or a file instead".to_owned(),
            ));
        };
        let prefix = match dialect {
            Dialect::Diffusers => "transformer.",
            Dialect::ComfyUi => "diffusion_model.",
        };
        let alpha = config.alpha.unwrap_or(config.rank as f64);
        let mut store = Store::new("the LoRA");
        for (name, parameter) in &self.learnt {
            let (layer, part) = name.split_once(".lora_").unwrap_or((name, ""));
            let original = match dialect {
                Dialect::ComfyUi => (self.model.description.family.original_name)(layer),
                Dialect::Diffusers => None,
            };
            let layer = original.unwrap_or_else(|| layer.to_owned());
            store.insert(format!("{prefix}{layer}.lora_{part}"), parameter.clone());
            if part.starts_with('A') && dialect == Dialect::ComfyUi {
                let value = TensorData::new(vec![alpha as f32], [1]);
                let value = burn::tensor::Tensor::<1>::from_data(value, &parameter.values.device());
                let shape = Vec::new();
                store.insert(format!("{prefix}{layer}.alpha"), Parameter { values: value, shape });
            }
        }
        let mut record = self.record();
        if record.sampled == Some(SampledBy::Scheduler) && self.model.record.sampled.is_none() {
            // It changes nothing about how its base is sampled, so it may stand beside one that was
            // distilled since.
            record.sampled = None;
        }
        let mut facts = self.metadata(&record);
        if dialect == Dialect::Diffusers {
            // diffusers refuses tensors it does not know, and reads the alpha here.
            let layers = self.learnt.keys().filter_map(|name| name.strip_suffix(".lora_A.weight"));
            let settings = json!({
                "transformer.r": config.rank,
                "transformer.lora_alpha": alpha,
                "transformer.target_modules": layers.collect::<Vec<_>>(),
            });
            facts.insert("lora_adapter_metadata".to_owned(), settings.to_string());
            facts.insert("format".to_owned(), "pt".to_owned());
        }
        write_store(&store, path, Some(facts))
    }

    /// Writes the whole transformer as one file.
    ///
    /// # Errors
    /// Something stands there already, or the disk is full.
    pub fn write_file(&self, path: &Path) -> Result<()> {
        write_store(&self.store()?, path, Some(self.metadata(&self.record())))
    }

    fn metadata(&self, record: &Record) -> BTreeMap<String, String> {
        let facts = [
            ("made_by", format!("moviola {}", env!("CARGO_PKG_VERSION"))),
            ("method", self.recipe.method.name().to_owned()),
            ("strategy", self.recipe.strategy.name().to_owned()),
            ("step", self.step.to_string()),
        ];
        let own = facts.into_iter().map(|(key, value)| (key.to_owned(), value));
        self.facts.clone().into_iter().chain(record.metadata()).chain(own).collect()
    }
}

/// Copies a folder's files that `wanted` accepts by their path within it.
fn copy(from: &Path, to: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    let mut folders = vec![PathBuf::new()];
    while let Some(inner) = folders.pop() {
        let folder = from.join(&inner);
        let fault = |err| Error::file("read", &folder, err);
        for entry in std::fs::read_dir(&folder).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let relative = inner.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(relative);
            } else if wanted(&relative.to_string_lossy()) {
                let target = to.join(&relative);
                make_parent(&target)?;
                std::fs::copy(entry.path(), &target)
                    .map_err(|err| Error::file("write", &target, err))?;
            }
        }
    }
    Ok(())
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    std::fs::create_dir_all(parent).map_err(|err| Error::file("make", parent, err))
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    make_parent(path)?;
    let text = serde_json::to_string_pretty(value).expect("a value is JSON");
    std::fs::write(path, text + "\n").map_err(|err| Error::file("write", path, err))
}

/// Writes parameters as safetensors: beside the file first, so that no one sees half of it.
fn write_store(store: &Store, path: &Path, facts: Option<BTreeMap<String, String>>) -> Result<()> {
    make_parent(path)?;
    let fault = |err| Error::file("write", path, err);
    let mut file = AsideFile::create(path, Existing::Refuse).map_err(fault)?;
    let data: Vec<(&str, &Parameter, TensorData)> =
        store.iter().map(|(name, own)| (name, own, own.values.to_data())).collect();
    let views = data.iter().map(|(name, own, data)| {
        let dtype = match data.dtype() {
            DType::BF16 => Dtype::BF16,
            DType::F16 => Dtype::F16,
            _ => Dtype::F32,
        };
        Ok((*name, TensorView::new(dtype, own.shape.clone(), data.bytes())?))
    });
    let wrong =
        |err: safetensors::SafeTensorError| Error::Recipe(format!("{}: {err}", path.display()));
    let views = views.collect::<std::result::Result<Vec<_>, _>>().map_err(wrong)?;
    data::write_tensors(&mut file, views, facts.as_ref()).map_err(fault)?;
    file.commit().map_err(fault)
}
