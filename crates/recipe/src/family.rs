//! Networks of every family as training needs them: the one place that knows them all.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, FloatDType, Tensor};
use data::preprocess::Encode;
use data::store::Fingerprint;
use diffusion::{AudioClock, Coordinates, Draw, Process, SchedulerConfig, Time};
use engine::lora::Naming;
use engine::{EncoderSetup, FolderEncoder, ModelFolder, TextRules};
use models::dit::duet::{Duet, DuetConfig};
use models::dit::pixart::{Pixart, PixartConfig};
use models::dit::wan::{Wan, WanConfig};
use models::vae::kl::KlConfig;
use models::vae::wan::WanVaeConfig;
use nn::Network;
use nn::{Context, Precision, Store};
use strategies::Geometry;

use crate::error::{Error, Result};
use crate::schema::NewConfig;

/// A network with its parameters, and what its family says about training it.
pub struct Model {
    /// The network.
    pub network: Arc<dyn Network>,
    /// Its parameters.
    pub store: Store,
    /// What it predicts.
    pub process: Process,
    /// How latents become its tokens.
    pub geometry: Geometry,
    /// How it wants its text.
    pub text: TextForm,
    /// Which encoders its data must have been made with, if it has any.
    pub encoders: Option<Fingerprint>,
    /// How its folder says it is sampled.
    pub scheduler: SchedulerConfig,
    /// The timesteps of a distilled model, if its folder records them.
    pub timesteps: Option<Vec<f64>>,
    /// How LoRAs may call its layers.
    pub naming: Naming,
    /// As what its clips are written: the ending of a file.
    pub clips: &'static str,
    /// Where it comes from.
    pub origin: Origin,
    /// What the family is called in reports.
    pub family: &'static str,
}

/// Where a network comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// It has learnt nothing yet.
    New(NewConfig),
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
    pub fn context(&self, tokens: Tensor<3>, mask: Tensor<2>) -> engine::Result<Context> {
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
        let NewConfig::Duet(duet) = config;
        duet.check()?;
        let network = Duet { config: duet.clone() };
        let draw = Draw::new(seed).stream("initial-parameters");
        let store = train::initial(&network, &Duet::ZERO, draw, device)?;
        let scheduler = SchedulerConfig::from_json(engine::DUET_SCHEDULER)?;
        Ok(of_duet(network, store, scheduler, Origin::New(config.clone())))
    }

    /// The transformer of a diffusers folder, its parameters as they are stored.
    ///
    /// # Errors
    /// The folder is of no family we can train, or a part of it is missing or damaged.
    pub fn open(path: &Path, device: &Device) -> Result<Model> {
        let folder = ModelFolder::open(path)?;
        let config = folder.text("transformer", "config.json")?;
        let store = Store::open(&folder.weights("transformer")?, Precision::Stored, device)?;
        let scheduler = folder.text("scheduler", "scheduler_config.json")?;
        let scheduler = SchedulerConfig::from_json(&scheduler)?;
        let origin = Origin::Folder(path.to_owned());
        let model = match folder.class() {
            "DuetPipeline" => {
                let network = Duet { config: DuetConfig::from_json(&config)? };
                of_duet(network, store, scheduler, origin)
            }
            "WanPipeline" => {
                if folder.has("transformer_2") {
                    return Err(Error::Recipe(format!(
                        "{} has two experts; training them is not supported: give a folder with one \
                         transformer",
                        path.display()
                    )));
                }
                let config = WanConfig::from_json(&config)?;
                let vae = WanVaeConfig::from_json(&folder.text("vae", "config.json")?)?;
                let model = of_wan(config, store, (scheduler, vae.spatial_factor()), origin);
                model.with_encoders(path, device)?
            }
            "PixArtAlphaPipeline" => {
                let config = PixartConfig::from_json(&config)?;
                let vae = KlConfig::from_json(&folder.text("vae", "config.json")?)?;
                let mut store = store;
                // A table that the network computes instead.
                store.remove("pos_embed.pos_embed");
                let model = of_pixart(config, store, (scheduler, vae.factor()), origin);
                model.with_encoders(path, device)?
            }
            class => {
                return Err(Error::Recipe(format!(
                    "{}: `{class}` cannot be trained; families that can are DuetPipeline, \
                     WanPipeline, PixArtAlphaPipeline",
                    path.display()
                )));
            }
        };
        Ok(Model { timesteps: folder.option("timesteps")?, ..model })
    }

    /// The same with what the encoders of its folder say; their weights are not read.
    fn with_encoders(self, path: &Path, device: &Device) -> Result<Model> {
        let setup = EncoderSetup { device: device.clone(), dtype: FloatDType::F32 };
        let encoder = FolderEncoder::open(path, &setup)?;
        let text = TextForm::Rules(encoder.text_rules());
        Ok(Model { text, encoders: Some(encoder.fingerprint()), ..self })
    }
}

fn of_duet(network: Duet, store: Store, scheduler: SchedulerConfig, origin: Origin) -> Model {
    let rate = network.config.audio_rate.round().max(1.0) as u32;
    let geometry = Geometry {
        pixels: [8, 8],
        // One latent is one token; only their number per second matters.
        clock: AudioClock { rate, hop: 1, factor: 1 },
        ..Geometry::indices([1, 1, 1])
    };
    Model {
        process: engine::duet_process(&network.config),
        network: Arc::new(network),
        store,
        geometry,
        text: TextForm::Whole,
        encoders: None,
        scheduler,
        timesteps: None,
        naming: Naming::Diffusers,
        clips: "gif",
        origin,
        family: "duet",
    }
}

fn of_wan(
    config: WanConfig,
    store: Store,
    (scheduler, factor): (SchedulerConfig, usize),
    origin: Origin,
) -> Model {
    let geometry = Geometry { pixels: [factor; 2], ..Geometry::indices(config.patch) };
    let mut store = store;
    let network = Wan { config };
    for name in network.ignored() {
        store.remove(&name);
    }
    Model {
        network: Arc::new(network),
        store,
        process: scheduler.process(),
        geometry,
        text: TextForm::Whole,
        encoders: None,
        scheduler,
        timesteps: None,
        naming: Naming::Wan,
        clips: "mp4",
        origin,
        family: "wan",
    }
}

fn of_pixart(
    config: PixartConfig,
    store: Store,
    (scheduler, factor): (SchedulerConfig, usize),
    origin: Origin,
) -> Model {
    let span = (config.sample_size / config.patch) as f64 / config.interpolation_scale;
    let geometry = Geometry {
        patch: [1, config.patch, config.patch],
        pixels: [factor; 2],
        coordinates: Coordinates { time: Time::Absent, scale: [1.0; 3], span: Some(span) },
        clock: AudioClock::ltx2(),
        told_size: config.sees_frame,
    };
    Model {
        network: Arc::new(Pixart { config }),
        store,
        process: scheduler.process(),
        geometry,
        text: TextForm::Whole,
        encoders: None,
        scheduler,
        timesteps: None,
        naming: Naming::Diffusers,
        clips: "png",
        origin,
        family: "pixart",
    }
}
