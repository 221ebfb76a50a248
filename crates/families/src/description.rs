//! What the rest of the system knows about a model.

use std::sync::Arc;

use data::world::Words;
use diffusion::{Geometry, Process, SchedulerConfig, Terms};
use folder::ModelFolder;
use folder::lora::Names;
use models::dit::ltx2::CrossLevels;
use models::sound::SoundCodec;
use models::vae::{LatentUpsampler, Vae};
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
    /// What a GGUF file of it says that its architecture is, as others call it.
    pub architecture: &'static str,
    /// How the names of tensors begin that a single file holds beside the transformer's.
    pub other_parts: &'static [&'static str],
    /// Parts of keys that give away a LoRA of this family.
    pub lora_signs: &'static [&'static str],
    /// Which layers split how over ranks, by the end of their names.
    pub splits: &'static [(&'static str, Split)],
    /// What the validation of a training writes: the ending of a file.
    pub extension: &'static str,
    /// Reads the configs of a folder and checks them against each other; weights are not touched.
    pub describe: fn(&'static Family, &ModelFolder) -> Result<Description>,
    /// Where its distilled checkpoints take their few steps, where it publishes such.
    pub distilled: Option<Distilled>,
    /// Reads the config of what makes its latents larger, where it publishes such.
    pub upsampler: Option<ReadUpsampler>,
    /// How a model begins anew, for families that are small enough.
    pub scratch: Option<Scratch>,
}

/// Reads the config of what makes latents larger.
pub type ReadUpsampler = fn(&str) -> nn::Result<Arc<dyn LatentUpsampler>>;

/// Noise levels at which the distilled checkpoints of a family take their few steps, without guidance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distilled {
    /// From pure noise on.
    pub levels: &'static [f64],
    /// Of latents that were made larger.
    pub enlarged: &'static [f64],
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
    /// Where the steps of the scheduler stand before it shifts them.
    pub ladder: Ladder,
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
    /// The same network by another rule for the levels where its streams meet, if it has two.
    pub meeting: Option<Meeting>,
    /// Tensors that published files hold and no version of the model uses.
    pub ignored: Vec<String>,
}

/// A network whose streams meet, by one of several rules for the levels where they do.
#[derive(Clone)]
pub struct Meeting {
    /// The rule unless another is asked for: that of the training.
    pub usual: CrossLevels,
    /// Makes the network that follows a rule.
    pub make: MakeMeeting,
}

/// Makes a network that follows a rule for the levels where its streams meet.
pub type MakeMeeting = Arc<dyn Fn(CrossLevels) -> Arc<dyn Network> + Send + Sync>;

/// Where the steps of a scheduler stand before it shifts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ladder {
    /// Where the scheduler puts them.
    Scheduler,
    /// Evenly from pure noise down to one step above none.
    Even,
}

impl Ladder {
    /// The levels of so many steps, if they are not the scheduler's own.
    pub fn levels(self, steps: usize) -> Option<Vec<f64>> {
        let count = steps.max(1) as f64;
        (self == Ladder::Even)
            .then(|| (0..steps).map(|step| (count - step as f64) / count).collect())
    }
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
#[derive(Clone)]
pub struct Sound {
    /// The codec.
    pub codec: Arc<dyn SoundCodec>,
    /// The folders of its VAE and of its vocoder, if it has parameters.
    pub components: Option<[&'static str; 2]>,
}

impl Sound {
    /// Values of a token.
    pub fn channels(&self) -> usize {
        self.codec.latent_shape().iter().product()
    }
}

/// Guidance of models that are pushed away from more than an empty prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GuidanceTerms {
    /// The video's; its scale is that of the model's defaults.
    pub video: Terms,
    /// The sound's.
    pub audio: Terms,
    /// The block that spatio-temporal guidance skips.
    pub skipped: usize,
}

/// What is made unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Defaults {
    /// Denoising steps.
    pub steps: usize,
    /// Guidance scale.
    pub guidance: f64,
    /// More guidance, for models that have it.
    pub terms: Option<GuidanceTerms>,
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

    /// The name of a tensor of a single file as diffusers has it, if it is the transformer's.
    pub fn transformer_parameter(&self, name: &str) -> Option<String> {
        let foreign = self.other_parts.iter().any(|part| name.starts_with(part));
        (!foreign).then(|| self.diffusers_parameter(name))
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

    /// Follows a rule for the levels where the streams meet, the one of the training if none is asked for.
    pub fn meet_by(&mut self, rule: Option<CrossLevels>) {
        for own in &mut self.transformers {
            if let Some(meeting) = &own.meeting {
                own.network = (meeting.make)(rule.unwrap_or(meeting.usual));
            }
        }
    }

    /// The rule for the levels where the streams meet unless another is asked for, if there are several.
    pub fn cross_levels(&self) -> Option<CrossLevels> {
        self.transformers[0].meeting.as_ref().map(|meeting| meeting.usual)
    }

    /// The same model, whose streams meet by this rule unless another is asked for.
    pub fn meeting_by(mut self, rule: CrossLevels) -> Description {
        let all = self.transformers.iter_mut().filter_map(|own| own.meeting.as_mut());
        all.for_each(|meeting| meeting.usual = rule);
        self.meet_by(None);
        self
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
