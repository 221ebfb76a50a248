//! A record becomes the arguments that made it, if everything it read is still what it was.

use std::path::{Path, PathBuf};

use engine::{Fit, Seed, SolverUsed, model_fingerprint};
use families::Condition;
use folder::lora::LoraSource;
use kernels::{InstructionSet, Operands};

use super::arguments::{Arguments, Dtype, Quantize, Sigmas, SolverName, cache};
use super::enlarging::EnlargingArguments;
use super::record::{Enlarged, FORMAT, Input, Record};
use crate::failure::{Failure, Outcome};
use crate::given::GivenFile;
use crate::hub;
use crate::places::Kind;
use crate::threads;
use crate::voice::Voice;

/// Everything needed to make a sample again.
pub(super) struct Replay {
    pub(super) arguments: Arguments,
    pub(super) only_audio: bool,
}

impl Replay {
    /// Reads a record, with what the user says beside it: where the model is now and where the output
    /// goes, another sample, threads and the like.
    ///
    /// # Errors
    /// It is no record, or something that it read has changed; the error names all of it.
    pub(super) fn of(arguments: &Arguments, path: &Path, voice: Voice) -> Outcome<Replay> {
        let record = read(path)?;
        let own = env!("CARGO_PKG_VERSION");
        if record.moviola != own {
            voice.warn(&format!(
                "{} was made by moviola {}, and this is {own}: the bytes may differ",
                path.display(),
                record.moviola
            ));
        }
        if let Some(note) = record.computed_otherwise()? {
            voice.warn(&format!("{} {note}", path.display()));
        }
        let model = arguments.model.clone().unwrap_or_else(|| record.resolved(&record.model));
        let changed = record.changed(&model, voice)?;
        if !changed.is_empty() {
            return Err(Failure::Refused(format!(
                "--replay: {} cannot be made again, since {}",
                path.display(),
                changed.join(", and ")
            )));
        }
        let [first, last] = record.samples_of_prompt;
        if let Some(sample) = arguments.sample.filter(|own| !(first..=last).contains(own)) {
            voice.warn(&format!(
                "--sample: {} is of samples {first} to {last} of its seed, whatever their files are numbered; {sample} \
                 is one that was not made then",
                path.display()
            ));
        }
        let only_audio = record.only_audio;
        let arguments = record.arguments(arguments, model, path)?;
        Ok(Replay { arguments, only_audio })
    }
}

/// No record is longer: a prompt has at most 64 kB.
const LONGEST: u64 = 16 << 20;

fn read(path: &Path) -> Outcome<Record> {
    let refuse =
        |reason: String| Failure::Refused(format!("--replay: {}: {reason}", path.display()));
    let text = kernels::read_text(path, LONGEST)
        .map_err(|err| refuse(format!("it cannot be read: {err}")))?;
    // Some editors begin a file with a mark that is no part of its text.
    let value: serde_json::Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
        .map_err(|err| refuse(format!("it is no record of `moviola generate`: {err}")))?;
    if value["command"] != "generate" {
        return Err(refuse("it is no record of `moviola generate`".to_owned()));
    }
    if value["format"] != FORMAT {
        let reason = format!(
            "it is a record of format {}, but this version reads format {FORMAT}; earlier ones did not \
             tell all that was used",
            value.get("format").map_or("1".to_owned(), ToString::to_string)
        );
        return Err(refuse(reason));
    }
    serde_json::from_value(value).map_err(|err| refuse(format!("it is no whole record: {err}")))
}

impl Record {
    /// A path of the record: as it stands if there is such a file here, or else from where the command
    /// ran. A hub id stays what it is.
    fn resolved(&self, file: &str) -> String {
        let there = Path::new(&self.working_folder).join(file);
        match Path::new(file).exists() || !there.exists() {
            true => file.to_owned(),
            false => there.display().to_string(),
        }
    }

    /// Where an input is: of a file here and one where the command ran, both of that name, the one that was read.
    fn path(&self, input: &Input) -> PathBuf {
        let there = Path::new(&self.working_folder).join(&input.file);
        let was_read = |path: &Path| {
            let file = folder::lora::file(path).unwrap_or(path.to_owned());
            Input::of(&file).is_ok_and(|own| own.fingerprint == input.fingerprint)
        };
        let here = PathBuf::from(self.resolved(&input.file));
        match here != there && there.exists() && !was_read(&here) && was_read(&there) {
            true => there,
            false => here,
        }
    }

    /// That it was computed with instructions whose sums are not those of this machine, in words.
    fn computed_otherwise(&self) -> Outcome<Option<String>> {
        let Some(then) = &self.instructions else { return Ok(None) };
        let now = threads::instruction_set()?;
        let known = InstructionSet::ALL.into_iter().find(|set| set.name() == then);
        let operands = if self.dtype == "bf16" { Operands::Bf16 } else { Operands::F32 };
        let agrees = known.is_some_and(|then| then.agrees_with(now, operands));
        Ok((!agrees).then(|| {
            let again = match known.is_some_and(|then| then.lacking().is_empty()) {
                true => format!("; MOVIOLA_ISA={then} computes as it was"),
                false => String::new(),
            };
            format!("was computed with {then}, and this is {now}: the last bits may differ{again}")
        }))
    }

    /// What is no longer as it was, in words.
    fn changed(&self, model: &str, voice: Voice) -> Outcome<Vec<String>> {
        let mut changed = Vec::new();
        let folder = folder::locate(model, &hub::from_environment(voice))?;
        let now = model_fingerprint(&folder)?;
        if now != self.model_fingerprint {
            changed.push(differs("the model", model, &self.model_fingerprint, &now));
        }
        if let Some(Enlarged { upsampler, .. }) = &self.enlarged {
            let folder = self.enlarging().folder(voice)?.unwrap_or_default();
            match Input::of(&folder) {
                Ok(now) if now.fingerprint == upsampler.fingerprint => {}
                Ok(now) => {
                    let (then, now) = (&upsampler.fingerprint, &now.fingerprint);
                    changed.push(differs("the upsampler", &upsampler.file, then, now));
                }
                Err(err) => {
                    changed.push(format!("the upsampler {} is gone ({err})", upsampler.file))
                }
            }
        }
        let named = |role: &'static str, all: &[Input]| -> Vec<(String, Input)> {
            all.iter()
                .map(|own| (own.role.clone().unwrap_or(role.to_owned()), own.clone()))
                .collect()
        };
        let second = self.enlarged.as_ref().map_or(&[][..], |own| &own.lora);
        let loras = [&self.lora, &self.lora_2, second].map(|all| named("the LoRA", all)).concat();
        let single = [
            ("the transformer", &self.transformer),
            ("the second transformer", &self.transformer_2),
            ("the prompt embeddings", &self.prompt_embeds),
            ("the noise", &self.noise),
        ];
        let single =
            single.into_iter().filter_map(|(role, own)| Some((role.to_owned(), own.clone()?)));
        let is_lora = |at: usize| at < loras.len();
        let all = loras.iter().cloned().chain(named("what was given", &self.given)).chain(single);
        for (at, (role, input)) in all.enumerate() {
            let path = self.path(&input);
            let file = if is_lora(at) { folder::lora::file(&path).unwrap_or(path) } else { path };
            match Input::of(&file) {
                Ok(now) if now.fingerprint == input.fingerprint => {}
                Ok(now) => {
                    changed.push(differs(&role, &input.file, &input.fingerprint, &now.fingerprint));
                }
                Err(err) => changed.push(format!("{role} {} is gone ({err})", input.file)),
            }
        }
        Ok(changed)
    }

    /// The arguments that make the same bytes, with what the user says beside the record.
    fn arguments(&self, asked: &Arguments, model: String, path: &Path) -> Outcome<Arguments> {
        let few = self.solver == SolverUsed::RENOISE;
        let fit = Fit::ALL.into_iter().find(|(name, _)| *name == self.fit).map(|(_, fit)| fit);
        // Where nothing is given there is nothing to fit.
        let fit = fit.filter(|_| !self.given.is_empty());
        let sample = self.sample_of(asked.sample, path)?;
        let moved = sample.wrapping_sub(self.sample) as usize;
        let row = |input: &Option<Input>| input.as_ref().and_then(|own| own.row);
        let file = |input: &Option<Input>| input.as_ref().map(|own| self.path(own));
        let mut arguments = Arguments {
            model: Some(model),
            prompt: self.prompt.iter().cloned().collect(),
            prompts: None,
            negative: self.negative.clone(),
            steps: (!few && self.sigmas.is_none()).then_some(self.steps),
            sigmas: self.sigmas.clone().map(Sigmas::Levels),
            enlarging: self.enlarging(),
            solver: Some(if few { SolverName::Renoise } else { SolverName::Scheduler }),
            timesteps: few.then(|| self.timesteps.clone()),
            guidance: Some(self.guidance),
            second_guidance: self.guidance_2,
            more: self.more_guidance.clone().unwrap_or_default(),
            flow_shift: self.flow_shift,
            eta: self.eta,
            height: Some(self.height),
            width: Some(self.width),
            frames: Some(self.frames),
            fit,
            seed: Seed::Number(self.seed),
            first_sample: sample,
            count: 1,
            dtype: if self.dtype == "bf16" { Dtype::Bf16 } else { Dtype::F32 },
            quantize: self.quantize.as_ref().map(|_| Quantize::Int8),
            transformer: file(&self.transformer),
            second_transformer: file(&self.transformer_2),
            lora: self.loras(&self.lora),
            second_lora: self.loras(&self.lora_2),
            noise: file(&self.noise),
            noise_row: row(&self.noise).map(|row| row.wrapping_add(moved)),
            prompt_embeds: file(&self.prompt_embeds),
            prompt_embeds_row: row(&self.prompt_embeds),
            max_tokens: self.max_tokens,
            resolution_binning: self.resolution_binning,
            clean_caption: self.clean_caption,
            tile_vae: self.tile_vae,
            cache: self.cache.as_deref().and_then(|own| cache(own).ok()),
            layout: self.layout.clone().unwrap_or_default().waiting_like(&asked.layout),
            fps: self.fps,
            without_audio: self.without_audio,
            output: Some(asked.output.clone().unwrap_or_else(|| beside(path))),
            format: asked.format.or_else(|| self.kind(asked.output.is_none())),
            ..asked.clone()
        };
        for given in &self.given {
            let role = given.role.as_deref().unwrap_or_default();
            // What has no role that is known is passed over.
            let known = Condition::ALL.into_iter().find(|known| known.to_string() == role);
            let Some(role) = known else { continue };
            let (path, scale) = (self.path(given), given.scale.map(|scale| scale as usize));
            arguments.given.give(GivenFile { role, path, frame: given.frame, scale });
        }
        Ok(arguments)
    }

    /// What the output is to be, where its name does not say so: a name that the user gives does.
    fn kind(&self, is_beside: bool) -> Option<Kind> {
        let written = self.written_as.as_deref().filter(|_| is_beside);
        let named = written.and_then(|name| Kind::named(name).ok());
        named.or_else(|| self.only_audio.then_some(Kind::Sound))
    }

    /// LoRAs as they were given.
    fn loras(&self, all: &[Input]) -> Vec<LoraSource> {
        let source = |own: &Input| LoraSource {
            path: self.path(own),
            scale: own.scale.unwrap_or(1.0) as f32,
        };
        all.iter().map(source).collect()
    }

    /// The arguments of a second stage.
    fn enlarging(&self) -> EnlargingArguments {
        self.enlarged.as_ref().map_or_else(EnlargingArguments::default, |own| EnlargingArguments {
            upsampler: Some(self.resolved(&own.upsampler.file)),
            upsampler_sigmas: Some(own.sigmas.clone()),
            upsampler_adain: Some(own.adain),
            upsampler_tone_map: Some(own.tone_map),
            upsampler_lora: self.loras(&own.lora),
        })
    }

    /// The sample to make: that of the record, or another of its prompt.
    fn sample_of(&self, asked: Option<u64>, path: &Path) -> Outcome<u64> {
        let [first, last] = self.samples_of_prompt;
        match asked {
            None => Ok(self.sample),
            // One prompt may be made as often as one likes, but each row of a file once.
            Some(sample) if self.prompts == 1 && self.noise.is_none() => Ok(sample),
            Some(sample) if (first..=last).contains(&sample) => Ok(sample),
            Some(sample) => Err(Failure::Refused(format!(
                "--sample: {} is of a prompt whose samples are {first} to {last}, and {sample} is another \
                 prompt's; replay a record of that one",
                path.display()
            ))),
        }
    }
}

fn differs(role: &str, file: &str, then: &str, now: &str) -> String {
    let short = |hash: &str| hash.chars().take(12).collect::<String>();
    format!("{role} {file} has changed (it was {}, and is {})", short(then), short(now))
}

/// Where a replay goes unless told otherwise: beside the record, as `x-replay.gif` of `x.gif.json`.
fn beside(record: &Path) -> PathBuf {
    let output = record.with_extension("");
    let mut name = output.file_stem().unwrap_or_default().to_owned();
    name.push("-replay");
    if let Some(extension) = output.extension() {
        name.push(".");
        name.push(extension);
    }
    output.with_file_name(name)
}
