//! A recipe as it is written: every section typed, every key known.

use std::path::PathBuf;

use data::loader::Partial;
use data::world;
use families::CrossLevels;
use methods::{DiffusionForcingConfig, Dmd2Config, FinetuneConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strategies::StrategyConfig;
use train::checkpoint::CheckpointConfig;
use train::{Decay, EmaConfig, LoopConfig, LoraConfig, OptimizerConfig};

use crate::mix::MixConfig;
use crate::new::NewConfig;
use crate::parallel::ParallelConfig;

/// Everything a run is made of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The networks by role.
    pub models: ModelsConfig,
    /// How it is learnt.
    pub method: MethodConfig,
    /// What is generated given what.
    pub strategy: StrategyConfig,
    /// How noisy samples are.
    #[serde(default)]
    pub levels: LevelsConfig,
    /// What is learnt from.
    pub data: DataConfig,
    /// How long and how the run goes.
    #[serde(rename = "loop")]
    pub run: LoopConfig,
    /// When checkpoints are made and which stay.
    #[serde(default)]
    pub checkpoint: CheckpointConfig,
    /// How it is spread over ranks.
    #[serde(default)]
    pub parallel: ParallelConfig,
    /// Who looks on.
    #[serde(default)]
    pub callbacks: CallbacksConfig,
    /// What guidance pushes away from, for methods that need it.
    #[serde(default)]
    pub negative_prompt: Option<NegativePromptConfig>,
    /// Where a run by it began, if it is elsewhere now: its relative paths may begin there. It is no key.
    #[serde(skip)]
    pub working_folder: Option<PathBuf>,
}

/// The networks by role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelsConfig {
    /// The network that is wanted in the end.
    pub student: TrainedConfig,
    /// A network that knows already, for methods that have one.
    #[serde(default)]
    pub teacher: Option<FrozenConfig>,
    /// The network that follows what the student makes, for methods that have one.
    #[serde(default)]
    pub critic: Option<TrainedConfig>,
    /// Whose noise levels count where the video and the sound of these networks meet, as `generate --cross-timestep` has
    /// it; what is not said is as each of them was trained.
    #[serde(default)]
    pub cross_timestep: Option<CrossLevels>,
}

/// A network that learns. It comes from a folder or begins anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrainedConfig {
    /// A diffusers folder or a hub id `org/name[@revision]`.
    #[serde(default)]
    pub from: Option<String>,
    /// A network that has learnt nothing yet.
    #[serde(default)]
    pub new: Option<NewConfig>,
    /// A safetensors or GGUF file with the transformer's parameters, instead of the folder's own: as
    /// `export --as file` or `--as gguf` writes it, or as the family's own code names them.
    #[serde(default)]
    pub weights: Option<String>,
    /// Which of a folder's two experts learn; one that does not stays as it is.
    #[serde(default)]
    pub expert: Option<ExpertConfig>,
    /// Always true for a role that learns.
    #[serde(default = "yes")]
    pub trainable: bool,
    /// Which of its parameters learn.
    #[serde(default)]
    pub learns: LearnsConfig,
    /// How they are updated.
    #[serde(default)]
    pub optimizer: OptimizerConfig,
    /// How fast.
    pub rate: RateConfig,
    /// What is kept for the backward pass.
    #[serde(default)]
    pub recompute: RecomputeConfig,
    /// In which type the products of its blocks are made; what learns, gradients and sums are f32.
    #[serde(default)]
    pub products: ProductsConfig,
}

/// In which type the products of linear layers are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProductsConfig {
    /// f32.
    #[default]
    F32,
    /// Of operands that are rounded to bf16, forward and back, on a machine that multiplies bf16.
    Bf16,
}

/// One of two experts that share the noise levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExpertConfig {
    /// The first, for levels above the model's boundary.
    High,
    /// The second, for levels below it.
    Low,
    /// Both, in turns: as many steps belong to one as `levels` has levels on its side of the boundary.
    Both,
}

impl ExpertConfig {
    /// What it is called in recipes.
    pub fn name(self) -> &'static str {
        match self {
            ExpertConfig::High => "high",
            ExpertConfig::Low => "low",
            ExpertConfig::Both => "both",
        }
    }
}

/// A network that never learns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FrozenConfig {
    /// A diffusers folder or a hub id `org/name[@revision]`.
    pub from: String,
    /// Always false for a role that is frozen.
    #[serde(default)]
    pub trainable: bool,
}

/// Which parameters of a role learn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum LearnsConfig {
    /// All of them.
    #[default]
    All,
    /// Those whose names match one of the patterns.
    Only {
        /// Names of layers or parameters, with `*` for anything.
        patterns: Vec<String>,
    },
    /// Low-rank adapters beside the network, which stays as it is.
    Lora(LoraConfig),
}

/// The learning rate, counted in updates of its role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateConfig {
    /// The highest.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub peak: f64,
    /// Updates until it is reached, at most as many as the role has.
    #[serde(default)]
    pub warmup: u64,
    /// How it goes on.
    #[serde(default)]
    pub decay: Decay,
}

/// What is kept of a forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum RecomputeConfig {
    /// Everything: the quickest, and the most memory.
    Never,
    /// What goes into each block; every block runs twice.
    #[default]
    PerBlock,
    /// As much as fits.
    Within {
        /// Memory for activations in GiB.
        #[schemars(extend("exclusiveMinimum" = 0))]
        gibibytes: f64,
    },
}

/// How it is learnt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum MethodConfig {
    /// The student learns the data.
    Finetune(FinetuneConfig),
    /// The same with a noise level for each chunk of frames.
    DiffusionForcing(DiffusionForcingConfig),
    /// A student of few steps learns from a teacher.
    Dmd2(Dmd2Config),
}

/// How noisy samples are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LevelsConfig {
    /// The video.
    pub video: SamplerConfig,
    /// The sound, if it is generated; as the video if it is not said.
    pub audio: Option<SamplerConfig>,
    /// Whether the samples of a step share the density evenly between them.
    pub stratified: bool,
}

/// A density of noise levels.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum SamplerConfig {
    /// All levels alike.
    Uniform {
        /// The lowest.
        #[serde(default)]
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        lowest: f64,
        /// The highest.
        #[serde(default = "one")]
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        highest: f64,
        /// Moves all towards noise; 1 leaves them.
        #[serde(default = "one")]
        #[schemars(extend("exclusiveMinimum" = 0))]
        shift: f64,
    },
    /// The sigmoid of a normal number.
    LogitNormal {
        /// Above 0 towards noise.
        #[serde(default)]
        mean: f64,
        /// How wide.
        #[serde(default = "one")]
        #[schemars(extend("exclusiveMinimum" = 0))]
        deviation: f64,
        /// Moves all towards noise; 1 leaves them.
        #[serde(default = "one")]
        #[schemars(extend("exclusiveMinimum" = 0))]
        shift: f64,
    },
    /// LTX-2's, whose mean rises with the number of tokens.
    ShiftedLogitNormal {
        /// How wide.
        #[serde(default = "one")]
        #[schemars(extend("exclusiveMinimum" = 0))]
        deviation: f64,
        /// The lowest level.
        #[serde(default = "thousandth")]
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        floor: f64,
        /// The share of levels that are drawn uniformly.
        #[serde(default = "tenth")]
        #[schemars(extend("minimum" = 0, "maximum" = 1))]
        uniform: f64,
    },
    /// Stable Diffusion 3's, with heavy tails.
    Mode {
        /// Above 0 towards the middle.
        scale: f64,
        /// Moves all towards noise; 1 leaves them.
        #[serde(default = "one")]
        #[schemars(extend("exclusiveMinimum" = 0))]
        shift: f64,
    },
}

/// What is learnt from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DataConfig {
    /// Where samples come from.
    pub source: SourceConfig,
    /// Samples of a micro-batch.
    #[serde(default = "one_sample")]
    #[schemars(range(min = 1))]
    pub batch: usize,
    /// The share of samples whose caption is dropped.
    #[serde(default)]
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub caption_dropout: f64,
    /// Samples at the end that are never learnt from, but looked at by validation.
    #[serde(default)]
    pub held_out: usize,
    /// What becomes of a batch that is not full.
    #[serde(default)]
    pub partial: Partial,
    /// Batches that are read ahead.
    #[serde(default = "two_batches")]
    pub prefetch: usize,
}

/// Where samples come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum SourceConfig {
    /// A folder that `moviola preprocess` made.
    Store(StoreConfig),
    /// Several such folders, some of them more often than others.
    Mix(MixConfig),
    /// The shapes world, rendered as it goes.
    Shapes(ShapesConfig),
}

/// A folder of samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StoreConfig {
    /// The folder.
    pub path: String,
}

/// Clips of the shapes world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ShapesConfig {
    /// How many different clips.
    pub clips: usize,
    /// What they are drawn from.
    pub seed: u64,
    /// What the world looks like.
    pub world: world::WorldOptions,
    /// Captions that never occur.
    pub withheld: Vec<String>,
    /// The only colours that occur; all four if none is named.
    pub colours: Vec<String>,
    /// Whether each clip comes with the same clip in another colour, as `ref_latents`.
    pub recoloured: bool,
}

/// Who looks on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallbacksConfig {
    /// A running average of the student, or several in a list. Validation looks at the first.
    pub ema: Option<AveragesConfig>,
    /// Clips that are made along the way.
    pub validation: Option<ValidationConfig>,
}

/// Running averages of the student.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AveragesConfig {
    /// One.
    One(EmaConfig),
    /// Several, which differ in their decay.
    Several(Vec<EmaConfig>),
}

impl CallbacksConfig {
    /// The running averages with the names that checkpoints know them by.
    pub fn averages(&self) -> Vec<(String, EmaConfig)> {
        let all = match &self.ema {
            None => &[][..],
            Some(AveragesConfig::One(config)) => std::slice::from_ref(config),
            Some(AveragesConfig::Several(configs)) => configs,
        };
        let name = |(at, config): (usize, &EmaConfig)| match at {
            0 => ("ema".to_owned(), *config),
            _ => (format!("ema-{}", config.decay), *config),
        };
        all.iter().enumerate().map(name).collect()
    }
}

/// Clips that are made along the way, always from the same noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ValidationConfig {
    /// One after every so many steps, and before the first.
    #[schemars(range(min = 1))]
    pub every: u64,
    /// What to make; of the shapes world, its own prompts if none is given.
    #[serde(default)]
    pub prompts: Vec<String>,
    /// Denoising steps; the model's own if not given.
    #[serde(default)]
    pub steps: Option<usize>,
    /// Guidance; the model's own if not given.
    #[serde(default)]
    pub guidance: Option<f64>,
    /// What the clips should not be.
    #[serde(default)]
    pub negative: String,
    /// What is given beside the prompts.
    #[serde(default)]
    pub given: GivenConfig,
    /// Frames, height and width in pixels; the model's own if not given.
    #[serde(default)]
    pub size: Option<[usize; 3]>,
    /// The seed of the noise.
    #[serde(default)]
    pub seed: u64,
}

/// What is given beside the prompts of a validation, as `moviola generate` takes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GivenConfig {
    /// The picture that clips begin with.
    pub image: Option<String>,
    /// The picture that clips end with.
    pub last_image: Option<String>,
    /// Pictures for frames in between.
    pub keyframes: Vec<KeyframeConfig>,
    /// The first frames of the clips.
    pub video_prefix: Option<String>,
    /// The whole clip.
    pub video: Option<String>,
    /// What is made anew of what is given: white is, black stays.
    pub mask: Option<String>,
    /// A clip to look at.
    pub reference: Option<String>,
    /// The sound: a WAV file.
    pub audio: Option<String>,
}

/// A picture for one frame of a clip.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyframeConfig {
    /// Which, counted from 0.
    pub frame: usize,
    /// The picture.
    pub image: String,
}

/// What guidance pushes away from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NegativePromptConfig {
    /// The text; empty is a text too.
    #[serde(default)]
    pub text: String,
    /// Which of the folder's text encoders, from 0.
    #[serde(default)]
    pub encoder_index: usize,
}

fn yes() -> bool {
    true
}

fn one() -> f64 {
    1.0
}

fn tenth() -> f64 {
    0.1
}

fn thousandth() -> f64 {
    1e-3
}

fn one_sample() -> usize {
    1
}

fn two_batches() -> usize {
    2
}

impl Default for SamplerConfig {
    fn default() -> SamplerConfig {
        SamplerConfig::LogitNormal { mean: 0.0, deviation: 1.0, shift: 1.0 }
    }
}

impl Default for ShapesConfig {
    fn default() -> ShapesConfig {
        ShapesConfig {
            clips: 4608,
            seed: 0,
            world: world::WorldOptions::default(),
            withheld: Vec::new(),
            colours: Vec::new(),
            recoloured: false,
        }
    }
}
