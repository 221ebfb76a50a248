//! A look at the student along the way: the engine makes the same clips from the same noise, and losses
//! on samples that are held out are taken at the same levels.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use comm::{Axis, Group, MeshShape};
use data::Clip;
use data::media::{ClipWriter, Format, Frame, FrameRate, Waveform};
use data::world::{Judge, MovingShape};
use diffusion::{NoiseLevels, Process};
use engine::{Audio, Field, Frames, Given, Media, Pipeline, Progress, Request, Residency, Setup};
use families::Record;
use nn::{OneDevice, Schedule, Store};
use parallel::{Layout, Plan, Workload};
use strategies::Flexible;
use train::{Averaged, Batch, Callback, Draws, Error, Event, Method, Strategy, noise_for};

use crate::error::Result;
use crate::feed::{LoaderFeed, Source};
use crate::look::{self, Look, SeenClip};
use crate::model::{Model, Origin};
use crate::schema::{GivenConfig, Recipe, SourceConfig, ValidationConfig};

/// Where held-out losses are taken.
const LEVELS: [f32; 5] = [0.1, 0.3, 0.5, 0.7, 0.9];

/// Whoever keeps what is found.
pub type Recorder = Box<dyn FnMut(&Look<'_>) -> train::Result<()>>;

/// Looks at the student before the first step and after every so many.
pub(crate) struct Validation {
    pub(crate) every: u64,
    pub(crate) maker: Maker,
    /// The transformers of its pipeline that learn.
    pub(crate) looked: Vec<Looked>,
    /// The folder of the run.
    pub(crate) folder: PathBuf,
    /// How clips end: `gif`, `mp4`, `png`.
    pub(crate) extension: &'static str,
    /// Reads clips of the shapes world.
    pub(crate) judge: Option<(Judge, Vec<MovingShape>)>,
    /// Samples that are never learnt from: one batch for each size.
    pub(crate) held_out: Option<Vec<Batch>>,
    pub(crate) record: Recorder,
    pub(crate) watched: Watched,
}

/// Who sees how far a look is, and may end it.
pub type Watched = Box<dyn Progress>;

/// A network that is looked at.
pub(crate) struct Looked {
    pub(crate) role: &'static str,
    /// Its place among the transformers of its folder.
    pub(crate) expert: usize,
    pub(crate) average: Option<Averaged>,
    pub(crate) task: HeldOutTask,
}

/// What the losses of samples that are held out are about.
pub(crate) struct HeldOutTask {
    pub(crate) strategy: Flexible,
    pub(crate) process: Process,
    pub(crate) seed: u64,
    /// The levels that the student predicts at.
    pub(crate) range: [f64; 2],
}

impl HeldOutTask {
    /// Where losses are taken: evenly over the levels that the student predicts at.
    fn levels(&self) -> [f32; 5] {
        let [low, high] = self.range;
        match self.range == [0.0, 1.0] {
            true => LEVELS,
            false => LEVELS.map(|level| (low + f64::from(level) * (high - low)) as f32),
        }
    }
}

/// What a validation asks for, as a request.
fn request(config: &ValidationConfig, prompts: Vec<String>, given: Given) -> Request {
    let [frames, height, width] = match config.size {
        Some(size) => size.map(Some),
        None => [None; 3],
    };
    Request {
        prompts,
        given: vec![given],
        negative: config.negative.clone(),
        steps: config.steps,
        guidance: config.guidance,
        height,
        width,
        frames,
        seed: config.seed,
        ..Request::default()
    }
}

/// What is given, where `place` says that a path lies.
fn given(config: &GivenConfig, place: &dyn Fn(&String) -> PathBuf) -> Given {
    let media = |path: &Option<String>| path.as_ref().map(|path| Media::File(place(path)));
    Given {
        image: media(&config.image),
        last_image: media(&config.last_image),
        keyframes: config
            .keyframes
            .iter()
            .map(|own| (own.frame, Media::File(place(&own.image))))
            .collect(),
        video_prefix: media(&config.video_prefix),
        video: media(&config.video),
        mask: media(&config.mask),
        references: media(&config.reference).into_iter().map(|media| (media, None)).collect(),
        audio: config.audio.as_ref().map(|path| Audio::File(place(path))),
    }
}

impl Validation {
    fn look(&mut self, step: u64, method: &dyn Method) -> train::Result<()> {
        let failed = |reason: String| Error::Callback { name: "validation".to_owned(), reason };
        let stores = lent(&self.looked, method)?;
        let (clips, mut seen) = match self.clips(step, &stores) {
            // The run ends before its next step, and looks again when it goes on.
            Err(error) if was_interrupted(&error) => return Ok(()),
            made => made.map_err(|err| failed(err.to_string()))?,
        };
        let mut numbers: Vec<(String, f64)> = Vec::new();
        if let Some((judge, scenes)) = self.judge.as_ref().filter(|_| !clips.is_empty()) {
            for ((clip, scene), seen) in clips.iter().zip(scenes).zip(&mut seen) {
                seen.right = Some(judge.read(clip).shows(scene));
            }
            let right = seen.iter().filter(|clip| clip.right == Some(true)).count();
            let share = right as f64 / scenes.len().max(1) as f64;
            numbers.push(("validation/score".to_owned(), share));
        }
        if !seen.is_empty() {
            look::write_list(&look::folder(&self.folder, step), &seen)
                .map_err(|err| failed(err.to_string()))?;
        }
        if let Some(batches) = self.held_out.as_ref().filter(|_| !self.watched.interrupted()) {
            let each = self.losses(batches, &stores, method)?;
            let mean = each.iter().map(|(_, loss)| loss).sum::<f64>() / each.len() as f64;
            numbers.push(("held_out/loss".to_owned(), mean));
            let name = |level: f32| (f64::from(level) * 1e3).round() / 1e3;
            numbers.extend(
                each.iter().map(|(level, loss)| (format!("held_out/loss/{}", name(*level)), *loss)),
            );
        }
        let numbers: Vec<(&str, f64)> =
            numbers.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        (self.record)(&Look { step, numbers: &numbers, clips: &seen })
    }

    /// The losses of samples that are held out, of each network at levels of its own.
    fn losses(
        &self,
        batches: &[Batch],
        stores: &[Store],
        method: &dyn Method,
    ) -> train::Result<Vec<(f32, f64)>> {
        // The others are done and wait, so this rank predicts alone.
        let (alone, mut each) = (OneDevice::default(), Vec::new());
        for (own, store) in self.looked.iter().zip(stores) {
            let network = method.role(own.role)?.network();
            let predict = |inputs: &nn::Inputs| -> train::Result<nn::Prediction> {
                Ok(alone.predict(&**network, store, inputs)?)
            };
            each.extend(own.task.levels().into_iter().zip(own.task.losses(batches, predict)?));
        }
        Ok(each)
    }

    /// Makes and writes the clips.
    fn clips(&mut self, step: u64, stores: &[Store]) -> Result<(Vec<Clip>, Vec<SeenClip>)> {
        let folder = look::folder(&self.folder, step);
        let rate = self.maker.pipeline.description().defaults.frame_rate;
        let rate = FrameRate::from_number(rate).map_err(engine::Error::from)?;
        let (frames, sounds) = (Vec::new(), Vec::new());
        let mut kept = Kept { folder, extension: self.extension, rate, frames, sounds };
        self.maker.make(&self.looked, stores, (&mut *self.watched, &mut kept))?;
        kept.write(&self.maker.request.prompts)
    }
}

/// Makes the clips of a look, together with the other ranks if there are any.
pub(crate) struct Maker {
    pipeline: Pipeline,
    request: Request,
}

impl Maker {
    /// Makes all of them with these parameters; the first rank is given them.
    fn make(
        &mut self,
        looked: &[Looked],
        stores: &[Store],
        (progress, frames): (&mut dyn Progress, &mut dyn Frames),
    ) -> Result<()> {
        for (own, store) in looked.iter().zip(stores) {
            self.pipeline.replace_transformer(own.expert, store.clone())?;
        }
        let run = self.pipeline.run(&self.request, progress, frames);
        // Held on to, they would be copied by the next update.
        looked.iter().for_each(|own| self.pipeline.forget_transformer(own.expert));
        run?;
        Ok(())
    }
}

/// The parameters of the networks that are looked at; all ranks give what they hold, and get all.
fn lent(looked: &[Looked], method: &dyn Method) -> train::Result<Vec<Store>> {
    let merged = |own: &Looked| method.role(own.role)?.merged(own.average.as_ref());
    looked.iter().map(merged).collect()
}

impl HeldOutTask {
    /// The mean loss at each of the levels.
    fn losses(
        &self,
        batches: &[Batch],
        predict: impl Fn(&nn::Inputs) -> train::Result<nn::Prediction>,
    ) -> train::Result<Vec<f64>> {
        let HeldOutTask { strategy, process, seed, .. } = self;
        let (mut sums, mut first) = (LEVELS.map(|_| 0.0), 0);
        for batch in batches {
            let samples = batch.samples;
            let draws = Draws::new(*seed, 0, first, samples).below("held-out");
            let scene = strategy.scene(batch, &draws)?;
            let noise = noise_for(&scene, &draws, "noise");
            for (level, sum) in self.levels().into_iter().zip(&mut sums) {
                let levels = scene.each(|_, _| NoiseLevels::per_sample(vec![level; samples]));
                let inputs = strategy.inputs(process, &scene, &levels, &noise);
                let prediction = predict(&inputs.seen.inputs)?;
                let losses = strategy.loss(&prediction, &inputs).total().into_data();
                *sum += losses.iter::<f64>().sum::<f64>();
            }
            first += samples as u64;
        }
        Ok(sums.map(|sum| sum / first as f64).to_vec())
    }
}

/// The step at which the student is looked at, if an event is such a moment.
fn looked_at(event: &Event<'_>, every: u64) -> Option<u64> {
    match event {
        // A run that goes on is told where it rests before its first step.
        Event::Started { step: 0 } => Some(0),
        Event::Resting { step } => Some(*step).filter(|at| *at > 0 && at.is_multiple_of(every)),
        Event::Started { .. }
        | Event::Updated { .. }
        | Event::Stepped { .. }
        | Event::Saved { .. }
        | Event::Finished { .. } => None,
    }
}

impl Callback for Validation {
    fn name(&self) -> &str {
        "validation"
    }

    fn on(&mut self, event: &Event<'_>, method: &dyn Method) -> train::Result<()> {
        looked_at(event, self.every).map_or(Ok(()), |step| self.look(step, method))
    }
}

/// Makes its part of the clips whenever the first rank looks at the student.
pub(crate) struct Assistant {
    every: u64,
    maker: Maker,
    looked: Vec<Looked>,
    watched: Watched,
}

impl Callback for Assistant {
    fn name(&self) -> &str {
        "assistant"
    }

    fn on(&mut self, event: &Event<'_>, method: &dyn Method) -> train::Result<()> {
        let Some(_) = looked_at(event, self.every) else { return Ok(()) };
        let stores = lent(&self.looked, method)?;
        match self.maker.make(&self.looked, &stores, (&mut *self.watched, &mut Elsewhere)) {
            Err(error) if was_interrupted(&error) => Ok(()),
            made => made.map_err(|err| Error::Callback {
                name: "validation".to_owned(),
                reason: err.to_string(),
            }),
        }
    }
}

fn was_interrupted(error: &crate::error::Error) -> bool {
    matches!(error, crate::error::Error::Engine(engine::Error::Interrupted))
}

/// Keeps nothing: what is made is sent to the first rank.
struct Elsewhere;

impl Frames for Elsewhere {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn frame(&mut self, _: usize, _: Frame) -> engine::Result<()> {
        Ok(())
    }
}

/// Frames and sounds of all clips.
struct Kept {
    folder: PathBuf,
    extension: &'static str,
    rate: FrameRate,
    frames: Vec<Vec<Frame>>,
    sounds: Vec<(usize, Waveform)>,
}

impl Frames for Kept {
    fn begin(&mut self, samples: usize, frames: usize) -> engine::Result<()> {
        self.frames = if frames > 0 { vec![Vec::new(); samples] } else { Vec::new() };
        Ok(())
    }

    fn sound(&mut self, sample: usize, sound: Waveform) -> engine::Result<()> {
        self.sounds.push((sample, sound));
        Ok(())
    }

    fn frame(&mut self, sample: usize, frame: Frame) -> engine::Result<()> {
        self.frames[sample].push(frame);
        Ok(())
    }
}

impl Kept {
    /// Writes every clip and sound, and returns the clips, with what there is to say of each.
    fn write(self, captions: &[String]) -> Result<(Vec<Clip>, Vec<SeenClip>)> {
        let fault = |err: data::media::Error| crate::error::Error::from(engine::Error::from(err));
        let unmade = |err| crate::error::Error::file("make", &self.folder, err);
        std::fs::create_dir_all(&self.folder).map_err(unmade)?;
        let holds_sound = Format::named(self.extension).is_some_and(Format::holds_sound);
        for (index, sound) in &self.sounds {
            if !holds_sound || self.frames.is_empty() {
                sound.write(&self.folder.join(format!("{index:03}.wav"))).map_err(fault)?;
            }
        }
        let (mut clips, mut seen) = (Vec::new(), Vec::new());
        for (index, frames) in self.frames.iter().enumerate() {
            let file = format!("{index:03}.{}", self.extension);
            let path = self.folder.join(&file);
            let mut writer = ClipWriter::create(&path, self.rate).map_err(fault)?;
            for frame in frames {
                writer.push(frame).map_err(fault)?;
            }
            let own = self.sounds.iter().find(|(sample, _)| *sample == index);
            if let Some((_, sound)) = own.filter(|_| holds_sound) {
                writer.sound(sound).map_err(fault)?;
            }
            writer.finish().map_err(fault)?;
            let preview = look::write_preview(&self.folder, &file, frames, self.rate)?;
            let caption = captions.get(index).cloned().unwrap_or_default();
            let folder = self.folder.clone();
            seen.push(SeenClip { caption, file, preview, right: None, folder });
            let (height, width) = frames.first().map_or((0, 0), Frame::size);
            let pixels = frames.iter().flat_map(|frame| frame.values().to_vec()).collect();
            clips.push(Clip::new([frames.len(), height, width], pixels)?);
        }
        Ok((clips, seen))
    }
}

/// What validation needs of a student before it begins to learn.
pub(crate) struct ValidationSetup {
    every: u64,
    maker: Maker,
    /// How ranks share the clips, if there are several.
    plan: Option<Plan>,
    extension: &'static str,
    judge: Option<(Judge, Vec<MovingShape>)>,
    held_out: Option<Vec<Batch>>,
    /// What there is to say before the first look.
    pub(crate) notes: Vec<String>,
}

impl Recipe {
    /// Opens the engine for the student, if the recipe asks for validation. The student is looked at as
    /// `record` says that it will be used.
    ///
    /// # Errors
    /// The student's folder is not one that the engine can use, or what is asked for does not fit it.
    pub(crate) fn validation_setup(
        &self,
        student: &Model,
        record: Record,
        (source, mesh): (&Source, MeshShape),
        device: &Device,
    ) -> Result<Option<ValidationSetup>> {
        let Some(config) = &self.callbacks.validation else { return Ok(None) };
        let refuse = |reason: &str| Err(crate::error::Error::Recipe(reason.to_owned()));
        if config.every == 0 {
            return refuse("callbacks.validation.every is 0; give a number of steps");
        }
        let known = MovingShape::of(&data::world::Colour::KNOWN);
        let (prompts, judge) = match &self.data.source {
            SourceConfig::Shapes(shapes) => {
                let prompts = match config.prompts.is_empty() {
                    true => MovingShape::all().iter().map(MovingShape::to_string).collect(),
                    false => config.prompts.clone(),
                };
                let scene = |prompt: &String| {
                    known.iter().find(|scene| scene.to_string() == *prompt).copied()
                };
                let scenes: Option<Vec<MovingShape>> = prompts.iter().map(scene).collect();
                (prompts, scenes.map(|scenes| (Judge::new(&shapes.world), scenes)))
            }
            SourceConfig::Store(_) | SourceConfig::Mix(_) => (config.prompts.clone(), None),
        };
        if prompts.is_empty() {
            return refuse("callbacks.validation.prompts is empty; say what to make");
        }
        let pipeline = match &student.origin {
            Origin::New(_) => {
                Pipeline::of(student.description.clone(), student.store.clone(), &setup(device))?
            }
            Origin::Folder(path) => Pipeline::open(path, &setup(device))?,
        };
        let mut pipeline = pipeline.with_record(record);
        let extension = student.description.family.extension;
        let held_out = match source.held_out.count() {
            0 => None,
            _ => {
                let samples = std::sync::Arc::clone(&source.held_out);
                let source = Source { samples, ..source.clone() };
                Some(LoaderFeed::whole(source, device.clone())?)
            }
        };
        let strategy = self.strategy.flexible();
        let given = given(&config.given, &|path| PathBuf::from(self.located(path)));
        let request = Request {
            // What is not learnt is not shown.
            only_audio: strategy.video.is_none(),
            without_audio: student.description.sound.is_some() && strategy.audio.is_none(),
            ..request(config, prompts, given)
        };
        if !pipeline.is_guided(&request).map_err(of_key)? && !config.negative.is_empty() {
            return refuse(
                "callbacks.validation.negative: at a guidance of 1 or less it plays no part; raise the \
                 guidance or leave it out",
            );
        }
        let plan = match mesh.size() {
            Some(1) => None,
            _ => Some(looking_plan(mesh, &pipeline.work(&request).map_err(of_key)?.workload)?),
        };
        let notes = pipeline.plan(&request).map_err(of_key)?.notes().to_vec();
        pipeline.forget_transformer(student.expert);
        let (every, maker) = (config.every, Maker { pipeline, request });
        Ok(Some(ValidationSetup { every, maker, plan, extension, judge, held_out, notes }))
    }

    /// What is looked at of a network that learns.
    ///
    /// # Errors
    /// The strategy does not suit it.
    pub(crate) fn looked(
        &self,
        role: &'static str,
        model: &Model,
        average: Option<Averaged>,
    ) -> Result<Looked> {
        let (strategy, process) = (self.strategy(model)?, model.description.process.clone());
        let (seed, range) = (self.run.seed, model.levels());
        let task = HeldOutTask { strategy, process, seed, range };
        Ok(Looked { role, expert: model.expert, average, task })
    }
}

/// How the ranks of a run share the clips of a look: replicas make different ones, and so do ranks whose share of
/// tokens or matrices would change a bit of them.
fn looking_plan(mesh: MeshShape, workload: &Workload) -> Result<Plan> {
    let ranks = mesh.size().unwrap_or(usize::MAX);
    let ulysses = mesh.degree(Axis::Ulysses);
    let shape = |ulysses: usize| {
        MeshShape::default().with(Axis::Ulysses, ulysses).with(Axis::Data, ranks / ulysses)
    };
    let plan = |ulysses| Plan::new(&Layout::new(ranks, shape(ulysses)), workload);
    plan(ulysses)
        .or_else(|_| plan(1))
        .map_err(|refusal| crate::error::Error::Recipe(format!("callbacks.validation: {refusal}")))
}

impl ValidationSetup {
    /// The same on a rank of a run: who makes clips together.
    ///
    /// # Errors
    /// The plan is for another number of ranks.
    pub(crate) fn on(mut self, world: &Group) -> Result<ValidationSetup> {
        if let Some(plan) = &self.plan {
            let mesh = plan.mesh(world.clone()).map_err(train::Error::from)?;
            self.maker.pipeline = self.maker.pipeline.on(mesh, plan);
        }
        Ok(self)
    }

    /// The callback of a run.
    pub(crate) fn validation(
        self,
        looked: Vec<Looked>,
        folder: &Path,
        (record, watched): (Recorder, Watched),
    ) -> Validation {
        let ValidationSetup { every, maker, extension, judge, held_out, .. } = self;
        let folder = folder.to_owned();
        Validation { every, maker, looked, folder, extension, judge, held_out, record, watched }
    }

    /// The callback of a rank that is not the first.
    pub(crate) fn assistant(self, looked: Vec<Looked>, watched: Watched) -> Assistant {
        Assistant { every: self.every, maker: self.maker, looked, watched }
    }
}

/// The same error with the key of a recipe that it is about.
fn of_key(error: engine::Error) -> crate::error::Error {
    let engine::Error::Request { field, reason } = error else { return error.into() };
    let key = match field {
        Field::Prompt => "prompts",
        Field::Frames | Field::Height | Field::Width => "size",
        Field::Keyframe => "given.keyframes",
        given if given.is_given() => {
            let key = format!("callbacks.validation.given.{}: {reason}", given.name());
            return crate::error::Error::Recipe(key);
        }
        other => other.name(),
    };
    crate::error::Error::Recipe(format!("callbacks.validation.{key}: {reason}"))
}

/// How an engine is opened for looking: one component at a time, beside the training.
fn setup(device: &Device) -> Setup {
    Setup { residency: Residency::OneAtATime, ..Setup::new(device) }
}
