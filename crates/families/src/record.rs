//! What a trained model says of itself beside its configs: how it is sampled, and what it was shown.
//!
//! `export` writes it, into the index of a folder or the metadata of a file; whoever opens a folder, a
//! LoRA or a single file reads it, so that what was trained can be used.

use std::collections::BTreeMap;
use std::num::NonZero;

use folder::{Error, ModelFolder};
use models::dit::ltx2::CrossLevels;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::conditions::{Condition, EntersAs};
use crate::description::Description;
use crate::error::Result;

/// How much smaller references are, in files: LTX-2's name for it, and an older one.
const REFERENCE_KEYS: [&str; 2] = ["reference_spatial_scale_factor", "reference_downscale_factor"];

/// The rule for levels where streams meet, in files: as requests call it.
const CROSS_KEY: &str = "cross_timestep";

/// The record of a trained model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// How it is sampled, if it says so; as its folder is otherwise.
    pub sampled: Option<SampledBy>,
    /// What it was shown beside prompts.
    pub conditions: Vec<Condition>,
    /// How many times smaller its references were, if it had any.
    pub reference_scale: Option<usize>,
    /// Whose noise levels counted where its streams met, if they did.
    pub cross_levels: Option<CrossLevels>,
}

/// How a trained model is sampled.
#[derive(Clone, Debug, PartialEq)]
pub enum SampledBy {
    /// In the steps of its folder's scheduler.
    Scheduler,
    /// At these timesteps, a student of few steps: clean latents are predicted and noised again.
    Renoise(Vec<f64>),
}

impl SampledBy {
    /// What `solver` and `timesteps` of a record say.
    fn read(solver: Option<&str>, timesteps: Option<Vec<f64>>) -> Result<Option<SampledBy>> {
        let wrong = |reason: String| Err(Error::Unfit(reason).into());
        match (solver, timesteps) {
            (None, None) => Ok(None),
            (Some("scheduler"), None) => Ok(Some(SampledBy::Scheduler)),
            (None | Some("renoise"), Some(timesteps)) => Ok(Some(SampledBy::Renoise(timesteps))),
            (Some("renoise"), None) => {
                wrong("`solver` is renoise, but there are no `timesteps`; record them".to_owned())
            }
            (Some("scheduler"), Some(_)) => wrong(
                "`solver` is scheduler, which has timesteps of its own; remove `timesteps`"
                    .to_owned(),
            ),
            (Some(other), _) => {
                wrong(format!("`solver` is {other}; supported: renoise, scheduler"))
            }
        }
    }

    fn name(&self) -> &'static str {
        match self {
            SampledBy::Scheduler => "scheduler",
            SampledBy::Renoise(_) => "renoise",
        }
    }

    /// The timesteps of a student of few steps.
    fn timesteps(&self) -> Option<&[f64]> {
        match self {
            SampledBy::Scheduler => None,
            SampledBy::Renoise(timesteps) => Some(timesteps),
        }
    }
}

impl Record {
    /// Where it stands in the index of a folder.
    pub(crate) const KEYS: [&str; 5] =
        ["solver", "timesteps", "conditions", "reference_scale", CROSS_KEY];

    /// What the index of a folder says.
    ///
    /// # Errors
    /// A key has another type, or contradicts another.
    pub fn of_folder(folder: &ModelFolder) -> Result<Record> {
        let solver: Option<String> = folder.option("solver")?;
        Ok(Record {
            sampled: SampledBy::read(solver.as_deref(), folder.option("timesteps")?)?,
            conditions: folder.option::<IndexConditions>("conditions")?.unwrap_or_default().0,
            reference_scale: folder.option::<NonZero<usize>>("reference_scale")?.map(NonZero::get),
            cross_levels: folder.option(CROSS_KEY)?,
        })
    }

    /// What the metadata of a safetensors file say.
    ///
    /// # Errors
    /// A key has another type, or contradicts another.
    pub fn of_metadata(metadata: &BTreeMap<String, String>) -> Result<Record> {
        let solver = metadata.get("solver").map(String::as_str);
        let mut scales = REFERENCE_KEYS.iter().map(|key| parsed::<NonZero<usize>>(metadata, key));
        let scale = scales.find(|scale| !matches!(scale, Ok(None))).transpose()?.flatten();
        Ok(Record {
            sampled: SampledBy::read(solver, parsed(metadata, "timesteps")?)?,
            conditions: parsed(metadata, "conditions")?.unwrap_or_default(),
            reference_scale: scale.map(NonZero::get),
            cross_levels: match metadata.get(CROSS_KEY) {
                None => None,
                Some(word) => {
                    let rule = serde_json::from_value(json!(word));
                    let wrong =
                        |err| Error::Unfit(format!("`{CROSS_KEY}` in the file's metadata: {err}"));
                    Some(rule.map_err(wrong)?)
                }
            },
        })
    }

    /// Puts itself into the index of a folder, in the place of what was recorded there.
    pub fn write_index(&self, index: &mut Value) {
        if let Some(index) = index.as_object_mut() {
            for key in Record::KEYS {
                index.remove(key);
            }
        }
        // A folder that says nothing is sampled by its scheduler.
        if let Some(SampledBy::Renoise(timesteps)) = &self.sampled {
            index["solver"] = json!("renoise");
            index["timesteps"] = json!(timesteps);
        }
        if !self.conditions.is_empty() {
            let words: Vec<String> = self.conditions.iter().map(Condition::to_string).collect();
            index["conditions"] = json!(words.join(", "));
        }
        if let Some(scale) = self.reference_scale {
            index["reference_scale"] = json!(scale);
        }
        if let Some(rule) = self.cross_levels {
            index[CROSS_KEY] = json!(rule);
        }
    }

    /// Itself as the metadata of a file.
    pub fn metadata(&self) -> BTreeMap<String, String> {
        let mut metadata = BTreeMap::new();
        if let Some(sampled) = &self.sampled {
            metadata.insert("solver".to_owned(), sampled.name().to_owned());
            let timesteps = sampled.timesteps().map(|timesteps| json!(timesteps).to_string());
            metadata.extend(timesteps.map(|timesteps| ("timesteps".to_owned(), timesteps)));
        }
        if !self.conditions.is_empty() {
            metadata.insert("conditions".to_owned(), json!(self.conditions).to_string());
        }
        if let Some(scale) = self.reference_scale {
            REFERENCE_KEYS.iter().for_each(|key| {
                metadata.insert((*key).to_owned(), scale.to_string());
            });
        }
        if let Some(Value::String(word)) = self.cross_levels.map(|rule| json!(rule)) {
            metadata.insert(CROSS_KEY.to_owned(), word);
        }
        metadata
    }

    /// The record of a model that was trained on from one with this record: what it was shown before it
    /// may still be shown, but it is sampled as it was trained last.
    pub fn trained_on(self, later: Record) -> Record {
        let mut conditions = [self.conditions, later.conditions].concat();
        conditions.sort();
        conditions.dedup();
        let reference_scale = later.reference_scale.or(self.reference_scale);
        let cross_levels = later.cross_levels.or(self.cross_levels);
        Record { sampled: later.sampled, conditions, reference_scale, cross_levels }
    }
}

impl Description {
    /// The same model as a record says that it is used.
    pub fn with_record(mut self, record: Record) -> Description {
        // A network that is shown pictures as channels has no room for clean tokens.
        let channels = |condition| self.conditions.enters(condition) == Some(EntersAs::Channels);
        if !Condition::ALL.into_iter().any(channels) {
            self.conditions = self.conditions.trained_with(&record.conditions);
        }
        if let Some(scale) = record.reference_scale {
            self.conditions.reference_scale = scale;
        }
        if let Some(rule) = record.cross_levels {
            self = self.meeting_by(rule);
        }
        if let Some(sampled) = record.sampled {
            self.timesteps = sampled.timesteps().map(<[f64]>::to_vec);
        }
        self
    }
}

/// The conditions of an index: one text, for a list of two texts is a component there, to us as to
/// diffusers. Indices that were written before hold lists.
#[derive(Default, Deserialize)]
#[serde(try_from = "Value")]
struct IndexConditions(Vec<Condition>);

impl TryFrom<Value> for IndexConditions {
    type Error = serde_json::Error;

    fn try_from(value: Value) -> std::result::Result<IndexConditions, serde_json::Error> {
        let words = match &value {
            Value::String(words) => json!(words.split(", ").collect::<Vec<_>>()),
            _ => value,
        };
        serde_json::from_value(words).map(IndexConditions)
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
    use models::dit::ltx2::CrossLevels;

    use super::{Record, SampledBy};
    use crate::conditions::Condition;

    /// A distilled model that is finetuned is no longer one of few steps, and forgets no condition.
    #[test]
    fn what_is_trained_on_is_recorded_anew() {
        let base = Record {
            sampled: Some(SampledBy::Renoise(vec![1000.0])),
            conditions: vec![Condition::Image],
            reference_scale: Some(4),
            cross_levels: Some(CrossLevels::Other),
        };
        let later = Record {
            sampled: Some(SampledBy::Scheduler),
            conditions: vec![Condition::Mask],
            ..Record::default()
        };
        let both = base.clone().trained_on(later);
        assert_eq!(both.conditions, [Condition::Image, Condition::Mask]);
        assert_eq!(both.sampled, Some(SampledBy::Scheduler));
        assert_eq!(both.reference_scale, Some(4));
        // What was trained on a video alone says nothing of where it meets the sound.
        assert_eq!(both.cross_levels, Some(CrossLevels::Other));
        let met = Record { cross_levels: Some(CrossLevels::Original), ..Record::default() };
        assert_eq!(base.clone().trained_on(met).cross_levels, Some(CrossLevels::Original));
        let again = Record { reference_scale: Some(2), ..Record::default() };
        assert_eq!(base.clone().trained_on(again).reference_scale, Some(2));
        let mut index = serde_json::json!({ "_class_name": "X" });
        base.write_index(&mut index);
        both.write_index(&mut index);
        assert!(index.get("timesteps").is_none() && index.get("solver").is_none(), "{index}");
    }

    #[test]
    fn a_record_comes_back_from_metadata() {
        let record = Record {
            sampled: Some(SampledBy::Renoise(vec![1000.0, 600.5])),
            conditions: vec![Condition::Image, Condition::Reference],
            reference_scale: Some(2),
            cross_levels: Some(CrossLevels::Own),
        };
        let scheduled = Record { sampled: Some(SampledBy::Scheduler), ..Record::default() };
        for record in [record, scheduled, Record::default()] {
            assert_eq!(Record::of_metadata(&record.metadata()).unwrap(), record);
        }
    }

    /// However many conditions there are: two of them are no component.
    #[test]
    fn a_record_comes_back_from_an_index() {
        let folder = tempfile::tempdir().unwrap();
        for count in 0..=Condition::ALL.len() {
            let rules = [CrossLevels::Original, CrossLevels::Own, CrossLevels::Other];
            let record = Record {
                conditions: Condition::ALL[..count].to_vec(),
                cross_levels: rules.get(count).copied(),
                ..Record::default()
            };
            let mut index = serde_json::json!({ "_class_name": "X" });
            record.write_index(&mut index);
            std::fs::write(folder.path().join("model_index.json"), index.to_string()).unwrap();
            let opened = folder::ModelFolder::open(folder.path()).unwrap();
            assert_eq!(Record::of_folder(&opened).unwrap(), record);
            assert_eq!(opened.components().count(), 0, "{index}");
        }
    }

    #[test]
    fn what_a_record_cannot_mean_is_refused_by_name() {
        let cases: [(&[(&str, &str)], &str); 7] = [
            (
                &[("cross_timestep", "both")],
                "`cross_timestep` in the file's metadata: unknown variant `both`",
            ),
            (&[("timesteps", "often")], "`timesteps`"),
            (&[("solver", "renoise")], "there are no `timesteps`"),
            (&[("solver", "scheduler"), ("timesteps", "[1000]")], "remove `timesteps`"),
            (&[("solver", "euler")], "`solver` is euler"),
            (&[("reference_downscale_factor", "half")], "`reference_downscale_factor`"),
            (&[("reference_spatial_scale_factor", "0")], "`reference_spatial_scale_factor`"),
        ];
        for (entries, words) in cases {
            let metadata =
                entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let refused = Record::of_metadata(&metadata.collect()).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        }
    }
}
