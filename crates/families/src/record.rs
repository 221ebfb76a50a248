//! What a trained model says of itself beside its configs: how it is sampled, and what it was shown.
//!
//! `export` writes it, into the index of a folder or the metadata of a file; whoever opens a folder, a
//! LoRA or a single file reads it, so that what was trained can be used.

use std::collections::BTreeMap;

use folder::{Error, ModelFolder};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::conditions::{Condition, EntersAs};
use crate::description::Description;
use crate::error::Result;

/// How much smaller references are, in files: LTX-2's name for it, and an older one.
const REFERENCE_KEYS: [&str; 2] = ["reference_spatial_scale_factor", "reference_downscale_factor"];

/// The record of a trained model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The timesteps of a student of few steps.
    pub timesteps: Option<Vec<f64>>,
    /// What it was shown beside prompts.
    pub conditions: Vec<Condition>,
    /// How many times smaller its references were, if it had any.
    pub reference_scale: Option<usize>,
}

impl Record {
    /// Where it stands in the index of a folder.
    pub(crate) const KEYS: [&str; 4] = ["solver", "timesteps", "conditions", "reference_scale"];

    /// What the index of a folder says.
    ///
    /// # Errors
    /// A key has another type.
    pub fn of_folder(folder: &ModelFolder) -> Result<Record> {
        Ok(Record {
            timesteps: folder.option("timesteps")?,
            conditions: folder.option("conditions")?.unwrap_or_default(),
            reference_scale: folder.option("reference_scale")?,
        })
    }

    /// What the metadata of a safetensors file say.
    ///
    /// # Errors
    /// A key has another type.
    pub fn of_metadata(metadata: &BTreeMap<String, String>) -> Result<Record> {
        let reference = REFERENCE_KEYS.iter().find_map(|key| metadata.get(*key));
        Ok(Record {
            timesteps: parsed(metadata, "timesteps")?,
            conditions: parsed(metadata, "conditions")?.unwrap_or_default(),
            reference_scale: reference.and_then(|scale| scale.parse().ok()),
        })
    }

    /// Puts itself into the index of a folder, in the place of what was recorded there.
    pub fn write_index(&self, index: &mut Value) {
        if let Some(index) = index.as_object_mut() {
            for key in Record::KEYS {
                index.remove(key);
            }
        }
        if let Some(timesteps) = &self.timesteps {
            index["solver"] = json!("renoise");
            index["timesteps"] = json!(timesteps);
        }
        if !self.conditions.is_empty() {
            index["conditions"] = json!(self.conditions);
        }
        if let Some(scale) = self.reference_scale {
            index["reference_scale"] = json!(scale);
        }
    }

    /// Itself as the metadata of a file.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let mut metadata = BTreeMap::new();
        if let Some(timesteps) = &self.timesteps {
            metadata.insert("solver".to_owned(), "renoise".to_owned());
            metadata.insert("timesteps".to_owned(), json!(timesteps).to_string());
        }
        if !self.conditions.is_empty() {
            metadata.insert("conditions".to_owned(), json!(self.conditions).to_string());
        }
        if let Some(scale) = self.reference_scale {
            REFERENCE_KEYS.iter().for_each(|key| {
                metadata.insert((*key).to_owned(), scale.to_string());
            });
        }
        metadata
    }
}

impl Record {
    /// The record of a model that was trained on from one with this record: what it was shown before it
    /// may still be shown, but it is sampled as it was trained last.
    pub fn trained_on(self, later: Record) -> Record {
        let mut conditions = [self.conditions, later.conditions].concat();
        conditions.sort();
        conditions.dedup();
        let reference_scale = later.reference_scale.or(self.reference_scale);
        Record { timesteps: later.timesteps, conditions, reference_scale }
    }
}

impl Description {
    /// The same model as a record says that it is used.
    pub fn with_record(mut self, record: Record) -> Description {
        // A network that is shown pictures as channels has no room for clean tokens.
        let channels = |condition| self.conditions.enters(condition) == Some(EntersAs::Channels);
        if !Condition::ALL.into_iter().any(channels) {
            self.conditions = self.conditions.taking(&record.conditions, EntersAs::CleanTokens);
        }
        if let Some(scale) = record.reference_scale {
            self.conditions.reference_scale = scale.max(1);
        }
        Description { timesteps: record.timesteps.or(self.timesteps), ..self }
    }
}

fn parsed<T: DeserializeOwned>(
    metadata: &BTreeMap<String, String>,
    key: &str,
) -> Result<Option<T>> {
    let Some(text) = metadata.get(key) else { return Ok(None) };
    let value = serde_json::from_str(text)
        .map_err(|err| Error::Unfit(format!("`{key}` in the file's metadata: {err}")))?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::Record;
    use crate::conditions::Condition;

    /// A distilled model that is finetuned is no longer one of few steps, and forgets no condition.
    #[test]
    fn what_is_trained_on_is_recorded_anew() {
        let base = Record {
            timesteps: Some(vec![1000.0]),
            conditions: vec![Condition::Image],
            reference_scale: None,
        };
        let later = Record { conditions: vec![Condition::Mask], ..Record::default() };
        let both = base.clone().trained_on(later);
        assert_eq!(both.conditions, [Condition::Image, Condition::Mask]);
        assert_eq!(both.timesteps, None);
        let mut index = serde_json::json!({ "_class_name": "X" });
        base.write_index(&mut index);
        both.write_index(&mut index);
        assert!(index.get("timesteps").is_none() && index.get("solver").is_none(), "{index}");
    }

    #[test]
    fn a_record_comes_back_from_metadata() {
        let record = Record {
            timesteps: Some(vec![1000.0, 600.5]),
            conditions: vec![Condition::Image, Condition::Reference],
            reference_scale: Some(2),
        };
        assert_eq!(Record::of_metadata(&record.metadata()).unwrap(), record);
        assert_eq!(Record::of_metadata(&Record::default().metadata()).unwrap(), Record::default());
        let broken = [("timesteps".to_owned(), "often".to_owned())].into();
        assert!(Record::of_metadata(&broken).unwrap_err().to_string().contains("timesteps"));
    }
}
