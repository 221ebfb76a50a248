//! What the rest of the system knows about a model.

use std::sync::Arc;

use data::world::{SoundBlocks, Words};
use diffusion::{Geometry, Process, SchedulerConfig};
use folder::ModelFolder;
use folder::lora::Names;
use models::vae::Vae;
use nn::{Network, Split};
use schemars::{Schema, SchemaGenerator};
use serde_json::Value;

use crate::conditions::{Condition, Conditions, EntersAs};
use crate::error::Result;
use crate::table::foreign_lora;
use crate::text::{EncoderRules, TextRules};

/// What is the same for all models of a family.
#[derive(Debug)]
pub struct Family {
    /// Its name in recipes and reports.
    pub name: &'static str,
    /// Its name in sentences.
    pub title: &'static str,
    /// The classes that its pipelines have in `model_index.json`.
    pub classes: &'static [&'static str],
    /// What its indexes say beside their components.
    pub options: &'static [&'static str],
    /// Its text encoders in order, with their rules.
    pub text: &'static [EncoderRules],
    /// Modules whose matrices keep their stored type when the rest is rounded.
    pub kept: &'static [&'static str],
    /// The name of a layer or table in the family's own code, where it is another than diffusers'.
    pub original_name: fn(&str) -> Option<String>,
    /// The way back: diffusers' name of what the family's own code calls so.
    pub diffusers_name: fn(&str) -> Option<String>,
    /// Parts of keys that give away a LoRA of this family.
    pub lora_signs: &'static [&'static str],
    /// Which layers split how over ranks, by the end of their names.
    pub splits: &'static [(&'static str, Split)],
    /// What the validation of a training writes: the ending of a file.
    pub extension: &'static str,
    /// Reads the configs of a folder and checks them against each other; weights are not touched.
    pub describe: fn(&'static Family, &ModelFolder) -> Result<Description>,
    /// How a model begins anew, for families that are small enough.
    pub scratch: Option<Scratch>,
}

/// How a model of a family begins anew.
#[derive(Debug)]
pub struct Scratch {
    /// The JSON schema of its config.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Layers that begin at zero.
    pub zero: &'static [&'static str],
    /// Describes a model of a config.
    pub make: fn(&'static Family, &Value) -> Result<NewModel>,
}

/// A model that has learnt nothing yet.
pub struct NewModel {
    /// What it is.
    pub description: Description,
    /// Its config with every default filled in.
    pub config: Value,
    /// The JSON files of the folder that it will be exported to.
    pub files: Vec<(&'static str, Value)>,
}

/// What a folder holds.
#[derive(Clone)]
pub struct Description {
    /// The family.
    pub family: &'static Family,
    /// One transformer, or experts from much noise to little.
    pub transformers: Vec<Transformer>,
    /// The timestep below which the second expert takes over.
    pub boundary: Option<f64>,
    /// How noise is added and what is predicted.
    pub process: Process,
    /// How the folder says it is sampled.
    pub scheduler: SchedulerConfig,
    /// The timesteps of a student of few steps, if the folder records them.
    pub timesteps: Option<Vec<f64>>,
    /// How clips are cut into latents and tokens.
    pub geometry: Geometry,
    /// How prompts become embeddings.
    pub text: Text,
    /// What can be given beside a prompt.
    pub conditions: Conditions,
    /// Whether the transformer looks at the tokens of an image encoder, and at how many if that is
    /// fixed.
    pub image_tokens: Option<Option<usize>>,
    /// Clips to latents and back.
    pub vae: Arc<dyn Vae>,
    /// Sounds to latents and back.
    pub sound: Option<Sound>,
    /// What is made unless told otherwise.
    pub defaults: Defaults,
    /// Heights and widths of the training by their proportion, for families that round to them.
    pub trained_sizes: Vec<(f64, [usize; 2])>,
}

/// One network of a folder.
#[derive(Clone)]
pub struct Transformer {
    /// The folder of its config and weights.
    pub component: &'static str,
    /// The network.
    pub network: Arc<dyn Network>,
    /// Tensors that published files hold and no version of the model uses.
    pub ignored: Vec<String>,
}

/// How prompts become embeddings.
#[derive(Clone, Debug, PartialEq)]
pub enum Text {
    /// By the text encoders of the folder.
    Encoders {
        /// How the transformer's config calls the width it takes.
        key: &'static str,
        /// That width.
        width: usize,
    },
    /// Word by word, without an encoder.
    Words(Words),
}

/// How sound becomes latents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sound {
    /// The codec.
    pub codec: SoundBlocks,
    /// Samples per second.
    pub sample_rate: u32,
}

/// What is made unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// Denoising steps.
    pub steps: usize,
    /// Guidance scale.
    pub guidance: f64,
    /// Frames, height and width in pixels.
    pub size: [usize; 3],
    /// Frames per second.
    pub frame_rate: f64,
}

impl Family {
    /// The name of a parameter in the family's own code, where it is another than diffusers'.
    pub fn original_parameter(&self, name: &str) -> Option<String> {
        renamed_parameter(name, self.original_name)
    }

    /// The name of a parameter as diffusers has it, whichever of the two it has in a file.
    pub fn diffusers_parameter(&self, name: &str) -> String {
        let bare = ["model.diffusion_model.", "diffusion_model."]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(name);
        renamed_parameter(bare, self.diffusers_name).unwrap_or_else(|| bare.to_owned())
    }

    /// What a LoRA may call its layers.
    pub fn lora_names(&self) -> Names {
        Names { original: self.original_name, likely: foreign_lora }
    }
}

/// A parameter under another name of itself, or of the layer that it belongs to.
fn renamed_parameter(name: &str, rename: fn(&str) -> Option<String>) -> Option<String> {
    let of_layer = || {
        let (layer, part) = name.rsplit_once('.')?;
        Some(format!("{}.{part}", rename(layer)?))
    };
    rename(name).or_else(of_layer)
}

impl Description {
    /// Which transformer predicts at a timestep.
    pub fn expert(&self, timestep: f64) -> usize {
        let second = self.boundary.is_some_and(|boundary| timestep < boundary);
        usize::from(second && self.transformers.len() > 1)
    }

    /// The rules of a text encoder of the family's own.
    pub fn text_rules(&self, index: usize) -> Option<TextRules> {
        self.family.text.get(index).map(|own| own.rules)
    }

    /// Whether pictures are shown to the transformer as channels beside the noise.
    pub fn shows_channels(&self) -> bool {
        let channels = |condition| self.conditions.enters(condition) == Some(EntersAs::Channels);
        Condition::ALL.into_iter().any(channels)
    }

    /// The noise levels that an expert predicts at, from 0 (clean) to 1.
    pub fn expert_levels(&self, expert: usize) -> [f64; 2] {
        match self.boundary.filter(|_| self.transformers.len() > 1) {
            None => [0.0, 1.0],
            Some(boundary) => {
                let level = self.process.level(boundary);
                if expert == 0 { [level, 1.0] } else { [0.0, level] }
            }
        }
    }
}
