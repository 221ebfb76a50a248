//! What tensors are called where they go, and what a file says of itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{Tensor, TensorData};
use families::{Record, SampledBy};
use nn::{Parameter, Store};
use serde_json::json;
use train::LoraConfig;

use super::Student;
use crate::error::{Error, Result};

/// How layers are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// As in a diffusers folder; of a LoRA `transformer.<layer>.lora_A.weight`.
    Diffusers,
    /// As in the family's own code, which ComfyUI reads; of a LoRA `diffusion_model.<layer>.lora_A.weight`.
    ComfyUi,
    /// The same, as kohya's trainers write it; of a LoRA `lora_unet_<layer>.lora_down.weight` with
    /// underscores.
    Kohya,
}

impl Dialect {
    /// The name of a LoRA's layer.
    fn layer(self, layer: &str, original: Option<String>) -> String {
        let original = original.unwrap_or_else(|| layer.to_owned());
        match self {
            Dialect::Diffusers => format!("transformer.{layer}"),
            Dialect::ComfyUi => format!("diffusion_model.{original}"),
            Dialect::Kohya => format!("lora_unet_{}", original.replace('.', "_")),
        }
    }

    /// The name of a part of a LoRA's layer, which we call `A` and `B`.
    fn part(self, part: &str) -> String {
        match (self, part.split_once('.')) {
            (Dialect::Kohya, Some(("A", rest))) => format!("lora_down.{rest}"),
            (Dialect::Kohya, Some(("B", rest))) => format!("lora_up.{rest}"),
            _ => format!("lora_{part}"),
        }
    }
}

impl Student {
    /// Writes the LoRA alone, with its alpha; those of two experts as [`Student::files`] says.
    ///
    /// # Errors
    /// No LoRA was learnt, something stands there already, or the disk is full.
    pub fn write_lora(&self, path: &Path, dialect: Dialect) -> Result<()> {
        self.parts_that_may_be(path)?
            .into_iter()
            .try_for_each(|(path, own)| own.write_own_lora(&path, dialect))
    }

    /// What is written to which file, none of which is there.
    pub(super) fn parts_that_may_be(&self, path: &Path) -> Result<Vec<(PathBuf, &Student)>> {
        let parts = self.parts(path);
        match parts.iter().find(|(path, _)| path.exists()) {
            Some((path, _)) if parts.len() > 1 => {
                let err = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
                Err(Error::file("write", path, err))
            }
            _ => Ok(parts),
        }
    }

    fn write_own_lora(&self, path: &Path, dialect: Dialect) -> Result<()> {
        let Some(config) = self.lora() else {
            return Err(Error::Recipe(
                "this run did not train a LoRA; export a folder or a file instead".to_owned(),
            ));
        };
        let alpha = config.alpha.unwrap_or(config.rank as f64);
        let mut store = Store::new("the LoRA");
        for (name, parameter) in &self.learnt {
            let (own, part) = name.split_once(".lora_").unwrap_or((name, ""));
            let original = (self.model.description.family.original_name)(own);
            let layer = dialect.layer(own, original);
            store.insert(format!("{layer}.{}", dialect.part(part)), parameter.clone());
            if part.starts_with('A') && dialect != Dialect::Diffusers {
                let value = TensorData::new(vec![alpha as f32], [1]);
                let value = Tensor::<1>::from_data(value, &parameter.values.device());
                let shape = Vec::new();
                store.insert(format!("{layer}.alpha"), Parameter { values: value, shape });
            }
        }
        let mut record = self.record();
        if record.sampled == Some(SampledBy::Scheduler) && self.model.record.sampled.is_none() {
            // It changes nothing about how its base is sampled, so it may stand beside one that was
            // distilled since.
            record.sampled = None;
        }
        let mut facts = self.metadata(&record);
        facts.extend(self.lora_facts(config, alpha, dialect));
        self.write_store(store, path, facts)
    }

    /// What readers of a dialect look for in the metadata of a LoRA.
    fn lora_facts(
        &self,
        config: &LoraConfig,
        alpha: f64,
        dialect: Dialect,
    ) -> Vec<(String, String)> {
        let facts = match dialect {
            // diffusers refuses tensors it does not know, and reads the alpha here.
            Dialect::Diffusers => {
                let own = |name: &String| name.strip_suffix(".lora_A.weight").map(str::to_owned);
                let settings = json!({
                    "transformer.r": config.rank,
                    "transformer.lora_alpha": alpha,
                    "transformer.target_modules": self.learnt.keys().filter_map(own).collect::<Vec<_>>(),
                });
                vec![("lora_adapter_metadata", settings.to_string())]
            }
            Dialect::ComfyUi => Vec::new(),
            Dialect::Kohya => vec![
                ("ss_network_module", "networks.lora".to_owned()),
                ("ss_network_dim", config.rank.to_string()),
                ("ss_network_alpha", alpha.to_string()),
            ],
        };
        facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Writes the whole transformer as one file; two experts as [`Student::files`] says.
    ///
    /// # Errors
    /// The dialect has no other names for it, something stands there already, or the disk is full.
    pub fn write_file(&self, path: &Path, dialect: Dialect) -> Result<()> {
        self.parts_that_may_be(path)?.into_iter().try_for_each(|(path, own)| {
            let store = own.renamed(own.store()?, dialect)?;
            own.write_store(store, &path, own.metadata(&own.record()))
        })
    }

    /// All parameters as a dialect calls them.
    pub(super) fn renamed(&self, store: Store, dialect: Dialect) -> Result<Store> {
        let family = self.model.description.family;
        let original = |name: &str| family.original_parameter(name);
        match dialect {
            Dialect::Diffusers => Ok(store),
            Dialect::ComfyUi | Dialect::Kohya => {
                if !store.names().into_iter().any(|name| original(name).is_some()) {
                    return Err(Error::Recipe(format!(
                        "{} has no other names for its layers than diffusers'; leave --dialect out",
                        family.title
                    )));
                }
                Ok(store.renamed(|name| Some(original(name).unwrap_or_else(|| name.to_owned()))))
            }
        }
    }

    /// What a file says of itself: what it was made from and how. Nothing in it tells when or where, so
    /// that the same checkpoint is the same bytes.
    pub(super) fn metadata(&self, record: &Record) -> BTreeMap<String, String> {
        let config = self.config().ok();
        let base = match config.and_then(|config| config.from.clone()) {
            Some(from) => from,
            None => format!("a new {}", self.model.description.family.title),
        };
        let recipe = self.recipe.resolved().map(|recipe| recipe.to_string());
        let facts = [
            ("format", "pt".to_owned()),
            ("made_by", format!("moviola {}", env!("CARGO_PKG_VERSION"))),
            ("family", self.model.description.family.name.to_owned()),
            ("base_model", base),
            ("role", self.role.clone()),
            ("method", self.recipe.method.name().to_owned()),
            ("strategy", self.recipe.strategy.name().to_owned()),
            ("step", self.step.to_string()),
            ("recipe", recipe.unwrap_or_default()),
        ];
        let expert = self.expert.map(|expert| ("expert", expert.name().to_owned()));
        let own = facts.into_iter().chain(expert).map(|(key, value)| (key.to_owned(), value));
        self.facts.clone().into_iter().chain(record.metadata()).chain(own).collect()
    }
}
