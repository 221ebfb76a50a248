//! Exams in the shapes world: a model makes clips for fixed prompts and seeds, and the judge reads them.
//!
//! The 96 questions are all 48 scenes twice. What a question gives beside its caption depends on the
//! task. Together they are one request, of frames of 8 bits as files have them: `moviola generate` with
//! the same prompts, conditions and seed makes the same clips.

use std::sync::Arc;

use burn::tensor::Tensor;
use data::Clip;
use data::media::{Frame, Waveform};
use data::world::{Judge, MovingShape, SpaceToDepth, Tone, Words, World};
use engine::{Frames, Given, Media, Pipeline, Progress, Request, Solving};
use families::Text;

use crate::error::{Error, Result};

/// How often each scene is asked for.
const ROUNDS: usize = 2;
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
    /// The first picture, to models of image to video.
    Picture,
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
    pub const ALL: [(&'static str, Task); 7] = [
        ("text", Task::Text),
        ("first-frame", Task::FirstFrame),
        ("picture", Task::Picture),
        ("recolour", Task::Recolour),
        ("inpaint", Task::Inpaint),
        ("with-sound", Task::WithSound),
        ("sound-of-video", Task::SoundOfVideo),
    ];

    /// Whether there is a tone.
    pub fn sounds(self) -> bool {
        matches!(self, Task::WithSound | Task::SoundOfVideo)
    }
}

/// How clips are made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sampling {
    /// Denoising steps; the model's own if not given.
    pub steps: Option<usize>,
    /// How steps are taken.
    pub solving: Solving,
    /// Guidance; the model's own if not given.
    pub guidance: Option<f64>,
}

/// Questions in a world, with whoever reads the answers.
pub struct Exam {
    task: Task,
    world: World,
    /// How first frames become latents and back.
    codec: SpaceToDepth,
    scenes: Vec<MovingShape>,
    judge: Judge,
}

/// One answer.
pub struct Answer {
    /// What was asked for.
    pub scene: MovingShape,
    /// The clip that was made.
    pub clip: Clip,
    /// The sound that was made with it.
    pub sound: Option<Waveform>,
    /// Which of shape, colour, direction are right.
    pub right: [bool; 3],
    /// Whether the tone is right, if there is one.
    pub tone: Option<bool>,
    /// How near it is to what was given, in decibels: in its first frame if that was given, before it is
    /// put back where it is, and in all frames if it was to be recoloured.
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
    /// All scenes of a world twice.
    pub fn new(task: Task, world: World, scenes: &[MovingShape]) -> Exam {
        let (judge, codec) = (Judge::new(world.options()), SpaceToDepth::default());
        let count = scenes.len() * ROUNDS;
        let scenes = scenes.iter().copied().cycle().take(count).collect();
        Exam { task, world, codec, scenes, judge }
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
    pub fn without_a_model(&self) -> Result<Vec<Answer>> {
        let clips = (0..self.len()).map(|at| self.given_alone(at));
        self.mark(Made { clips: clips.collect(), sounds: Vec::new() }, None)
    }

    /// All questions as one request.
    ///
    /// # Errors
    /// The world's clips do not suit its codec.
    pub fn request(&self, sampling: &Sampling) -> Result<Request> {
        let caption = |scene: &MovingShape| match self.task {
            Task::SoundOfVideo => String::new(),
            _ => scene.to_string(),
        };
        let options = self.world.options();
        let given = (0..self.len()).map(|at| self.given(at)).collect::<Result<_>>()?;
        Ok(Request {
            prompts: self.scenes.iter().map(caption).collect(),
            given,
            steps: sampling.steps,
            solving: sampling.solving.clone(),
            guidance: sampling.guidance,
            height: Some(options.height),
            width: Some(options.width),
            frames: Some(options.frames),
            frame_rate: Some(options.fps),
            seed: SEED,
            ..Request::default()
        })
    }

    /// All questions as one request to a model.
    ///
    /// # Errors
    /// The model does not fit the world.
    pub fn request_to(&self, pipeline: &Pipeline, sampling: &Sampling) -> Result<Request> {
        let model = pipeline.description();
        let knows = match &model.text {
            Text::Words(words) => *words == Words::default(),
            // With the picture before it, a model needs to know no more than words.
            Text::Encoders { .. } => self.task == Task::Picture,
        };
        if !knows {
            return Err(Error::Recipe(format!(
                "a {} model knows nothing of the shapes world; exams are for models that learnt it",
                model.family.title
            )));
        }
        let sounds = self.task.sounds();
        if sounds && model.sound.is_none() {
            let reason = "this model makes no sound; it cannot sit an exam with sound";
            return Err(Error::Recipe(reason.to_owned()));
        }
        let silent = !sounds && model.sound.is_some();
        Ok(Request { without_audio: silent, ..self.request(sampling)? })
    }

    /// Has every question answered. Of ranks that do so together the first gets the answers.
    ///
    /// # Errors
    /// The model does not fit the world, or the user interrupted.
    pub fn sit(
        &self,
        pipeline: &mut Pipeline,
        sampling: &Sampling,
        progress: &mut dyn Progress,
    ) -> Result<Vec<Answer>> {
        let request = self.request_to(pipeline, sampling)?;
        let mut made = Made::default();
        let answer = pipeline.run(&request, progress, &mut made)?;
        self.mark(made, answer.unpasted)
    }

    /// What question `at` gives beside its caption.
    fn given(&self, at: usize) -> Result<Given> {
        let clip = || frames(&self.true_clip(at));
        let size = self.world.options();
        Ok(match self.task {
            Task::Text | Task::WithSound => Given::default(),
            Task::FirstFrame => {
                let mut first = clip()?;
                first.truncate(self.first_frames());
                Given { video_prefix: Some(media(first)), ..Given::default() }
            }
            Task::Picture => {
                let mut first = clip()?;
                first.truncate(1);
                Given { image: Some(media(first)), ..Given::default() }
            }
            Task::Recolour => {
                let reference = media(frames(&self.recoloured(at))?);
                Given { references: vec![(reference, None)], ..Given::default() }
            }
            Task::Inpaint => {
                let right = (0..size.height * size.width).flat_map(|pixel| {
                    [f32::from(u8::from(2 * (pixel % size.width) >= size.width)); 3]
                });
                let mask = Frame::new(size.height, size.width, right.collect());
                let mask = media(vec![mask.map_err(engine::Error::from)?]);
                Given { video: Some(media(clip()?)), mask: Some(mask), ..Given::default() }
            }
            Task::SoundOfVideo => Given { video: Some(media(clip()?)), ..Given::default() },
        })
    }

    /// Frames of the first latent frame.
    fn first_frames(&self) -> usize {
        let [frames, _, _] = self.codec.block();
        frames
    }

    /// What a question gives, and black for the rest.
    fn given_alone(&self, at: usize) -> Clip {
        let truth = self.true_clip(at);
        let [frames, height, width] = truth.size();
        let mut clip = Clip::black([frames, height, width]);
        for frame in 0..frames {
            for (place, value) in clip.frame_mut(frame).iter_mut().enumerate() {
                let shown = match self.task {
                    Task::FirstFrame => frame < self.first_frames(),
                    Task::Picture => frame == 0,
                    Task::Inpaint => 2 * (place / 3 % width) < width,
                    Task::SoundOfVideo => true,
                    Task::Text | Task::Recolour | Task::WithSound => false,
                };
                if shown {
                    *value = truth.frame(frame)[place];
                }
            }
        }
        clip
    }

    /// What the world itself shows for a question.
    fn true_clip(&self, at: usize) -> Clip {
        self.world.show_scene(self.scenes[at], FIRST_CLIP + at as u64).clip
    }

    /// The clip of a question in another of the world's colours.
    fn recoloured(&self, at: usize) -> Clip {
        let scene = self.scenes[at];
        let mut colours: Vec<_> = self.scenes.iter().map(|scene| scene.colour).collect();
        colours.sort_by_key(|colour| colour.word());
        colours.dedup();
        colours.retain(|colour| *colour != scene.colour);
        let colour = colours.get(at % colours.len().max(1)).copied().unwrap_or(scene.colour);
        self.world.show_scene(MovingShape { colour, ..scene }, FIRST_CLIP + at as u64).clip
    }

    /// Reads the answers; `unpasted` are the latents `[B, C, f, h, w]` without what was given.
    fn mark(&self, made: Made, unpasted: Option<Tensor<5>>) -> Result<Vec<Answer>> {
        let bare = match (unpasted, self.task) {
            (Some(latents), Task::FirstFrame) => self.codec.decode(latents)?,
            _ => made.clips.clone(),
        };
        let tone = self.world.options().tone;
        let answer = |(at, clip): (usize, Clip)| {
            let (scene, truth) = (self.scenes[at], self.true_clip(at));
            let read = self.judge.read(&clip);
            let right = [
                read.shape == Some(scene.shape),
                read.colour == Some(scene.colour),
                read.direction == Some(scene.direction),
            ];
            let kept = match self.task {
                Task::FirstFrame | Task::Picture => {
                    Some(nearness(bare[at].frame(0), truth.frame(0)))
                }
                Task::Recolour => Some(nearness(clip.pixels(), truth.pixels())),
                _ => None,
            };
            // A silent answer to a question about sound is wrong.
            let heard = |tone: &Tone| {
                made.sounds.get(at).is_some_and(|wave| {
                    let read = self.judge.read_tone(&wave.mixed(), wave.sample_rate);
                    read == Some(tone.pitch(&scene))
                })
            };
            let tone = tone.as_ref().filter(|_| self.task.sounds()).map(heard);
            Answer { scene, clip, sound: made.sounds.get(at).cloned(), right, tone, kept }
        };
        Ok(made.clips.into_iter().enumerate().map(answer).collect())
    }
}

/// What a pipeline made.
#[derive(Default)]
struct Made {
    clips: Vec<Clip>,
    sounds: Vec<Waveform>,
}

impl Frames for Made {
    fn begin(&mut self, _: usize, _: usize) -> engine::Result<()> {
        Ok(())
    }

    fn sound(&mut self, _: usize, sound: Waveform) -> engine::Result<()> {
        self.sounds.push(sound);
        Ok(())
    }

    fn frame(&mut self, sample: usize, frame: Frame) -> engine::Result<()> {
        let (height, width) = frame.size();
        let earlier = self.clips.get(sample);
        let mut pixels = earlier.map_or(Vec::new(), |clip| clip.pixels().to_vec());
        pixels.extend_from_slice(frame.values());
        let clip = Clip::new([pixels.len() / (3 * height * width), height, width], pixels)?;
        self.clips.truncate(sample);
        self.clips.push(clip);
        Ok(())
    }
}

fn media(frames: Vec<Frame>) -> Media {
    Media::Frames(Arc::new(frames))
}

/// The frames of a clip.
fn frames(clip: &Clip) -> Result<Vec<Frame>> {
    let [count, height, width] = clip.size();
    let frame =
        |at| Frame::new(height, width, clip.frame(at).to_vec()).map_err(engine::Error::from);
    (0..count).map(frame).map(|frame| Ok(frame?)).collect()
}

/// The peak signal-to-noise ratio of pixels in decibels, 99 at the most.
fn nearness(made: &[f32], truth: &[f32]) -> f64 {
    let pairs = made.iter().zip(truth);
    let squares: f64 = pairs.map(|(a, b)| f64::from(a - b).powi(2)).sum();
    let mean = squares / made.len() as f64;
    (-10.0 * mean.max(1e-10).log10()).min(99.0)
}
