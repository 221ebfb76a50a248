//! What `moviola generate` is asked for.

use std::path::PathBuf;

use clap::{ArgGroup, ValueEnum};
use data::media::{self, FrameRate};
use engine::{Decoding, Fit, Request, Seed, Sizing, Solving};
use folder::lora::LoraSource;

use super::enlarging::EnlargingArguments;
use super::more::MoreArguments;
use crate::failure::{Failure, Outcome};
use crate::given::GivenArguments;
use crate::layout::LayoutArguments;
use crate::places::Kind;

/// Arguments that a record tells by itself.
const TOLD: [&str; 67] = [
    "prompt",
    "prompts",
    "negative",
    "steps",
    "solver",
    "timesteps",
    "sigmas",
    "upsampler",
    "upsampler_sigmas",
    "upsampler_adain",
    "upsampler_tone_map",
    "upsampler_lora",
    "guidance",
    "second_guidance",
    "audio_guidance",
    "stg",
    "audio_stg",
    "stg_blocks",
    "modality_guidance",
    "audio_modality_guidance",
    "guidance_rescale",
    "audio_guidance_rescale",
    "cross_timestep",
    "flow_shift",
    "height",
    "width",
    "frames",
    "image",
    "last_image",
    "keyframe",
    "video_prefix",
    "video",
    "mask",
    "reference",
    "audio",
    "fit",
    "seed",
    "first_sample",
    "count",
    "dtype",
    "quantize",
    "transformer",
    "second_transformer",
    "lora",
    "second_lora",
    "noise",
    "prompt_embeds",
    "max_tokens",
    "eta",
    "fps",
    "without_audio",
    "resolution_binning",
    "clean_caption",
    "tile_vae",
    "cache",
    "layout",
    "ranks",
    "data",
    "cfg",
    "ulysses",
    "ring",
    "tensor",
    "pipefusion",
    "patches",
    "warmup",
    "stages",
    "vae_ranks",
];

/// Make clips and pictures from captions and pictures.
#[derive(clap::Args, Clone, Debug, PartialEq)]
#[command(after_help = EXAMPLES, group(ArgGroup::new("told").args(TOLD).multiple(true)))]
pub(crate) struct Arguments {
    /// A diffusers folder, or a hub id `org/name[@revision]`
    #[arg(long, value_name = "DIR|ORG/NAME", required_unless_present = "replay")]
    pub(super) model: Option<String>,
    /// What to make; repeat it for several pictures
    #[arg(long, short, value_name = "TEXT")]
    pub(super) prompt: Vec<String>,
    /// A file with one prompt per line; in a .jsonl file each line is an object with `prompt` and maybe
    /// settings of its own. Lines that begin with # are left out
    #[arg(long, value_name = "FILE")]
    pub(super) prompts: Option<PathBuf>,
    /// What not to make
    #[arg(long, value_name = "TEXT", default_value = "", visible_alias = "negative-prompt")]
    pub(super) negative: String,
    /// Denoising steps; of a distilled model as many as it was distilled for, or fewer of them [default:
    /// the model's]
    #[arg(long, value_name = "N", visible_alias = "num-inference-steps")]
    pub(super) steps: Option<usize>,
    /// How steps are taken: as the model's scheduler says, or by predicting clean latents at few
    /// explicit --timesteps and noising them again [default: the model's]
    #[arg(long, value_enum)]
    pub(super) solver: Option<SolverName>,
    /// Falling timesteps for `--solver renoise`, like 1000,750,500,250
    #[arg(long, value_name = "T,..", value_delimiter = ',', conflicts_with = "steps")]
    pub(super) timesteps: Option<Vec<f64>>,
    /// Falling noise levels of the steps, from 1 to above 0, which no shift moves; or `distilled`, for those of the
    /// distilled checkpoints of the model's family, which are run without guidance
    #[arg(long, value_name = "S,..|distilled", value_parser = sigmas, conflicts_with_all = ["steps", "timesteps"])]
    pub(super) sigmas: Option<Sigmas>,
    #[command(flatten)]
    pub(super) enlarging: EnlargingArguments,
    /// Guidance scale; at 1 and below the negative prompt plays no part [default: the model's, 1 for the
    /// few steps of a distilled model]
    #[arg(long, value_name = "G", visible_aliases = ["guidance-scale", "cfg-scale"])]
    pub(super) guidance: Option<f64>,
    /// Guidance scale of the second expert, for models that have two [default: the first one's]
    #[arg(long = "guidance-2", value_name = "G")]
    pub(super) second_guidance: Option<f64>,
    #[command(flatten)]
    pub(super) more: MoreArguments,
    /// How far noise levels are moved towards noise, for models of flows [default: the model's]
    #[arg(long, value_name = "SHIFT")]
    pub(super) flow_shift: Option<f64>,
    /// Height in pixels [default: as --image asks for, or the model's]
    #[arg(long, value_name = "H")]
    pub(super) height: Option<usize>,
    /// Width in pixels [default: as --image asks for, or the model's]
    #[arg(long, value_name = "W")]
    pub(super) width: Option<usize>,
    /// Frames of a clip [default: the model's]
    #[arg(long, value_name = "N", visible_alias = "num-frames")]
    pub(super) frames: Option<usize>,
    #[command(flatten)]
    pub(super) given: GivenArguments,
    /// How pictures of other proportions become those of the clip: stretch, crop or pad (with black)
    /// [default: crop]
    #[arg(long, value_name = "WAY", value_parser = fit, help_heading = "Given beside the prompt")]
    pub(super) fit: Option<Fit>,
    /// Seed of all noise; -1 or `random` draws one, which the record tells
    #[arg(long, value_name = "S|random", default_value = "0")]
    pub(super) seed: Seed,
    /// The number of the first sample: sample N of a run is sample N of any other with its seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) first_sample: u64,
    /// The line of --prompts that asks for this; of several that are alike, the first
    #[arg(skip)]
    pub(super) line: Option<usize>,
    /// Samples per prompt
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) count: usize,
    /// f32: weights as they are stored; bf16: half the bytes. Sums are f32 in both
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    pub(super) dtype: Dtype,
    /// Hold the matrices of the transformer's blocks in bytes, a quarter of f32, and multiply in bytes
    #[arg(long, value_enum, value_name = "KIND")]
    pub(super) quantize: Option<Quantize>,
    /// A safetensors or GGUF file with the transformer's parameters, as `export` writes it or ComfyUI has it,
    /// instead of the model's own
    #[arg(long, value_name = "FILE")]
    pub(super) transformer: Option<PathBuf>,
    /// The same for the second expert, for models that have two; the one that is not given is the folder's
    #[arg(long = "transformer-2", value_name = "FILE")]
    pub(super) second_transformer: Option<PathBuf>,
    /// A low-rank adapter and how strongly it applies; repeat it for several
    #[arg(long, value_name = "FILE[:SCALE]")]
    pub(super) lora: Vec<LoraSource>,
    /// The same for the second expert, for models that have two
    #[arg(long = "lora-2", value_name = "FILE[:SCALE]")]
    pub(super) second_lora: Vec<LoraSource>,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    pub(super) device: String,
    /// Threads, of each rank where there are several [default: one per core in all]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
    #[command(flatten)]
    pub(super) layout: LayoutArguments,
    /// Keep one component in memory at a time
    #[arg(long)]
    pub(super) offload: bool,
    /// Initial latents: a safetensors file with key `noise`, and `audio_noise` where sound is made
    #[arg(long, value_name = "FILE")]
    pub(super) noise: Option<PathBuf>,
    /// Write the final latents under key `latents`, and `audio_latents` where sound is made
    #[arg(long, value_name = "FILE")]
    pub(super) save_latents: Option<PathBuf>,
    /// Embedded text instead of prompts: `prompt_embeds`, `negative_prompt_embeds` and their
    /// `..._attention_mask`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "prompts"])]
    pub(super) prompt_embeds: Option<PathBuf>,
    /// Text tokens at the most [default: the model's]
    #[arg(long, value_name = "N")]
    pub(super) max_tokens: Option<usize>,
    /// Noise that DDIM puts back, 0 to 1
    #[arg(long)]
    pub(super) eta: Option<f64>,
    /// Generate at the nearest size of the training, then resize
    #[arg(long)]
    pub(super) resolution_binning: bool,
    /// Rid captions of addresses, markup and the like
    #[arg(long)]
    pub(super) clean_caption: bool,
    /// Decode in overlapping tiles: less memory, slightly different pixels
    #[arg(long)]
    pub(super) tile_vae: bool,
    /// Leave out all blocks but the first where that one changes by less than SHARE of the step before; the
    /// run tells what it saved and cost
    #[arg(long, value_name = "fbcache:SHARE", value_parser = cache)]
    pub(super) cache: Option<f64>,
    /// Frames per second of a clip [default: the model's]
    #[arg(long, value_name = "N", value_parser = frames_per_second)]
    pub(super) fps: Option<f64>,
    /// Leave the sound out that the model would make
    #[arg(long)]
    pub(super) without_audio: bool,
    /// Where it goes; several are numbered, a sound is in .mp4 and .webm and else beside as .wav, and what was used beside as .json.
    /// The extension says as what: .mp4, .webm, .gif, .webp, .png or .jpg (a contact sheet of a clip),
    /// .safetensors, .wav (the sound alone), or a folder of frames if there is none. - is the standard
    /// output
    #[arg(long, short, value_name = "PATH", required_unless_present = "replay")]
    pub(super) output: Option<PathBuf>,
    /// What to write, whatever the output is called: an extension, or `frames`
    #[arg(long, value_parser = Kind::named)]
    pub(super) format: Option<Kind>,
    /// Begin even if it should take more memory than this machine has
    #[arg(long)]
    pub(super) force: bool,
    /// Replace files that are there
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Make again what a record beside an output tells, to the byte; --model says where the model is now
    #[arg(long, value_name = "FILE.json", conflicts_with = "told")]
    pub(super) replay: Option<PathBuf>,
    /// Another sample of the same prompt than the one that the record is of
    #[arg(long, value_name = "N")]
    pub(super) sample: Option<u64>,
    /// The row of --noise that the first sample has, in a run that is made again.
    #[arg(skip)]
    pub(super) noise_row: Option<usize>,
    /// The row of --prompt-embeds that is used, in a run that is made again.
    #[arg(skip)]
    pub(super) prompt_embeds_row: Option<usize>,
}

const EXAMPLES: &str = "Examples:
  moviola generate --model goldens/pixart-tiny --prompt 'a red fox in the snow' --output fox.png
  moviola generate --model Wan-AI/Wan2.1-T2V-1.3B-Diffusers --prompt 'a cat walks on grass' \\
      --frames 33 --dtype bf16 --output cat.mp4
  moviola generate --model Wan-AI/Wan2.2-TI2V-5B-Diffusers --prompt 'waves roll in' \\
      --image shore.jpg --dtype bf16 --output shore.mp4
  moviola generate --model PixArt-alpha/PixArt-XL-2-512x512 --prompt 'a lighthouse' --steps 14 \\
      --dtype bf16 --seed 7 --count 4 --output lighthouse.png
  moviola generate --replay lighthouse-002.png.json --output again.png";

/// Where steps stand.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sigmas {
    /// Where a family's distilled checkpoints have them.
    Distilled,
    /// At these noise levels.
    Levels(Vec<f64>),
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(super) enum SolverName {
    Scheduler,
    Renoise,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Dtype {
    F32,
    Bf16,
}

/// How matrices are held in fewer bits.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Quantize {
    Int8,
}

impl Arguments {
    /// Files that are read, which nothing may overwrite.
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        let loras = self.lora.iter().chain(&self.second_lora).chain(&self.enlarging.upsampler_lora);
        let loras = loras.map(|lora| lora.path.clone());
        let files = [
            &self.prompts,
            &self.transformer,
            &self.second_transformer,
            &self.noise,
            &self.prompt_embeds,
            &self.replay,
        ];
        let upsampler =
            self.enlarging.upsampler.iter().map(|own| engine::upsampler_folder(own.as_ref()));
        let files = files.into_iter().flatten().cloned().chain(upsampler);
        files.chain(loras).chain(self.given.files()).collect()
    }

    /// The seed, which was drawn if that was asked for.
    pub(super) fn seed(&self) -> u64 {
        match self.seed {
            Seed::Number(seed) => seed,
            Seed::Random => 0,
        }
    }

    /// The request, whose prompts are those of the arguments themselves.
    ///
    /// # Errors
    /// Arguments contradict each other.
    pub(super) fn request(&self, only_audio: bool) -> Outcome<Request> {
        let solving = match (self.solver, &self.timesteps) {
            (Some(SolverName::Renoise), Some(timesteps)) => Solving::Renoise(timesteps.clone()),
            (Some(SolverName::Renoise), None) => {
                let reason = "--solver renoise steps through --timesteps, like --timesteps 1000,750,500,250; add \
                              them, or leave it out: a distilled model takes as many of its own as --steps says";
                return Err(Failure::refused(reason));
            }
            (_, Some(_)) => {
                let reason =
                    "--timesteps are for --solver renoise; add it, or give --steps instead";
                return Err(Failure::refused(reason));
            }
            (Some(SolverName::Scheduler), None) => Solving::Scheduler,
            (None, None) => Solving::Recorded,
        };
        let solving = match (&self.sigmas, solving) {
            (None, solving) => solving,
            (Some(_), Solving::Renoise(_)) => {
                unreachable!("--sigmas and --timesteps exclude each other")
            }
            (Some(Sigmas::Distilled), _) => Solving::Distilled(None),
            (Some(Sigmas::Levels(levels)), _) => Solving::Levels(levels.clone()),
        };
        Ok(Request {
            prompts: self.prompt.clone(),
            given: vec![self.given.given()],
            negative: self.negative.clone(),
            steps: self.steps,
            guidance: self.guidance,
            second_guidance: self.second_guidance,
            more: self.more.asked(),
            height: self.height,
            width: self.width,
            frames: self.frames,
            frame_rate: self.fps,
            without_audio: self.without_audio,
            only_audio,
            seed: self.seed(),
            seeds: Vec::new(),
            first_sample: self.first_sample,
            count: self.count,
            max_tokens: self.max_tokens,
            eta: self.eta,
            flow_shift: self.flow_shift,
            solving,
            noise: self.noise.clone(),
            noise_row: self.noise_row,
            prompt_embeds: self.prompt_embeds.clone(),
            prompt_embeds_row: self.prompt_embeds_row,
            clean_caption: self.clean_caption,
            sizing: if self.resolution_binning { Sizing::Binned } else { Sizing::Exact },
            fit: self.fit,
            decoding: if self.tile_vae { Decoding::Tiled } else { Decoding::Whole },
            first_block_cache: self.cache,
            enlarging: self.enlarging.asked(),
        })
    }
}

/// Noise levels, or the word for those of a family.
fn sigmas(text: &str) -> Result<Sigmas, String> {
    if text == "distilled" {
        return Ok(Sigmas::Distilled);
    }
    let levels = text.split(',').map(|level| level.trim().parse::<f64>());
    let levels = levels.collect::<Result<Vec<_>, _>>();
    levels.map(Sigmas::Levels).map_err(|_| {
        "write falling numbers, like 1,0.75,0.5,0.25, or the word distilled".to_owned()
    })
}

/// The share of a first-block cache, as `fbcache:SHARE`.
pub(super) fn cache(text: &str) -> Result<f64, String> {
    let share =
        text.strip_prefix("fbcache:").ok_or("there is only fbcache:SHARE, like fbcache:0.08")?;
    share.parse().map_err(|_| format!("`{share}` is not a number; write it like fbcache:0.08"))
}

/// A number or a fraction like 24000/1001. Which numbers can be, the clip says.
fn frames_per_second(text: &str) -> Result<f64, String> {
    text.parse().or_else(|_| {
        let rate: FrameRate = text.parse().map_err(|err: media::Error| err.to_string())?;
        Ok(rate.per_second())
    })
}

/// A way to fit pictures by its name.
fn fit(name: &str) -> Result<Fit, String> {
    let found = Fit::ALL.into_iter().find(|(known, _)| *known == name);
    found.map(|(_, fit)| fit).ok_or_else(|| {
        let names = Fit::ALL.map(|(name, _)| name).join(", ");
        format!("there is no such way; there are {names}")
    })
}
