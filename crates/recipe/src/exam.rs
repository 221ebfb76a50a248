//! Exams in the shapes world: a model makes clips for fixed prompts and seeds, and the judge reads them.
//!
//! The 96 questions are all 48 scenes twice. What a question gives beside its caption depends on the
//! task; how clips are made is the engine's business, as everywhere.

use burn::tensor::{Device, Tensor};
use data::Clip;
use data::world::{Judge, Rendered, Scene, SpaceToDepth};
use diffusion::{AudioClock, Part, Reference, Region, Scene as Conditions, Track, Tracks};
use engine::{Batch, Predict, Progress, SceneSampler};
use nn::{Context, grid_positions, patchify, unpatchify};

use crate::error::{Error, Result};

/// How often each scene is asked for.
const ROUNDS: usize = 2;
/// Questions that share a forward pass.
const BATCH: usize = 16;
/// The seed of all noise, fixed for good.
const SEED: u64 = 20_261;
/// Where an exam's clips begin in the world: no training reaches so far.
const FIRST_CLIP: u64 = 1 << 40;

/// How near a clip must be to what was given to count as true to it, in decibels. A shape elsewhere is
/// at about 13.
const NEAR: f64 = 20.0;

/// What a question gives beside its caption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Nothing.
    Text,
    /// The first latent frame.
    FirstFrame,
    /// The same clip in another colour; what is made must move where it moves.
    Recolour,
    /// All but the right half of every frame.
    Inpaint,
    /// Nothing; clip and tone are made together.
    WithSound,
    /// The clip, and no caption, so that only the clip can tell the tone.
    SoundOfVideo,
}

impl Task {
    /// All of them, as commands call them.
    pub const ALL: [(&'static str, Task); 6] = [
        ("text", Task::Text),
        ("first-frame", Task::FirstFrame),
        ("recolour", Task::Recolour),
        ("inpaint", Task::Inpaint),
        ("with-sound", Task::WithSound),
        ("sound-of-video", Task::SoundOfVideo),
    ];

    /// Whether there is a tone.
    pub fn sounds(self) -> bool {
        matches!(self, Task::WithSound | Task::SoundOfVideo)
    }

    /// Whether a question shows anything of the clip that is asked for.
    fn shows(self) -> bool {
        matches!(self, Task::FirstFrame | Task::Inpaint | Task::SoundOfVideo)
    }
}

/// Questions in a world, with whoever reads the answers.
pub struct Exam {
    task: Task,
    rendered: Rendered,
    scenes: Vec<Scene>,
    judge: Judge,
}

/// One answer.
pub struct Answer {
    /// What was asked for.
    pub scene: Scene,
    /// The clip that was made.
    pub clip: Clip,
    /// Which of shape, colour, direction are right.
    pub right: [bool; 3],
    /// Whether the tone is right, if there is one.
    pub tone: Option<bool>,
    /// How near it is to what was given, in decibels: in its first frame if that was given, in all of
    /// them if it was to be recoloured.
    pub kept: Option<f64>,
}

impl Answer {
    /// Whether everything that was asked for is right.
    pub fn is_right(&self) -> bool {
        let kept = self.kept.is_none_or(|decibels| decibels >= NEAR);
        self.right == [true; 3] && self.tone != Some(false) && kept
    }
}

impl Exam {
    /// All scenes of a world twice. `rendered` says how clips become latents.
    pub fn new(task: Task, rendered: Rendered, scenes: &[Scene]) -> Exam {
        let judge = Judge::new(rendered.world.options());
        let count = scenes.len() * ROUNDS;
        let scenes = scenes.iter().copied().cycle().take(count).collect();
        Exam { task, rendered, scenes, judge }
    }

    /// How many questions there are.
    pub fn len(&self) -> usize {
        self.scenes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.scenes.is_empty()
    }

    /// What an answer is worth that shows what is given, and black for the rest: the score that says
    /// nothing about a model.
    ///
    /// # Errors
    /// The world's clips do not suit its codec.
    pub fn without_a_model(&self, device: &Device) -> Result<Vec<Answer>> {
        let mut answers = Vec::new();
        for (batch, scenes) in self.scenes.chunks(BATCH).enumerate() {
            let conditions = self.conditions(batch * BATCH, scenes, device)?;
            let made = conditions.each(|_, track| track.keep(track.clean.zeros_like()));
            answers.extend(self.mark(batch * BATCH, scenes, made)?);
        }
        Ok(answers)
    }

    /// Tokens of a clip.
    pub fn tokens(&self) -> Result<usize> {
        Ok(self.grid()?.iter().product())
    }

    /// Has every question answered.
    ///
    /// # Errors
    /// The model does not fit the world, or the user interrupted.
    pub fn sit(
        &self,
        sampler: &SceneSampler,
        device: &Device,
        progress: &mut dyn Progress,
        predict: Predict<'_>,
    ) -> Result<Vec<Answer>> {
        let null = self.rendered.words.null(device).unsqueeze();
        let null = Context::text(null, None);
        let mut answers = Vec::new();
        progress.begin("clips", self.len());
        for (batch, scenes) in self.scenes.chunks(BATCH).enumerate() {
            let first = batch * BATCH;
            let conditions = self.conditions(first, scenes, device)?;
            let place = Batch { seed: SEED, first: first as u64 };
            let silent = &mut engine::Silent;
            let made = sampler.run(&conditions, Some(&null), place, silent, predict)?;
            answers.extend(self.mark(first, scenes, made)?);
            if progress.interrupted() {
                return Err(engine::Error::Interrupted.into());
            }
            progress.reach(answers.len());
        }
        Ok(answers)
    }

    fn grid(&self) -> Result<[usize; 3]> {
        let options = self.rendered.world.options();
        Ok(self.rendered.codec.grid([options.frames, options.height, options.width])?)
    }

    /// What a batch of questions gives.
    fn conditions(&self, first: usize, scenes: &[Scene], device: &Device) -> Result<Conditions> {
        let (grid, samples) = (self.grid()?, scenes.len());
        let places = || grid_positions(grid, [1.0; 3], samples, device);
        let words = &self.rendered.words;
        let texts = scenes.iter().map(|scene| {
            let text = match self.task {
                Task::SoundOfVideo => words.null(device),
                _ => words.embed(&scene.to_string(), device)?,
            };
            Ok(text.unsqueeze::<3>())
        });
        let context = Context::text(Tensor::cat(texts.collect::<Result<_>>()?, 0), None);
        let clean = match self.task.shows() {
            true => tokens(&self.rendered.codec, &self.true_clips(first, scenes), device)?,
            // Nothing of the clip is anywhere near the model, whatever a network is shown.
            false => {
                let channels = self.rendered.codec.channels();
                Tensor::zeros([samples, grid.iter().product(), channels], device)
            }
        };
        let part = if self.task == Task::SoundOfVideo { Part::Given } else { Part::Generated };
        let mut video = Track::new(part, clean, grid, places(), context.clone());
        let region = match self.task {
            Task::FirstFrame => Some(Region::Prefix(1)),
            Task::Inpaint => Some(Region::Rectangle { rows: 0..grid[1], columns: 0..grid[2] / 2 }),
            _ => None,
        };
        if let Some(mask) = region.map(|region| region.mask(grid)) {
            (0..samples).for_each(|sample| video.fix(sample, &mask));
        }
        if self.task == Task::Recolour {
            let clips = (0..samples).map(|at| self.recoloured(first + at, scenes[at]));
            let tokens = tokens(&self.rendered.codec, &clips.collect::<Vec<_>>(), device)?;
            video.refer(Reference { tokens, positions: places() });
        }
        let audio = match self.task.sounds() {
            true => Some(self.sound(scenes, context, device)?),
            false => None,
        };
        Ok(Conditions { video, audio })
    }

    /// The track of the tone, nothing of which is known.
    fn sound(&self, scenes: &[Scene], context: Context, device: &Device) -> Result<Track> {
        let tone = self.tone()?;
        let block = self.rendered.sound.block;
        let seconds = self.rendered.world.seconds();
        let steps = (seconds * f64::from(tone.sample_rate) / block as f64).round() as usize;
        let clock = AudioClock { rate: tone.sample_rate, hop: block as u32, factor: 1 };
        let places = clock.positions(steps, scenes.len(), device);
        let clean = Tensor::zeros([scenes.len(), steps, block], device);
        Ok(Track::new(Part::Generated, clean, [steps, 1, 1], places, context))
    }

    fn tone(&self) -> Result<data::world::Tone> {
        let tone = self.rendered.world.options().tone;
        tone.ok_or_else(|| Error::Recipe("the world has no tone; set world.tone".to_owned()))
    }

    /// What the world itself shows for these questions.
    fn true_clips(&self, first: usize, scenes: &[Scene]) -> Vec<Clip> {
        let show = |(at, scene): (usize, &Scene)| {
            self.rendered.world.show_scene(*scene, FIRST_CLIP + (first + at) as u64).clip
        };
        scenes.iter().enumerate().map(show).collect()
    }

    /// The clip of a question in another of the world's colours.
    fn recoloured(&self, at: usize, scene: Scene) -> Clip {
        let mut colours: Vec<_> = self.scenes.iter().map(|scene| scene.colour).collect();
        colours.sort_by_key(|colour| colour.word());
        colours.dedup();
        colours.retain(|colour| *colour != scene.colour);
        let colour = colours.get(at % colours.len().max(1)).copied().unwrap_or(scene.colour);
        let world = &self.rendered.world;
        world.show_scene(Scene { colour, ..scene }, FIRST_CLIP + at as u64).clip
    }

    /// Reads the answers.
    fn mark(&self, first: usize, scenes: &[Scene], made: Tracks<Tensor<3>>) -> Result<Vec<Answer>> {
        let clips = self.rendered.codec.decode(unpatchify(made.video, self.grid()?, [1, 1, 1]))?;
        let truth = self.true_clips(first, scenes);
        let tones = match (made.audio, self.rendered.world.options().tone) {
            (Some(tokens), Some(tone)) => {
                let waves = self.rendered.sound.decode(tokens.swap_dims(1, 2))?;
                let right = |(wave, scene): (&Vec<f32>, &Scene)| {
                    let read = self.judge.read_tone(wave, tone.sample_rate);
                    Some(read == Some(tone.pitch(scene)))
                };
                waves.iter().zip(scenes).map(right).collect()
            }
            _ => vec![None; scenes.len()],
        };
        let each = clips.into_iter().zip(scenes).zip(truth).zip(tones);
        Ok(each
            .map(|(((clip, scene), truth), tone)| {
                let read = self.judge.read(&clip);
                let right = [
                    read.shape == Some(scene.shape),
                    read.colour == Some(scene.colour),
                    read.direction == Some(scene.direction),
                ];
                let kept = match self.task {
                    Task::FirstFrame => Some(nearness(clip.frame(0), truth.frame(0))),
                    Task::Recolour => Some(nearness(clip.pixels(), truth.pixels())),
                    _ => None,
                };
                Answer { scene: *scene, clip, right, tone, kept }
            })
            .collect())
    }
}

/// The latents of clips as tokens, `[B, N, C]`.
fn tokens(codec: &SpaceToDepth, clips: &[Clip], device: &Device) -> Result<Tensor<3>> {
    let each = clips.iter().map(|clip| Ok(patchify(codec.encode(clip, device)?, [1, 1, 1])));
    Ok(Tensor::cat(each.collect::<Result<_>>()?, 0))
}

/// The peak signal-to-noise ratio of pixels in decibels, 99 at the most.
fn nearness(made: &[f32], truth: &[f32]) -> f64 {
    let pairs = made.iter().zip(truth);
    let squares: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let mean = squares / made.len() as f64;
    (-10.0 * mean.max(1e-10).log10()).min(99.0)
}
