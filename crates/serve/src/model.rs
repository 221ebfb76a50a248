//! Models that are served, and what each takes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use diffusion::{Geometry, Grouping};
use engine::{Pipeline, Setup};
use families::{Condition, Description};
use folder::lora::LoraSource;
use nn::most_similar;
use serde_json::{Value, json};

use crate::ask::LoraAsk;
use crate::error::{Answer, Refusal, Result};

/// A model under its name. Requests are checked against it; the worker runs a pipeline of its own.
pub struct Model {
    id: String,
    /// Where it is, as it was said and as it is.
    places: Vec<PathBuf>,
    description: Description,
    template: Mutex<Pipeline>,
    command: Vec<String>,
}

impl Model {
    /// Opens a folder. Weights stay on disk.
    ///
    /// # Errors
    /// The folder is of no family we have, or a part of it is missing, damaged or unsupported.
    pub fn open(id: &str, path: &Path, setup: &Setup) -> Result<Model> {
        let pipeline = Pipeline::open(path, setup)?;
        let description = pipeline.description().clone();
        Ok(Model {
            id: id.to_owned(),
            places: [Some(path.to_owned()), path.canonicalize().ok()]
                .into_iter()
                .flatten()
                .collect(),
            description,
            template: Mutex::new(pipeline),
            command: Vec::new(),
        })
    }

    /// The same, which `moviola generate` opens in the same way with these arguments: the page tells them to
    /// whoever has this machine.
    #[must_use]
    pub fn with_command(self, command: Vec<String>) -> Model {
        Model { command, ..self }
    }

    /// The arguments with which `moviola generate` opens it.
    pub(crate) fn command(&self) -> &[String] {
        &self.command
    }

    /// Where it is.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Path> {
        self.places.iter().map(PathBuf::as_path)
    }

    /// Its name in requests.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What it is.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// Which files it is read from.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn fingerprint(&self) -> Result<String> {
        let place = self.places.first().expect("a model was opened somewhere");
        Ok(engine::model_fingerprint(place)?)
    }

    /// A pipeline of one's own.
    pub(crate) fn pipeline(&self) -> Pipeline {
        self.template.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether it makes pictures only.
    pub(crate) fn makes_pictures(&self) -> bool {
        self.description.geometry.grouping == Grouping::Picture
    }

    /// The legal number of frames that is nearest to one.
    pub(crate) fn nearest_frames(&self, wanted: f64) -> usize {
        nearest_frames(&self.description.geometry, wanted)
    }

    /// The largest legal number of frames that is not above one.
    pub(crate) fn frames_within(&self, most: usize) -> usize {
        let geometry = &self.description.geometry;
        let nearest = self.nearest_frames(most as f64);
        match nearest > most {
            true => self.nearest_frames(
                most as f64 - (geometry.factors[0] * geometry.patch[0]) as f64 / 2.0,
            ),
            false => nearest,
        }
    }

    /// What a form for it needs to know.
    pub(crate) fn facts(&self) -> Value {
        let Description { family, transformers, timesteps, geometry, conditions, defaults, .. } =
            &self.description;
        let [frames, height, width] = defaults.size;
        let side = |axis: usize| (geometry.factors[axis] * geometry.patch[axis]).max(1);
        let step = geometry.factors[0] * geometry.patch[0];
        let first = self.nearest_frames(1.0);
        let taken = |condition: Condition| {
            json!({
                "name": condition,
                "field": crate::error::wire_name(condition.into()),
                "required": conditions.required == Some(condition),
                "takes": kinds(condition),
                "several": matches!(condition, Condition::Keyframe | Condition::Reference),
            })
        };
        let is_distilled = timesteps.is_some();
        json!({
            "id": self.id,
            "family": family.title,
            "makes": if self.makes_pictures() { "image" } else { "video" },
            "makes_single_frames": nearest_frames(geometry, 1.0) == 1,
            "size": { "width": width, "height": height, "width_step": side(2), "height_step": side(1) },
            "trained_sizes": self.description.trained_sizes.iter().map(|(_, size)| json!([size[1], size[0]])).collect::<Vec<_>>(),
            "num_frames": { "default": frames, "first": first, "step": if self.makes_pictures() { 0 } else { step } },
            "fps": if self.makes_pictures() { Value::Null } else { json!(defaults.frame_rate) },
            "seconds": if self.makes_pictures() { Value::Null } else { json!(frames as f64 / defaults.frame_rate) },
            "num_inference_steps": timesteps.as_ref().map_or(defaults.steps, Vec::len),
            "is_distilled": is_distilled,
            "guidance_scale": if is_distilled { 1.0 } else { defaults.guidance },
            "experts": transformers.len(),
            "sound": self.description.sound.is_some(),
            "conditions": conditions.taken().map(taken).collect::<Vec<_>>(),
        })
    }
}

/// What may be given as a condition.
fn kinds(condition: Condition) -> &'static [&'static str] {
    match condition {
        Condition::Image | Condition::LastImage | Condition::Keyframe => &["picture"],
        Condition::VideoPrefix | Condition::Video => &["clip"],
        Condition::Mask | Condition::Reference => &["picture", "clip"],
        Condition::Audio => &["sound"],
    }
}

/// The legal number of frames that is nearest to one; the smaller of two that are equally near.
fn nearest_frames(geometry: &Geometry, wanted: f64) -> usize {
    if geometry.grouping == Grouping::Picture {
        return 1;
    }
    let patch = geometry.patch[0].max(1);
    let per_token = (geometry.factors[0] * patch).max(1) as f64;
    let about = (wanted / per_token).clamp(0.0, 1e9) as usize;
    let near =
        (about.saturating_sub(1).max(1)..=about + 2).map(|tokens| geometry.frames(tokens * patch));
    let far = |frames: &usize| (*frames as f64 - wanted).abs();
    near.min_by(|a, b| far(a).total_cmp(&far(b))).unwrap_or(1)
}

/// The models of a server; the first one is meant where none is named.
pub(crate) struct Models(pub(crate) Vec<Model>);

impl Models {
    /// A model by its name.
    ///
    /// # Errors
    /// There is none; the nearest is named.
    pub(crate) fn find(&self, name: Option<&str>) -> Answer<&Model> {
        let Some(name) = name else {
            return self.0.first().ok_or_else(|| Refusal::not_found("no model is served"));
        };
        self.0.iter().find(|model| model.id == name).ok_or_else(|| {
            let names: Vec<&str> = self.0.iter().map(Model::id).collect();
            let near = most_similar(name, names.iter().copied());
            let near = near.map_or(String::new(), |near| format!("did you mean `{near}`? "));
            let all = names.join(", ");
            Refusal::field("model", format!("model: there is no `{name}`; {near}there are {all}"))
        })
    }
}

/// What tells a file from the one that has taken its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    bytes: u64,
    changed: SystemTime,
}

/// LoRAs of a folder by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loras {
    folder: Option<PathBuf>,
}

impl Loras {
    pub(crate) fn of(folder: Option<PathBuf>) -> Loras {
        // As whoever copies a command can use it from anywhere.
        Loras { folder: folder.map(|folder| folder.canonicalize().unwrap_or(folder)) }
    }

    /// LoRAs of a request, each with how its file is now.
    pub(crate) fn stamped(&self, asked: &[LoraAsk]) -> Vec<(LoraAsk, Option<Stamp>)> {
        let known = self.list();
        let stamp = |ask: &LoraAsk| {
            let facts = fs::metadata(known.get(&ask.name)?).ok()?;
            Some(Stamp { bytes: facts.len(), changed: facts.modified().ok()? })
        };
        asked.iter().map(|ask| (ask.clone(), stamp(ask))).collect()
    }

    /// Where they are.
    pub(crate) fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// What is said of one, without where it is.
    pub(crate) fn hide(&self, refusal: Refusal) -> Refusal {
        match &self.folder {
            Some(folder) => refusal.without(folder),
            None => refusal,
        }
    }

    /// All of them as they are now: the name of each file without its ending.
    pub(crate) fn list(&self) -> BTreeMap<String, PathBuf> {
        let Some(folder) = &self.folder else { return BTreeMap::new() };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let path = entry.path();
            let is_lora =
                path.extension().is_some_and(|own| own == "safetensors") && path.is_file();
            let name = path.file_stem().filter(|_| is_lora)?.to_str()?.to_owned();
            Some((name, path))
        });
        named.collect()
    }

    /// A pipeline with the LoRAs of a request.
    ///
    /// # Errors
    /// There is none of a name, or it does not belong to this model.
    pub(crate) fn adapted(&self, base: &Pipeline, asked: &[LoraAsk]) -> Answer<Pipeline> {
        if asked.is_empty() {
            return Ok(base.clone());
        }
        let sources = self.sources(asked)?;
        let adapted = base.with_loras(&sources, &[]).map_err(Refusal::of_engine);
        adapted.map_err(|refusal| self.hide(refusal))
    }

    /// Which files those of a request are, whatever their names: processes compare it.
    ///
    /// # Errors
    /// There is none of a name, or it cannot be read.
    pub(crate) fn fingerprints(&self, asked: &[LoraAsk]) -> Answer<Vec<String>> {
        let sources = self.sources(asked)?;
        let all = sources.iter().map(|own| engine::file_fingerprint(&own.path));
        all.collect::<engine::Result<_>>().map_err(|error| self.hide(Refusal::of_engine(error)))
    }

    /// Those that a request names. Only names of the folder are known, so that no path is ever opened.
    ///
    /// # Errors
    /// There is none of a name.
    pub(crate) fn sources(&self, asked: &[LoraAsk]) -> Answer<Vec<LoraSource>> {
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.list();
        let one = |ask: &LoraAsk| match known.get(&ask.name) {
            Some(path) => Ok(LoraSource { path: path.clone(), scale: ask.scale }),
            None => {
                let near = most_similar(&ask.name, known.keys().map(String::as_str));
                let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                let reason =
                    format!("lora: there is no `{}`{near} (GET /v1/loras lists them)", ask.name);
                Err(Refusal::field("lora", reason))
            }
        };
        asked.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use diffusion::{Geometry, Grouping};

    use super::nearest_frames;

    #[test]
    fn frames_are_rounded_to_the_nearest_that_can_be_made() {
        let causal = Geometry::indices([1, 2, 2]);
        for (wanted, frames) in
            [(0.0, 1), (1.0, 1), (3.0, 1), (3.1, 5), (16.0, 17), (96.0, 97), (81.0, 81)]
        {
            assert_eq!(nearest_frames(&causal, wanted), frames, "{wanted}");
        }
        let even = Geometry { grouping: Grouping::Even, factors: [2, 8, 8], ..causal };
        for (wanted, frames) in [(0.0, 2), (1.0, 2), (8.0, 8), (8.9, 8), (9.1, 10)] {
            assert_eq!(nearest_frames(&even, wanted), frames, "{wanted}");
        }
        let picture = Geometry { grouping: Grouping::Picture, ..causal };
        assert_eq!(nearest_frames(&picture, 7.0), 1);
    }
}
