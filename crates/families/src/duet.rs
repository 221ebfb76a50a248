//! Duet, the shapes world's own family.
//!
//! There is neither a text encoder nor a VAE: words have vectors of their own, and blocks of pixels are
//! the latents. So a folder is small, and one that was trained in minutes is used like any other.

use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use data::Clip;
use data::world::{SoundBlocks, SpaceToDepth, Words};
use diffusion::{AudioClock, Geometry, Grouping, Process, SchedulerConfig};
use folder::{ModelFolder, agree};
use models::dit::duet::{Duet, DuetConfig, DuetPrediction};
use models::sound::{SoundCodec, SoundWeights};
use models::vae::{ClipDecode, DecodedFrame, Vae};
use nn::{Error, Split, Weights};
use serde_json::{Value, json};

use crate::conditions::{Condition, Conditions, EntersAs};
use crate::description::{
    Defaults, Description, Family, Ladder, NewModel, Scratch, Sound, Text, Transformer,
};
use crate::error::Result;

/// The family.
pub(crate) static FAMILY: Family = Family {
    name: "duet",
    title: "Duet",
    classes: &["DuetPipeline"],
    options: &["codec_block", "words", "frame_rate"],
    text: &[],
    kept: &[],
    original_name: |_| None,
    diffusers_name: |_| None,
    architecture: "duet",
    other_parts: &[],
    lora_signs: &["video.own", "video.words"],
    splits: &[
        ("to_q", Split::Columns),
        ("to_k", Split::Columns),
        ("to_v", Split::Columns),
        ("to_out", Split::Rows),
        ("up", Split::Columns),
        ("down", Split::Rows),
        ("norm_q", Split::Channels),
        ("norm_k", Split::Channels),
    ],
    extension: "gif",
    describe,
    distilled: None,
    upsampler: None,
    scratch: Some(Scratch {
        schema: |own| own.subschema_for::<DuetConfig>(),
        zero: &Duet::ZERO,
        make,
    }),
};

/// Frames per second where a folder does not say.
const FRAME_RATE: f64 = 16.0;

fn describe(family: &'static Family, folder: &ModelFolder) -> Result<Description> {
    let scheduler = folder.text("scheduler", "scheduler_config.json")?;
    let scheduler = SchedulerConfig::from_json(&scheduler)?;
    let config = DuetConfig::from_json(&folder.text("transformer", "config.json")?)?;
    let block = folder.option("codec_block")?.unwrap_or([2, 8, 8]);
    let length = folder.option("words")?.unwrap_or(Words::default().length);
    let frame_rate = folder.option("frame_rate")?.unwrap_or(FRAME_RATE);
    of(family, config, scheduler, Codec { block, length, frame_rate })
}

/// What a folder says of clips and captions beside its configs.
struct Codec {
    /// Frames, rows and columns of a token.
    block: [usize; 3],
    /// Words of a caption.
    length: usize,
    frame_rate: f64,
}

/// A model of a config that has learnt nothing yet.
fn make(family: &'static Family, config: &Value) -> Result<NewModel> {
    let config = DuetConfig::from_json(&config.to_string())?;
    let scheduler = json!({ "_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0 });
    let index = json!({
        "_class_name": family.classes[0],
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "transformer": ["moviola", "DuetTransformer"],
    });
    let written = serde_json::to_value(&config)
        .map_err(|err| Error::Config { config: "models".to_owned(), reason: err.to_string() })?;
    let solver = SchedulerConfig::from_json(&scheduler.to_string())?;
    let length = Words::default().length;
    let codec = Codec { block: [2, 8, 8], length, frame_rate: FRAME_RATE };
    Ok(NewModel {
        description: of(family, config, solver, codec)?,
        config: written.clone(),
        files: vec![
            ("transformer/config.json", written),
            ("scheduler/scheduler_config.json", scheduler),
            ("model_index.json", index),
        ],
    })
}

fn of(
    family: &'static Family,
    config: DuetConfig,
    scheduler: SchedulerConfig,
    Codec { block, length, frame_rate }: Codec,
) -> Result<Description> {
    let codec = SpaceToDepth::new(block)?;
    agree(
        ("codec_block of the folder gives a token's width, which", codec.channels()),
        ("video_channels of transformer", config.video_channels),
    )?;
    let rate = config.audio_rate.round().max(1.0) as u32;
    let sound = config.audio_channels.map(|block| {
        let codec = Arc::new(Sounds { blocks: SoundBlocks { block }, rate });
        Sound { codec, components: None }
    });
    let all = Condition::ALL.into_iter().filter(|own| *own != Condition::Audio || sound.is_some());
    let all: Vec<Condition> = all.collect();
    Ok(Description {
        family,
        boundary: None,
        process: match config.prediction {
            DuetPrediction::Clean => Process::FlowClean,
            DuetPrediction::Velocity => Process::Flow,
        },
        scheduler,
        ladder: Ladder::Scheduler,
        timesteps: None,
        geometry: Geometry {
            factors: block,
            grouping: Grouping::Even,
            // One latent is one token; only their number per second matters.
            clock: AudioClock { rate, hop: 1, factor: 1 },
            ..Geometry::indices([1, 1, 1])
        },
        text: Text::Words(Words { length, width: config.text_width }),
        conditions: Conditions::none().taking(&all, EntersAs::CleanTokens),
        image_tokens: None,
        vae: Arc::new(Blocks(codec)),
        sound,
        defaults: Defaults { steps: 16, guidance: 2.0, terms: None, size: [8, 32, 32], frame_rate },
        trained_sizes: Vec::new(),
        transformers: vec![Transformer {
            component: "transformer",
            network: Arc::new(Duet { config }),
            meeting: None,
            ignored: Vec::new(),
        }],
    })
}

/// Blocks of samples as a codec without parameters.
struct Sounds {
    blocks: SoundBlocks,
    /// Blocks per second.
    rate: u32,
}

impl SoundCodec for Sounds {
    fn declare_vae(&self, _: &Weights<'_>) -> nn::Result<()> {
        Ok(())
    }

    fn declare_vocoder(&self, _: &Weights<'_>) -> nn::Result<()> {
        Ok(())
    }

    fn latent_shape(&self) -> [usize; 2] {
        [self.blocks.block, 1]
    }

    fn clock(&self) -> [usize; 3] {
        [self.rate as usize * self.blocks.block, self.blocks.block, 1]
    }

    fn decoded(&self) -> (u32, usize) {
        (self.rate * self.blocks.block as u32, 1)
    }

    fn accepts(&self, rate: u32) -> nn::Result<()> {
        let (own, _) = self.decoded();
        match rate == own {
            true => Ok(()),
            false => Err(Error::Shape {
                what: "a sound",
                got: format!("one of {rate} samples a second"),
                want: format!("the model hears {own}; resample it"),
            }),
        }
    }

    fn encode(&self, _: &Weights<'_>, channels: &[Vec<f32>], rate: u32) -> nn::Result<Tensor<4>> {
        self.accepts(rate)?;
        let whole = channels.iter().map(Vec::len).min().unwrap_or(0);
        let whole = whole / self.blocks.block.max(1) * self.blocks.block;
        let mean = |at: usize| {
            channels.iter().map(|own| own[at]).sum::<f32>() / channels.len().max(1) as f32
        };
        let mixed: Vec<f32> = (0..whole).map(mean).collect();
        let latents = self.blocks.encode(&mixed, &Device::flex());
        Ok(latents.map_err(refused)?.unsqueeze_dim(3))
    }

    fn decode(&self, _: &SoundWeights<'_>, latents: Tensor<4>) -> nn::Result<Tensor<3>> {
        let waves = self.blocks.decode(latents.squeeze_dim(3)).map_err(refused)?;
        let shape = [waves.len(), 1, waves.first().map_or(0, Vec::len)];
        Ok(Tensor::from_data(TensorData::new(waves.concat(), shape), &Device::flex()))
    }
}

/// Blocks of pixels as a VAE without parameters.
struct Blocks(SpaceToDepth);

fn refused(error: data::Error) -> Error {
    Error::Shape { what: "a clip", got: "of another size".to_owned(), want: error.to_string() }
}

impl Vae for Blocks {
    fn declare_encoder(&self, _: &Weights<'_>) -> nn::Result<()> {
        Ok(())
    }

    fn declare_decoder(&self, _: &Weights<'_>) -> nn::Result<()> {
        Ok(())
    }

    fn latent_channels(&self) -> usize {
        self.0.channels()
    }

    fn encode_clip(&self, _: &Weights<'_>, clip: Tensor<5>) -> nn::Result<Tensor<5>> {
        let device = clip.device();
        let pixels = (clip.squeeze_dim::<4>(0).permute([1, 2, 3, 0]) + 1.0) / 2.0;
        let clip = Clip::from_tensor(pixels).map_err(refused)?;
        self.0.encode(&clip, &device).map_err(refused)
    }

    fn decode_clips(&self, decode: ClipDecode<'_>) -> nn::Result<()> {
        let ClipDecode { latents, take, progress, .. } = decode;
        let device = latents.device();
        let clips = self.0.decode(latents).map_err(refused)?;
        for (sample, clip) in clips.iter().enumerate() {
            let pixels = clip.to_tensor(&device) * 2.0 - 1.0;
            for index in 0..clip.size()[0] {
                let pixels = pixels.clone().slice_dim(0, index..index + 1).squeeze_dim(0);
                if take(DecodedFrame { sample, index, pixels }).is_break() {
                    return Ok(());
                }
            }
            progress(sample + 1, clips.len());
        }
        Ok(())
    }

    fn check_tiling(&self) -> nn::Result<()> {
        Err(Error::Unsupported {
            config: "the codec".to_owned(),
            key: "tiles".to_owned(),
            value: "asked for".to_owned(),
            supported: "whole clips: blocks of pixels need no memory to decode".to_owned(),
        })
    }
}
