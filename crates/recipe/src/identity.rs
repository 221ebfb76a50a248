//! What a run is made from, as hashes: a checkpoint records them, and a run goes on from the same only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data::store::{hash_files, hash_parts};
use folder::{Hub, ModelFolder};
use serde::Serialize;
use train::LoraConfig;

use crate::error::{Error, Result};
use crate::schema::{ExpertConfig, LearnsConfig, Recipe, ShapesConfig};

impl Recipe {
    /// The hash of the data and of the weights that each role begins with, by what they are. Weights
    /// are read whole: two trainings of one model may differ in a single layer.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub(crate) fn origins(&self, dataset: String, hub: &Hub) -> Result<BTreeMap<String, String>> {
        let mut origins = BTreeMap::from([("the dataset".to_owned(), dataset)]);
        // Roles often come from one folder, which need not be read again for each.
        let mut hashed: BTreeMap<String, String> = BTreeMap::new();
        let mut of_folder = |from: &str, expert: Option<ExpertConfig>| -> Result<String> {
            let from = &self.located(from);
            let component = match expert {
                Some(ExpertConfig::Low) => "transformer_2",
                _ => "transformer",
            };
            let key = format!("{component} of {from}");
            if !hashed.contains_key(&key) {
                hashed.insert(key.clone(), weights_of(from, component, hub)?);
            }
            Ok(hashed[&key].clone())
        };
        let student = &self.models.student;
        let students = student.students().into_iter().map(|(role, own)| (role, student, own));
        let critic = self.models.critic.iter().map(|critic| ("critic", critic, critic.expert));
        for (role, config, expert) in students.chain(critic) {
            let hash = match (&config.new, &config.from) {
                (Some(new), _) => hash_of(&(new, self.run.seed))?,
                (None, Some(from)) => of_folder(from, expert)?,
                (None, None) => continue,
            };
            origins.insert(format!("the weights of the {role}"), hash);
            if let Some(file) = &config.weights {
                let hash = hash_files(&[PathBuf::from(self.located(file))])?;
                origins.insert(format!("the given weights of the {role}"), hash);
            }
            if let LearnsConfig::Lora(LoraConfig { from: Some(file), .. }) = &config.learns {
                let hash = hash_files(&[folder::lora::file(Path::new(&self.located(file)))?])?;
                origins.insert(format!("the LoRA that the {role} began as"), hash);
            }
        }
        if let Some(teacher) = &self.models.teacher {
            origins
                .insert("the weights of the teacher".to_owned(), of_folder(&teacher.from, None)?);
        }
        Ok(origins)
    }
}

impl Recipe {
    /// What all ranks of a run must have been told and made from, as parts of hashes.
    ///
    /// # Errors
    /// The recipe cannot be written.
    pub(crate) fn told(&self, origins: &BTreeMap<String, String>) -> Result<Vec<(String, u64)>> {
        let recipe = ("the recipe".to_owned(), hash_of(&self.resolved()?)?);
        let origins = origins.iter().map(|(name, hash)| (name.clone(), hash.clone()));
        let first = |hash: &str| {
            hash.bytes().fold(0, |sum: u64, byte| sum.rotate_left(7) ^ u64::from(byte))
        };
        Ok([recipe].into_iter().chain(origins).map(|(name, hash)| (name, first(&hash))).collect())
    }
}

impl ShapesConfig {
    /// The hash of all that decides what the clips are.
    ///
    /// # Errors
    /// A number in it is not finite.
    pub(crate) fn identity(&self) -> Result<String> {
        hash_of(self)
    }
}

/// The hash of a network's config and weights.
fn weights_of(from: &str, component: &str, hub: &Hub) -> Result<String> {
    let folder = ModelFolder::open(&folder::locate(from, hub)?)?;
    let mut files: Vec<PathBuf> = vec![folder.component(component)?.join("config.json")];
    files.extend(folder.weights(component)?);
    Ok(hash_files(&files)?)
}

fn hash_of(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_vec(value)
        .map_err(|err| Error::Recipe(format!("the recipe cannot be written: {err}")))?;
    Ok(hash_parts(&[&text]))
}
