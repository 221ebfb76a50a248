//! `moviola generate`.

mod arguments;
mod asks;
mod enlarging;
mod more;
mod record;
mod replay;
pub(crate) mod room;
mod told;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use data::aside::Existing;
use data::media::{Format, FrameRate};
use engine::{Pipeline, PipelineOutput, Plan, Residency, Seed, Setup};
use nn::{Precision, Quantization};

pub(crate) use self::arguments::{Arguments, Dtype, Quantize};
use self::record::Inputs;
use self::replay::Replay;
use crate::bars::Bars;
use crate::clock::Clock;
use crate::failure::{Failure, Outcome};
use crate::inputs::InputFiles;
use crate::job::Job;
use crate::output::{self, Output};
use crate::places::{Kind, Places};
use crate::ranked::{self, Nobody, Unseen};
use crate::signals::Writing;
use crate::voice::Voice;
use crate::{device, hardware, hub, launch};

/// Checks everything, then works, then writes.
///
/// # Errors
/// Something is wrong with the request, the model or the output, or the user interrupted.
pub(crate) fn run(arguments: &Arguments, voice: Voice, clock: &Clock) -> Outcome {
    let timeout = arguments.layout.timeout();
    Job::run(arguments.threads, timeout, |job| Run::new(arguments, job, (voice, clock))?.make())
}

/// How a model is opened, whatever is made of it.
///
/// # Errors
/// There is no such device.
pub(crate) fn setup(
    device: &str,
    dtype: Dtype,
    quantize: Option<Quantize>,
    offload: bool,
) -> Outcome<Setup> {
    Ok(Setup {
        precision: match dtype {
            Dtype::F32 => Precision::Stored,
            Dtype::Bf16 => Precision::Bf16,
        },
        quantization: quantize.map(|Quantize::Int8| Quantization::Int8),
        residency: if offload { Residency::OneAtATime } else { Residency::Kept },
        ..Setup::new(&device::parse(device)?)
    })
}

/// A run of the command.
struct Run<'a> {
    job: &'a Job,
    voice: Voice,
    clock: &'a Clock,
    /// Its parts: prompts that differ in their text alone.
    asks: Vec<Arguments>,
    /// What is the same for all parts: the model, where it is computed and how.
    common: Arguments,
    kind: Kind,
    model: PathBuf,
    writing: Writing,
}

/// What is opened for a part of a run, and what it will do.
struct Opened {
    pipeline: Pipeline,
    plan: Plan,
    /// How ranks share the work, where there are several.
    layout: Option<parallel::Plan>,
}

impl<'a> Run<'a> {
    /// Reads the arguments, or the record that takes their place.
    fn new(
        asked: &Arguments,
        job: &'a Job,
        (voice, clock): (Voice, &'a Clock),
    ) -> Outcome<Run<'a>> {
        device::parse(&asked.device)?;
        // Clap forgives what an argument requires where that excludes another one that is given.
        if asked.sample.is_some() && asked.replay.is_none() {
            let reason = "--sample: it says which sample of a record to make again; add --replay FILE.json, or say \
                          --first-sample";
            return Err(Failure::refused(reason));
        }
        let (arguments, only_audio) = match &asked.replay {
            None => (asked.clone(), false),
            Some(path) => {
                let replay = Replay::of(asked, path, voice)?;
                (replay.arguments, replay.only_audio)
            }
        };
        let output = arguments.output.as_deref().expect("the arguments require it");
        let kind = Kind::of(output, arguments.format)?;
        if only_audio && kind != Kind::Sound {
            let reason =
                "--output: the record is of a sound alone; give a name that ends with .wav";
            return Err(Failure::refused(reason));
        }
        let mut asks = asks::asks(&arguments)?;
        // A seed that is to be drawn was drawn by each process for itself.
        let seeds = asks.iter().map(Arguments::seed).collect();
        let seeds = job.as_the_first("the seeds of all prompts", seeds)?;
        asks.iter_mut().zip(seeds).for_each(|(ask, seed)| ask.seed = Seed::Number(seed));
        let name = arguments.model.as_deref().expect("the arguments require it");
        let model = folder::locate(name, &hub::from_environment(voice))?;
        voice.detail(&format!("model: {}", model.display()));
        let writing = Writing::watch(voice)?;
        Ok(Run { job, voice, clock, asks, common: arguments, kind, model, writing })
    }

    fn make(&self) -> Outcome {
        // All parts are checked before the first one runs. One that is alone is not opened again.
        let mut first = None;
        let (mut samples, mut sizes) = (Vec::new(), Vec::new());
        let (mut sounds, mut told) = (false, Vec::new());
        for (at, ask) in self.asks.iter().enumerate() {
            let opened = self.open(ask).map_err(|err| asks::named(err, &self.common, ask))?;
            let used = opened.plan.used();
            samples.push(used.samples);
            sizes.push(used.delivered);
            sounds |= used.sounds;
            told.push(self.told(ask, &opened.plan));
            first = first.or((at == 0).then_some(opened));
        }
        if self.asks.len() > 1 && self.common.save_latents.is_some() {
            return Err(Failure::refused(
                "--save-latents: the prompts have settings of their own, and one file cannot hold the \
                 latents of all; leave it out, or run them one by one",
            ));
        }
        let places = self.places(samples.iter().sum(), sounds);
        // Only the first process writes, and nobody begins before all have checked.
        if launch::is_first() {
            let mut inputs = self.common.inputs();
            inputs.extend(self.asks.iter().flat_map(Arguments::inputs));
            places.check(&InputFiles::of_model(&self.model).with(inputs))?;
            self.writing.expect(places.all());
        }
        self.job.meet("the checks of a run")?;
        told.iter().for_each(|told| told.tell(self.voice));
        let mut bars = Bars::new(self.voice, self.clock, self.writing.flag());
        let mut done = 0;
        for (ask, samples) in self.asks.iter().zip(&samples) {
            let opened = match first.take() {
                Some(opened) => opened,
                None => self.open(ask)?,
            };
            self.carry_out(ask, opened, (&places, done), &mut bars)?;
            done += samples;
        }
        self.tell_end(done, &sizes, &bars);
        Ok(())
    }

    fn places(&self, samples: usize, sounds: bool) -> Places {
        Places {
            path: self.common.output.clone().expect("the arguments require it"),
            kind: self.kind,
            samples,
            sounds,
            latents: self.common.save_latents.clone(),
            existing: if self.common.overwrite { Existing::Replace } else { Existing::Refuse },
        }
    }

    /// Opens the model for a part of the run, and checks the part.
    fn open(&self, ask: &Arguments) -> Outcome<Opened> {
        let setup = Setup {
            transformer: ask.transformer.clone(),
            second_transformer: ask.second_transformer.clone(),
            loras: ask.lora.clone(),
            second_loras: ask.second_lora.clone(),
            upsampler: ask.enlarging.folder(self.voice)?,
            upsampler_loras: ask.enlarging.upsampler_lora.clone(),
            ..setup(&ask.device, ask.dtype, ask.quantize, ask.offload)?
        };
        let pipeline = Pipeline::open(&self.model, &setup)?;
        let request = ask.request(self.kind == Kind::Sound)?;
        let plan = pipeline.plan(&request)?;
        self.frame_rate(&pipeline, plan.used().frame_rate)?;
        room::check(ask, &pipeline, &plan, &request)?;
        let layout = match ask.layout.is_given() {
            true => {
                let work = pipeline.work(&request)?;
                Some(ask.layout.plan(&work, &hardware::here(&work, self.job)?)?)
            }
            false => None,
        };
        Ok(Opened { pipeline, plan, layout })
    }

    /// The rate of the clips, which the kind of file must be able to show.
    fn frame_rate(&self, pipeline: &Pipeline, used: Option<f64>) -> Outcome<FrameRate> {
        let rate = used.unwrap_or(pipeline.description().defaults.frame_rate);
        let refused = |reason: String| Failure::Refused(format!("--fps: {reason}"));
        let rate = FrameRate::from_number(rate).map_err(|err| refused(err.to_string()))?;
        match (self.kind, used) {
            (Kind::Clip(Format::Gif), Some(asked)) if rate.per_second() > Format::FASTEST_GIF => {
                Err(refused(format!(
                    "a GIF shows {} frames a second at most, and this is {asked}; write .mp4 or .webp, or say fewer",
                    Format::FASTEST_GIF
                )))
            }
            _ => Ok(rate),
        }
    }

    fn carry_out(
        &self,
        ask: &Arguments,
        Opened { mut pipeline, plan, layout }: Opened,
        (places, first): (&Places, usize),
        bars: &mut Bars<'_>,
    ) -> Outcome {
        let used = plan.used().clone();
        let rate = self.frame_rate(&pipeline, used.frame_rate)?;
        let inputs = Inputs::of(ask, &self.model, layout.as_ref(), self.voice)?;
        let record =
            |index, size| record::record(ask, &inputs, &used, self.kind, (index, size), self.clock);
        let bars = Mutex::new(bars);
        let write = |own: &mut Pipeline| -> Outcome<PipelineOutput> {
            let mut output = Output::new(places, first, rate, &record, &self.writing);
            let mut bars = bars.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = own.carry_out(&plan, &mut **bars, &mut output);
            bars.finish();
            match answer.and_then(|answer| output.finish().map(|()| answer)) {
                Err(engine::Error::Interrupted) => {
                    Err(Failure::Interrupted(self.writing.interrupted()))
                }
                answer => Ok(answer?),
            }
        };
        let answer = match &layout {
            None => write(&mut pipeline)?,
            Some(layout) => {
                // Threads share what is open; a process opens what its rank needs.
                if !ask.offload && matches!(self.job, Job::Alone) {
                    pipeline.open_all()?;
                }
                let body = |rank, own: &mut Pipeline| match rank {
                    0 => write(own),
                    _ => Ok(own.carry_out(&plan, &mut Unseen(self.writing.flag()), &mut Nobody)?),
                };
                ranked::on_ranks(self.job, (&ask.layout, layout), &pipeline, ask.threads, body)?
            }
        };
        self.tell_cache(answer.cache);
        match &self.common.save_latents {
            Some(path) if launch::is_first() => self.save(path, &answer.latents_file()?),
            _ => Ok(()),
        }
    }

    fn save(&self, path: &Path, latents: &[u8]) -> Outcome {
        output::write(path, latents)?;
        self.writing.wrote(path);
        Ok(())
    }
}
