//! A network with its parameters, as training needs it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor};
use data::preprocess::Encode;
use data::store::{BESIDE, Fingerprint, IMAGE};
use diffusion::Draw;
use engine::{EncoderSetup, FolderEncoder};
use families::{CrossLevels, Description, NewModel, Record, Text, TextRules};
use folder::{Hub, ModelFolder};
use nn::{Context, Network, Precision, Store};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::new::NewConfig;
use crate::schema::ExpertConfig;

/// A network with its parameters, and what its family says about it.
pub struct Model {
    /// What it is.
    pub description: Description,
    /// Its parameters.
    pub store: Store,
    /// How it wants its text.
    pub text: TextForm,
    /// Which encoders its data must have been made with, if it has any.
    pub encoders: Option<Fingerprint>,
    /// What the folder that it comes from records.
    pub record: Record,
    /// Where it comes from.
    pub origin: Origin,
    /// Which of the description's transformers it is.
    pub expert: usize,
}

/// Where a network comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// It has learnt nothing yet; these are the JSON files of the folder it will be exported to.
    New(Vec<(&'static str, Value)>),
    /// A diffusers folder.
    Folder(PathBuf),
}

/// How a family wants its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// As it is: all texts have one length.
    Whole,
    /// As the encoders of its folder prepare it.
    Rules(TextRules),
}

impl TextForm {
    /// Text `[B, L, D]` with its mask `[B, L]` as the family wants it.
    ///
    /// # Errors
    /// There are more tokens than the family takes.
    pub fn context(&self, tokens: Tensor<3>, mask: Tensor<2>) -> families::Result<Context> {
        match self {
            TextForm::Whole => Ok(Context::text(tokens, None)),
            TextForm::Rules(rules) => rules.context(tokens, mask),
        }
    }
}

impl Model {
    /// A network that has learnt nothing yet.
    ///
    /// # Errors
    /// Its numbers cannot be.
    pub fn new(config: &NewConfig, seed: u64, device: &Device) -> Result<Model> {
        let (NewModel { description, files, .. }, zero) = config.make()?;
        let draw = Draw::new(seed).stream("initial-parameters");
        let store = train::initial(&*description.transformers[0].network, zero, draw, device)?;
        let (text, encoders) = (TextForm::Whole, None);
        let (record, origin) = (Record::default(), Origin::New(files));
        Ok(Model { description, store, text, encoders, record, origin, expert: 0 })
    }

    /// The transformer of a diffusers folder, its parameters as they are stored.
    ///
    /// # Errors
    /// The folder is of no family we can train, or a part of it is missing or damaged.
    pub fn open(path: &Path, device: &Device) -> Result<Model> {
        Model::open_expert(path, None, device)
    }

    /// The same for one of a folder's experts.
    ///
    /// # Errors
    /// As [`Model::open`], or the folder has two experts and none is named, or one and one is named.
    pub fn open_expert(
        path: &Path,
        expert: Option<ExpertConfig>,
        device: &Device,
    ) -> Result<Model> {
        let folder = ModelFolder::open(path)?;
        let description = families::describe(&folder)?;
        let expert = which(&description, expert)?;
        let transformer = &description.transformers[expert];
        let files = folder.weights(transformer.component)?;
        let mut store = Store::open(&files, Precision::Stored, device)?;
        transformer.ignored.iter().for_each(|name| _ = store.remove(name));
        let (text, encoders) = match &description.text {
            Text::Words(_) => (TextForm::Whole, None),
            Text::Encoders { .. } => {
                // Their weights are not read.
                let setup = EncoderSetup { device: device.clone(), dtype: FloatDType::F32 };
                let encoder = FolderEncoder::open(path, &setup)?;
                (TextForm::Rules(encoder.text_rules()), Some(encoder.fingerprint()))
            }
        };
        let (record, origin) = (Record::of_folder(&folder)?, Origin::Folder(path.to_owned()));
        Ok(Model { description, store, text, encoders, record, origin, expert })
    }

    /// The same model with the parameters of a single file, under diffusers' names or the family's own.
    ///
    /// # Errors
    /// The file cannot be read, or is not of this network.
    pub fn with_weights(self, file: &Path, device: &Device) -> Result<Model> {
        let family = self.description.family;
        let store = Store::open(&[file.to_owned()], Precision::Stored, device)?;
        let mut store = store.renamed(|name| family.transformer_parameter(name));
        let transformer = &self.description.transformers[self.expert];
        transformer.ignored.iter().for_each(|name| _ = store.remove(name));
        store.take_shapes(|weights| transformer.network.declare(weights))?;
        store.agree(&[], |weights| transformer.network.declare(weights))?;
        Ok(Model { store, ..self })
    }

    /// Opens the folder or hub id that a role of a recipe comes from.
    ///
    /// # Errors
    /// It cannot be used; the error names the role.
    pub(crate) fn of_role(
        role: &str,
        (from, expert): (&str, Option<ExpertConfig>),
        device: &Device,
        hub: &Hub,
    ) -> Result<Model> {
        let model = Model::open_expert(&locate(role, from, hub)?, expert, device);
        model.map_err(|err| Error::Recipe(format!("models.{role}: {err}")))
    }

    /// The same model, whose streams meet by a rule of the levels.
    ///
    /// # Errors
    /// It has no streams that meet; the error names the role.
    pub(crate) fn meeting_by(self, role: &str, rule: Option<CrossLevels>) -> Result<Model> {
        let Some(rule) = rule else { return Ok(self) };
        if self.description.cross_levels().is_none() {
            return Err(Error::Recipe(format!(
                "models.cross_timestep is about video and sound that meet in a network, and models.{role} is {}, in \
                 which there is no choice; remove it",
                self.description.family.title
            )));
        }
        let description = self.description.meeting_by(rule);
        Ok(Model { description, ..self })
    }

    /// The network.
    pub fn network(&self) -> &Arc<dyn Network> {
        &self.description.transformers[self.expert].network
    }

    /// The folder of its config and weights within the model's.
    pub fn component(&self) -> &'static str {
        self.description.transformers[self.expert].component
    }

    /// The noise levels that it predicts at.
    pub(crate) fn levels(&self) -> [f64; 2] {
        self.description.expert_levels(self.expert)
    }

    /// Keys of what it is shown of pictures.
    pub(crate) fn shown(&self) -> Vec<&'static str> {
        let keys = [
            (BESIDE, self.description.shows_channels()),
            (IMAGE, self.description.image_tokens.is_some()),
        ];
        keys.into_iter().filter(|(_, is_shown)| *is_shown).map(|(key, _)| key).collect()
    }
}

/// Which of a folder's transformers is meant.
fn which(description: &Description, expert: Option<ExpertConfig>) -> Result<usize> {
    let refuse = |reason: &str| Err(Error::Recipe(reason.to_owned()));
    match (description.transformers.len(), expert) {
        (1, None) => Ok(0),
        (1, Some(_)) => refuse(
            "`expert` names one of two experts, but the folder has one transformer; leave it out",
        ),
        (_, Some(ExpertConfig::High)) => Ok(0),
        (_, Some(ExpertConfig::Low)) => Ok(1),
        (_, Some(ExpertConfig::Both)) => {
            refuse("both experts are two networks; open each by itself")
        }
        (_, None) => refuse(
            "the folder has two experts. Of a student that method finetune trains say which learns, with `expert: \
             high`, `expert: low` or `expert: both`; teachers, critics and students of other methods come from \
             folders with one transformer",
        ),
    }
}

/// Where the folder or hub id lies that a role of a recipe comes from.
///
/// # Errors
/// It is nowhere; the error names the role.
pub(crate) fn locate(role: &str, from: &str, hub: &Hub) -> Result<PathBuf> {
    folder::locate(from, hub).map_err(|err| Error::Recipe(format!("models.{role}: {err}")))
}
