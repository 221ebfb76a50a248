//! The record beside an output: everything that was used, so that it can be made again.

use std::path::{Path, PathBuf};

use engine::{EnlargedUsed, Used, file_fingerprint, model_fingerprint};
use folder::lora::LoraSource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::arguments::{Arguments, Dtype, Quantize};
use super::more::MoreArguments;
use crate::clock::Clock;
use crate::failure::{Failure, Outcome};
use crate::layout::LayoutArguments;
use crate::places::Kind;
use crate::threads;
use crate::voice::Voice;

/// The format of records; a reader must know it.
pub(super) const FORMAT: u32 = 2;

/// What was used for one sample.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The version that made it.
    pub(super) moviola: String,
    pub(super) command: String,
    pub(super) format: u32,
    /// Where the command ran: its relative paths begin there.
    pub(super) working_folder: String,
    pub(super) model: String,
    pub(super) model_fingerprint: String,
    pub(super) transformer: Option<Input>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) transformer_2: Option<Input>,
    pub(super) lora: Vec<Input>,
    pub(super) lora_2: Vec<Input>,
    pub(super) prompt: Option<String>,
    pub(super) negative: String,
    pub(super) prompt_embeds: Option<Input>,
    pub(super) max_tokens: Option<usize>,
    pub(super) clean_caption: bool,
    /// Given beside the prompt.
    pub(super) given: Vec<Input>,
    pub(super) fit: String,
    pub(super) solver: String,
    pub(super) solver_options: Map<String, Value>,
    pub(super) steps: usize,
    pub(super) timesteps: Vec<f64>,
    /// Noise levels, where they were not the scheduler's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sigmas: Option<Vec<f64>>,
    /// The second of two stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) enlarged: Option<Enlarged>,
    pub(super) guidance: f64,
    pub(super) guidance_2: Option<f64>,
    #[serde(default)]
    pub(super) more_guidance: Option<MoreArguments>,
    pub(super) flow_shift: Option<f64>,
    pub(super) eta: Option<f64>,
    pub(super) frames: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    /// Height and width that the model made, where that was resized.
    pub(super) generated: [usize; 2],
    pub(super) resolution_binning: bool,
    pub(super) fps: Option<f64>,
    pub(super) without_audio: bool,
    pub(super) only_audio: bool,
    pub(super) seed: u64,
    /// The number of the sample, to which its noise belongs.
    pub(super) sample: u64,
    /// The numbers of the first and the last sample of its prompt.
    pub(super) samples_of_prompt: [u64; 2],
    /// How many prompts its part of the run had.
    pub(super) prompts: usize,
    pub(super) noise: Option<Input>,
    pub(super) dtype: String,
    /// In which bits the matrices of the transformer's blocks were held, where these were fewer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) quantize: Option<String>,
    pub(super) device: String,
    /// The instructions that it was computed with: others round other sums.
    #[serde(default)]
    pub(super) instructions: Option<String>,
    /// How ranks shared the work, where there were several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) layout: Option<LayoutArguments>,
    pub(super) tile_vae: bool,
    #[serde(default)]
    pub(super) cache: Option<String>,
    /// What the output was written as. Earlier versions wrote it down only where its name did not say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) written_as: Option<String>,
    /// How long all took until this was written.
    pub(super) seconds: f64,
    pub(super) seconds_to_first_step: Option<f64>,
}

/// How a smaller clip became a larger one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Enlarged {
    pub(super) upsampler: Input,
    /// Frames, height and width of the smaller clip.
    pub(super) from: [usize; 3],
    pub(super) sigmas: Vec<f64>,
    pub(super) timesteps: Vec<f64>,
    pub(super) adain: f64,
    pub(super) tone_map: f64,
    /// LoRAs of the second stage alone.
    pub(super) lora: Vec<Input>,
}

impl Enlarged {
    fn of(used: &EnlargedUsed, upsampler: &Input, lora: &[Input]) -> Enlarged {
        Enlarged {
            upsampler: upsampler.clone(),
            from: used.from,
            sigmas: used.levels.clone(),
            timesteps: used.timesteps.clone(),
            adain: used.adain,
            tone_map: used.tone_map,
            lora: lora.to_vec(),
        }
    }
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Input {
    /// What it was given as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) role: Option<String>,
    pub(super) file: String,
    pub(super) fingerprint: String,
    /// How strongly a LoRA applies, or how many times smaller a reference is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scale: Option<f64>,
    /// The frame that a picture stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) frame: Option<usize>,
    /// The row of the file that belongs to the sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) row: Option<usize>,
}

impl Input {
    /// A file as it is now.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn of(path: &Path) -> Outcome<Input> {
        // A path may hold what JSON cannot.
        let file = path.display().to_string();
        let fingerprint = file_fingerprint(path)?;
        Ok(Input { role: None, file, fingerprint, scale: None, frame: None, row: None })
    }

    fn of_lora(source: &LoraSource) -> Outcome<Input> {
        let own = Input::of(&folder::lora::file(&source.path)?)?;
        let scale = Some(f64::from(source.scale));
        Ok(Input { file: source.path.display().to_string(), scale, ..own })
    }
}

/// The files that a part of a run reads, as they are before it begins, who shares its work and by what.
pub(super) struct Inputs {
    instructions: String,
    layout: Option<LayoutArguments>,
    model_fingerprint: String,
    transformer: Option<Input>,
    transformer_2: Option<Input>,
    lora: Vec<Input>,
    lora_2: Vec<Input>,
    prompt_embeds: Option<Input>,
    noise: Option<Input>,
    given: Vec<Input>,
    upsampler: Option<Input>,
    upsampler_lora: Vec<Input>,
}

impl Inputs {
    /// Looks at all of them.
    ///
    /// # Errors
    /// One cannot be read.
    pub(super) fn of(
        arguments: &Arguments,
        model: &Path,
        layout: Option<&parallel::Plan>,
        voice: Voice,
    ) -> Outcome<Inputs> {
        let one = |path: &Option<PathBuf>| path.as_deref().map(Input::of).transpose();
        let loras = |all: &[LoraSource]| all.iter().map(Input::of_lora).collect::<Outcome<_>>();
        let given = arguments.given.listed().into_iter().map(|given| {
            let scale = given.scale.map(|scale| scale as f64);
            let own = Input::of(&given.path)?;
            Ok(Input { role: Some(given.role.to_string()), frame: given.frame, scale, ..own })
        });
        let upsampler = arguments.enlarging.folder(voice)?.map(|folder| {
            let file = arguments.enlarging.upsampler.clone().unwrap_or_default();
            Ok::<_, Failure>(Input { file, ..Input::of(&folder)? })
        });
        Ok(Inputs {
            instructions: threads::instruction_set()?.name().to_owned(),
            layout: layout.map(|plan| arguments.layout.of_one_sample(plan)),
            model_fingerprint: model_fingerprint(model)?,
            transformer: one(&arguments.transformer)?,
            transformer_2: one(&arguments.second_transformer)?,
            lora: loras(&arguments.lora)?,
            lora_2: loras(&arguments.second_lora)?,
            prompt_embeds: one(&arguments.prompt_embeds)?,
            noise: one(&arguments.noise)?,
            given: given.collect::<Outcome<_>>()?,
            upsampler: upsampler.transpose()?,
            upsampler_lora: loras(&arguments.enlarging.upsampler_lora)?,
        })
    }

    /// The second of two stages, if there is one.
    fn enlarged(&self, used: &Used) -> Option<Enlarged> {
        let both = used.enlarged.as_ref().zip(self.upsampler.as_ref());
        both.map(|(used, upsampler)| Enlarged::of(used, upsampler, &self.upsampler_lora))
    }
}

/// A file with a row for each sample, of which one began with row `first`.
fn row(input: &Option<Input>, first: Option<usize>, row: usize) -> Option<Input> {
    input.clone().map(|input| Input { row: Some(first.unwrap_or(0) + row), ..input })
}

/// The record of sample `index` of a part of a run, whose size is `[frames, height, width]`.
pub(super) fn record(
    arguments: &Arguments,
    inputs: &Inputs,
    used: &Used,
    kind: Kind,
    (index, size): (usize, [usize; 3]),
    clock: &Clock,
) -> Value {
    // The clip that is not made decides how long the sound lasts.
    let unmade = [used.size[0], used.delivered[0], used.delivered[1]];
    let only_audio = kind == Kind::Sound;
    let [frames, height, width] = if only_audio { unmade } else { size };
    let prompt = index / arguments.count.max(1);
    let first = arguments.first_sample + (prompt * arguments.count) as u64;
    let own = Record {
        moviola: env!("CARGO_PKG_VERSION").to_owned(),
        command: "generate".to_owned(),
        format: FORMAT,
        working_folder: std::env::current_dir().unwrap_or_default().display().to_string(),
        model: arguments.model.clone().unwrap_or_default(),
        model_fingerprint: inputs.model_fingerprint.clone(),
        transformer: inputs.transformer.clone(),
        transformer_2: inputs.transformer_2.clone(),
        lora: inputs.lora.clone(),
        lora_2: inputs.lora_2.clone(),
        prompt: arguments.prompt.get(prompt).cloned(),
        negative: arguments.negative.clone(),
        prompt_embeds: row(&inputs.prompt_embeds, arguments.prompt_embeds_row, prompt),
        max_tokens: used.max_tokens,
        clean_caption: arguments.clean_caption,
        given: inputs.given.clone(),
        fit: used.fit.name().to_owned(),
        solver: used.solver.class.to_owned(),
        solver_options: used.solver.options.clone(),
        steps: used.steps,
        timesteps: used.timesteps.clone(),
        sigmas: used.levels.clone(),
        enlarged: inputs.enlarged(used),
        guidance: used.guidance[0],
        guidance_2: used.guidance.get(1).copied(),
        more_guidance: used.more.as_ref().map(MoreArguments::of),
        flow_shift: arguments.flow_shift,
        eta: arguments.eta,
        frames,
        height,
        width,
        generated: [used.size[1], used.size[2]],
        resolution_binning: arguments.resolution_binning,
        fps: used.frame_rate,
        without_audio: arguments.without_audio,
        only_audio,
        seed: arguments.seed(),
        sample: arguments.first_sample + index as u64,
        samples_of_prompt: [first, first + (arguments.count as u64).saturating_sub(1)],
        prompts: used.samples / arguments.count.max(1),
        noise: row(&inputs.noise, arguments.noise_row, index),
        dtype: if arguments.dtype == Dtype::Bf16 { "bf16" } else { "f32" }.to_owned(),
        quantize: arguments.quantize.map(|Quantize::Int8| "int8".to_owned()),
        device: arguments.device.clone(),
        instructions: Some(inputs.instructions.clone()),
        layout: inputs.layout.clone(),
        tile_vae: arguments.tile_vae,
        cache: arguments.cache.map(|share| format!("fbcache:{share}")),
        written_as: Some(kind.name().to_owned()),
        seconds: clock.seconds(),
        seconds_to_first_step: clock.seconds_to_first_step(),
    };
    serde_json::to_value(own).expect("a record is plain JSON")
}
