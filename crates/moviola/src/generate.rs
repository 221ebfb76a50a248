//! `moviola generate`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use clap::ValueEnum;
use data::media::{Format, Frame, FrameRate};
use engine::{
    Decoding, Error, Frames, Pipeline, PipelineOutput, Request, Residency, Setup, Silent, Sizing,
    Solving,
};
use folder::lora::LoraSource;
use nn::{Precision, Quantization};
use parallel::Plan;

use crate::bars::Bars;
use crate::clock::Clock;
use crate::failure::{Failure, Outcome};
use crate::given::GivenArguments;
use crate::layout::LayoutArguments;
use crate::output::{self, Output};
use crate::{device, hub, signals, threads};

/// Make clips and pictures from captions and pictures.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// A diffusers folder, or a hub id `org/name[@revision]`
    #[arg(long, value_name = "DIR|ORG/NAME")]
    model: String,
    /// What to make; repeat it for several pictures
    #[arg(long, value_name = "TEXT")]
    prompt: Vec<String>,
    /// A file with one prompt per line
    #[arg(long, value_name = "FILE")]
    prompts: Option<PathBuf>,
    /// What not to make
    #[arg(long, value_name = "TEXT", default_value = "")]
    negative: String,
    /// Denoising steps [default: the model's]
    #[arg(long, value_name = "N")]
    steps: Option<usize>,
    /// How steps are taken: as the model's scheduler says, or by predicting clean latents at few
    /// explicit --timesteps and noising them again [default: the model's]
    #[arg(long, value_enum, requires_if("renoise", "timesteps"))]
    solver: Option<SolverName>,
    /// Falling timesteps for `--solver renoise`, like 1000,750,500,250
    #[arg(long, value_name = "T,..", value_delimiter = ',', conflicts_with = "steps")]
    timesteps: Option<Vec<f64>>,
    /// Guidance scale; at 1 and below the negative prompt plays no part [default: the model's, 1 for the
    /// few steps of a distilled model]
    #[arg(long, value_name = "G")]
    guidance: Option<f64>,
    /// Guidance scale of the second expert, for models that have two [default: the first one's]
    #[arg(long = "guidance-2", value_name = "G")]
    second_guidance: Option<f64>,
    /// Height in pixels [default: the model's]
    #[arg(long, value_name = "H")]
    height: Option<usize>,
    /// Width in pixels [default: the model's]
    #[arg(long, value_name = "W")]
    width: Option<usize>,
    /// Frames of a clip [default: the model's]
    #[arg(long, value_name = "N")]
    frames: Option<usize>,
    #[command(flatten)]
    given: GivenArguments,
    /// Seed of all noise
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// The number of the first sample: sample N of a run is sample N of any other with its seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    first_sample: u64,
    /// Samples per prompt
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: usize,
    /// f32: weights as they are stored; bf16: half the bytes. Sums are f32 in both
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    dtype: Dtype,
    /// Hold the matrices of the transformer's blocks in bytes, a quarter of f32, and multiply in bytes
    #[arg(long, value_enum, value_name = "KIND")]
    quantize: Option<Quantize>,
    /// A safetensors file with the transformer's parameters, as `export --as file` writes it, instead of
    /// the model's own
    #[arg(long, value_name = "FILE")]
    transformer: Option<PathBuf>,
    /// A low-rank adapter and how strongly it applies; repeat it for several
    #[arg(long, value_name = "FILE[:SCALE]")]
    lora: Vec<LoraSource>,
    /// The same for the second expert, for models that have two
    #[arg(long = "lora-2", value_name = "FILE[:SCALE]")]
    second_lora: Vec<LoraSource>,
    /// Where to compute
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Threads, of each rank where there are several [default: one per core in all]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    layout: LayoutArguments,
    /// Keep one component in memory at a time
    #[arg(long)]
    offload: bool,
    /// Initial latents: a safetensors file with key `noise`, and `audio_noise` where sound is made
    #[arg(long, value_name = "FILE")]
    noise: Option<PathBuf>,
    /// Write the final latents under key `latents`, and `audio_latents` where sound is made
    #[arg(long, value_name = "FILE")]
    save_latents: Option<PathBuf>,
    /// Embedded text instead of prompts: `prompt_embeds`, `negative_prompt_embeds` and their
    /// `..._attention_mask`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prompt", "prompts"])]
    prompt_embeds: Option<PathBuf>,
    /// Text tokens at the most [default: the model's]
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Noise that DDIM puts back, 0 to 1
    #[arg(long)]
    eta: Option<f64>,
    /// Generate at the nearest size of the training, then resize
    #[arg(long)]
    resolution_binning: bool,
    /// Rid captions of addresses, markup and the like
    #[arg(long)]
    clean_caption: bool,
    /// Decode in overlapping tiles: less memory, slightly different pixels
    #[arg(long)]
    tile_vae: bool,
    /// Frames per second of a clip [default: the model's]
    #[arg(long, value_name = "N")]
    fps: Option<f64>,
    /// Leave the sound out that the model would make
    #[arg(long)]
    without_audio: bool,
    /// Where it goes; several are numbered, and a sound is written beside as .wav. The extension says as what: .mp4, .gif, .png (a contact
    /// sheet of a clip), .safetensors, .wav (the sound alone), or a folder of frames if there is none
    #[arg(long, value_name = "PATH")]
    output: PathBuf,
}

const EXAMPLES: &str = "Examples:
  moviola generate --model goldens/pixart-tiny --prompt 'a red fox in the snow' --output fox.png
  moviola generate --model Wan-AI/Wan2.1-T2V-1.3B-Diffusers --prompt 'a cat walks on grass' \\
      --frames 33 --dtype bf16 --output cat.mp4
  moviola generate --model Wan-AI/Wan2.2-TI2V-5B-Diffusers --prompt 'waves roll in' \\
      --image shore.jpg --dtype bf16 --output shore.mp4
  moviola generate --model PixArt-alpha/PixArt-XL-2-512x512 --prompt 'a lighthouse' --steps 14 \\
      --dtype bf16 --seed 7 --count 4 --output lighthouse.png";

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum SolverName {
    Scheduler,
    Renoise,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Dtype {
    F32,
    Bf16,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Quantize {
    Int8,
}

/// Checks everything, then works, then writes.
///
/// # Errors
/// Something is wrong with the request, the model or the output; nothing was written then.
pub(crate) fn run(arguments: &Arguments, clock: &Clock) -> Outcome {
    threads::within(arguments.threads, || make(arguments, clock))
}

fn make(arguments: &Arguments, clock: &Clock) -> Outcome {
    let device = device::parse(&arguments.device)?;
    let request = arguments.request()?;
    if !output::is_sound(&arguments.output) {
        Format::of(&arguments.output)?;
    }
    if let Some(path) = &arguments.save_latents {
        output::writable(path)?;
    }
    output::writable_beside(&arguments.output)?;
    let precision = match arguments.dtype {
        Dtype::F32 => Precision::Stored,
        Dtype::Bf16 => Precision::Bf16,
    };
    let quantization = arguments.quantize.map(|Quantize::Int8| Quantization::Int8);
    let residency = if arguments.offload { Residency::OneAtATime } else { Residency::Kept };
    let model = folder::locate(&arguments.model, &hub::from_environment())?;
    let (loras, second_loras) = (arguments.lora.clone(), arguments.second_lora.clone());
    let transformer = arguments.transformer.clone();
    let setup = Setup {
        precision,
        quantization,
        residency,
        transformer,
        loras,
        second_loras,
        ..Setup::new(&device)
    };
    let mut pipeline = Pipeline::open(&model, &setup)?;
    let own = pipeline.description().defaults.frame_rate;
    let rate = FrameRate::from_number(arguments.fps.unwrap_or(own))
        .map_err(|err| Failure::Refused(format!("--fps: {err}")))?;
    let record = |sample, size| arguments.record(&request, sample, size, clock);
    let latents = arguments.save_latents.as_deref();
    let sounds = pipeline.description().sound.is_some() && !arguments.without_audio;
    let inputs = arguments.inputs();
    let stop = signals::watch()?;
    let first = |pipeline: &mut Pipeline| -> Outcome<PipelineOutput> {
        let mut output =
            Output::new(&arguments.output, rate, &record).beside(latents, sounds, &inputs);
        let mut bars = Bars::new(clock, Arc::clone(&stop));
        let answer = pipeline.run(&request, &mut bars, &mut output)?;
        bars.finish();
        output.finish()?;
        Ok(answer)
    };
    let answer = match arguments.layout.is_given() {
        false => first(&mut pipeline)?,
        true => {
            let plan = arguments.layout.plan(&pipeline.workload(&request)?)?;
            ranked(arguments, &mut pipeline, &request, &plan, &first)?
        }
    };
    match &arguments.save_latents {
        Some(path) => Ok(output::write(path, &answer.latents_file()?)?),
        None => Ok(()),
    }
}

/// Runs a request on the ranks of a plan; `first` does what the first of them does.
fn ranked(
    arguments: &Arguments,
    pipeline: &mut Pipeline,
    request: &Request,
    plan: &Plan,
    first: &(dyn Fn(&mut Pipeline) -> Outcome<PipelineOutput> + Sync),
) -> Outcome<PipelineOutput> {
    if !arguments.offload {
        pipeline.open_all()?;
    }
    let shared = Mutex::new(pipeline.clone());
    arguments.layout.run(plan, arguments.threads, |group| {
        let rank = group.rank();
        let mesh = plan.mesh(group).map_err(engine::Error::from)?;
        let mut own = shared.lock().unwrap_or_else(PoisonError::into_inner).on(mesh, plan);
        match rank {
            0 => first(&mut own),
            _ => Ok(own.run(request, &mut Silent, &mut Nobody)?),
        }
    })
}

/// Takes what is made and keeps nothing: on ranks that own nothing.
struct Nobody;

impl Frames for Nobody {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> engine::Result<()> {
        Ok(())
    }
}

impl Arguments {
    /// Files that are read, which nothing may overwrite.
    fn inputs(&self) -> Vec<PathBuf> {
        let loras = self.lora.iter().chain(&self.second_lora).map(|lora| lora.path.clone());
        let files = [&self.prompts, &self.transformer, &self.noise, &self.prompt_embeds];
        let files = files.into_iter().flatten().cloned();
        files.chain(loras).chain(self.given.files()).collect()
    }

    fn request(&self) -> Outcome<Request> {
        let mut prompts = self.prompt.clone();
        if let Some(path) = &self.prompts {
            prompts.extend(lines(path)?);
        }
        if prompts.is_empty() && self.prompt_embeds.is_none() {
            return Err(Failure::refused(
                "there is no prompt; give --prompt, --prompts or --prompt-embeds",
            ));
        }
        if self.timesteps.is_some() && self.solver != Some(SolverName::Renoise) {
            let reason = "--timesteps are for --solver renoise; add it, or give --steps instead";
            return Err(Failure::refused(reason));
        }
        let solving = match (self.solver, &self.timesteps) {
            (Some(SolverName::Renoise), Some(timesteps)) => Solving::Renoise(timesteps.clone()),
            (Some(SolverName::Scheduler), _) => Solving::Scheduler,
            _ => Solving::Recorded,
        };
        Ok(Request {
            prompts,
            given: vec![self.given.given()],
            negative: self.negative.clone(),
            steps: self.steps,
            guidance: self.guidance,
            second_guidance: self.second_guidance,
            height: self.height,
            width: self.width,
            frames: self.frames,
            frame_rate: self.fps,
            without_audio: self.without_audio,
            only_audio: output::is_sound(&self.output),
            seed: self.seed,
            first_sample: self.first_sample,
            count: self.count,
            max_tokens: self.max_tokens,
            eta: self.eta,
            solving,
            noise: self.noise.clone(),
            prompt_embeds: self.prompt_embeds.clone(),
            clean_caption: self.clean_caption,
            sizing: if self.resolution_binning { Sizing::Binned } else { Sizing::Exact },
            decoding: if self.tile_vae { Decoding::Tiled } else { Decoding::Whole },
        })
    }

    /// Everything needed to make sample `index` again, and how long it took.
    fn record(
        &self,
        request: &Request,
        index: usize,
        [frames, height, width]: [usize; 3],
        clock: &Clock,
    ) -> serde_json::Value {
        // A path may hold what JSON cannot.
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let loras = |given: &[LoraSource]| -> Vec<String> {
            given.iter().map(|lora| format!("{}:{}", lora.path.display(), lora.scale)).collect()
        };
        serde_json::json!({
            "moviola": env!("CARGO_PKG_VERSION"),
            "command": "generate",
            "model": self.model,
            "quantize": self.quantize.map(|Quantize::Int8| "int8"),
            "prompt": request.prompts.get(index / request.count),
            "negative": request.negative,
            "prompt_embeds": text(&request.prompt_embeds),
            "steps": request.steps,
            "solver": match request.solving {
                Solving::Recorded => None,
                Solving::Scheduler => Some("scheduler"),
                Solving::Renoise(_) => Some("renoise"),
            },
            "timesteps": self.timesteps,
            "guidance": request.guidance,
            "guidance_2": request.second_guidance,
            "frames": frames,
            "height": height,
            "width": width,
            "fps": self.fps,
            "without_audio": self.without_audio,
            "given": self.given.record(),
            "seed": request.seed,
            "sample": request.first_sample + index as u64,
            "noise": text(&request.noise),
            "transformer": text(&self.transformer),
            "lora": loras(&self.lora),
            "lora_2": loras(&self.second_lora),
            "dtype": format!("{:?}", self.dtype).to_lowercase(),
            "device": self.device,
            "max_tokens": request.max_tokens,
            "eta": request.eta,
            "resolution_binning": self.resolution_binning,
            "clean_caption": self.clean_caption,
            "tile_vae": self.tile_vae,
            "seconds": clock.seconds(),
            "seconds_to_first_step": clock.seconds_to_first_step(),
        })
    }
}

/// The lines of a file that are not empty.
fn lines(path: &Path) -> Outcome<Vec<String>> {
    let text = fs::read_to_string(path).map_err(|source| Error::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })?;
    // Some editors begin a file with a mark that is no part of its text.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
