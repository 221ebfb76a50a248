//! The shapes world: a coloured shape moves in one of four directions, with a caption and a tone.
//!
//! A clip is a function of (options, seed, index): it is drawn anew whenever it is asked for, in any
//! order and on any rank, with the same bits. Which scenes a model may see is the caller's choice.
//!
//! ```
//! use data::world::{WorldOptions, World};
//!
//! let world = World::new(WorldOptions::default(), 7)?;
//! let shown = world.show(0);
//! assert_eq!(shown.clip.size(), [8, 32, 32]);
//! assert_eq!(shown.caption(), "a red circle moves left");
//! # Ok::<(), data::Error>(())
//! ```

mod moving_shape;

mod render;

mod tone;

mod judge;

mod codec;
mod rendered;
mod words;

pub use codec::{SoundBlocks, SpaceToDepth};
pub use judge::{Evidence, Judge, Reading};
pub use moving_shape::{Colour, Direction, MovingShape, Shape};
pub use rendered::Rendered;
pub use tone::{Follows, PITCHES, Tone};
pub use words::Words;

use diffusion::Draw;
use render::{Outline, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clip::{CHANNELS, Clip};
use crate::error::{Error, Result};

/// The smallest shape, in pixels: below, a circle is no longer a circle.
const SMALLEST: f64 = 6.0;

/// What a world looks like.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorldOptions {
    /// Frames of a clip, at least 2.
    pub frames: usize,
    /// Height of a frame in pixels.
    pub height: usize,
    /// Width of a frame in pixels.
    pub width: usize,
    /// The smallest and the largest width of a shape, in pixels.
    pub size: [f64; 2],
    /// The slowest and the fastest motion, in pixels per frame.
    pub speed: [f64; 2],
    /// Frames per second; it decides how long the tone is.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub fps: f64,
    /// The tone, if there is one.
    pub tone: Option<Tone>,
}

impl Default for WorldOptions {
    /// 8 frames of 32x32 with a shape 10 pixels wide that moves 2 pixels per frame, without sound.
    fn default() -> WorldOptions {
        WorldOptions {
            frames: 8,
            height: 32,
            width: 32,
            size: [10.0, 10.0],
            speed: [2.0, 2.0],
            fps: 16.0,
            tone: None,
        }
    }
}

impl WorldOptions {
    /// The same world in frames so many times as high and wide.
    #[must_use]
    pub fn enlarged(self, times: usize) -> WorldOptions {
        let larger = |range: [f64; 2]| range.map(|pixels| pixels * times as f64);
        WorldOptions {
            height: self.height.saturating_mul(times),
            width: self.width.saturating_mul(times),
            size: larger(self.size),
            speed: larger(self.speed),
            ..self
        }
    }
}

/// A world that can be: every clip of it keeps its shape within the frame.
#[derive(Clone, Debug)]
pub struct World {
    options: WorldOptions,
    draw: Draw,
    scenes: Vec<MovingShape>,
}

/// Where a shape starts, how fast it goes and how large it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Motion {
    /// Its centre in the first frame, `[column, row]` in pixels.
    pub start: [f64; 2],
    /// Pixels per frame, `[columns, rows]`.
    pub velocity: [f64; 2],
    /// The width of its box in pixels.
    pub size: f64,
}

impl Motion {
    /// The centre in a frame, `[column, row]`.
    pub fn centre(&self, frame: usize) -> [f64; 2] {
        [0, 1].map(|axis| self.start[axis] + self.velocity[axis] * frame as f64)
    }
}

/// One clip with what it shows.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// What it shows.
    pub scene: MovingShape,
    /// How it moves.
    pub motion: Motion,
    /// The frames.
    pub clip: Clip,
    /// The tone, mono, if the world has one.
    pub tone: Option<Vec<f32>>,
}

impl Shown {
    /// The caption.
    pub fn caption(&self) -> String {
        self.scene.to_string()
    }
}

impl World {
    /// A world with every scene of [`MovingShape::all`].
    ///
    /// # Errors
    /// A number that is no size or speed, or a shape that could not stay within the frame.
    pub fn new(options: WorldOptions, seed: u64) -> Result<World> {
        check_ranges(&options)?;
        check_room(&options)?;
        let draw = Draw::new(seed).stream("shapes-world");
        Ok(World { options, draw, scenes: MovingShape::all() })
    }

    /// The same world with these scenes only, in this order; repeated ones occur more often.
    ///
    /// # Errors
    /// There are none.
    pub fn with_scenes(self, scenes: Vec<MovingShape>) -> Result<World> {
        if scenes.is_empty() {
            return Err(refused("no scenes".to_owned(), "give at least one"));
        }
        Ok(World { scenes, ..self })
    }

    /// What it looks like.
    pub fn options(&self) -> &WorldOptions {
        &self.options
    }

    /// The scenes it shows; clip `i` shows number `i` modulo their count.
    pub fn scenes(&self) -> &[MovingShape] {
        &self.scenes
    }

    /// How long a clip lasts.
    pub fn seconds(&self) -> f64 {
        self.options.frames as f64 / self.options.fps
    }

    /// The clip of an index.
    pub fn show(&self, index: u64) -> Shown {
        let scene = self.scenes[(index % self.scenes.len() as u64) as usize];
        self.show_scene(scene, index)
    }

    /// The clip of an index, but of a given scene: start, speed and size are those of the index.
    pub fn show_scene(&self, scene: MovingShape, index: u64) -> Shown {
        let motion = self.motion(scene.direction, index);
        let tone = self.options.tone.map(|tone| tone.waveform(&scene, self.seconds()));
        Shown { scene, motion, clip: self.paint(&scene, &motion), tone }
    }

    /// Every place where the shape stays within all frames is as likely as any other.
    fn motion(&self, direction: Direction, index: u64) -> Motion {
        let drawn = self.draw.stream("motion").sample(index).uniform(0..4);
        let between = |[low, high]: [f64; 2], share: f32| low + (high - low) * f64::from(share);
        let size = between(self.options.size, drawn[0]);
        let speed = between(self.options.speed, drawn[1]);
        let velocity = direction.step().map(|step| step * speed);
        let extent = [self.options.width as f64, self.options.height as f64];
        let start = [0, 1].map(|axis| {
            let travel = velocity[axis] * (self.options.frames - 1) as f64;
            let low = size / 2.0 - travel.min(0.0);
            let high = extent[axis] - size / 2.0 - travel.max(0.0);
            between([low, high], drawn[2 + axis])
        });
        Motion { start, velocity, size }
    }

    fn paint(&self, scene: &MovingShape, motion: &Motion) -> Clip {
        let WorldOptions { frames, height, width, .. } = self.options;
        let mut clip = Clip::black([frames, height, width]);
        let whole = Window { top: 0, left: 0, height, width };
        let rgb = scene.colour.rgb();
        for frame in 0..frames {
            let centre = motion.centre(frame);
            let outline = Outline { shape: scene.shape, centre, size: motion.size };
            let shares = render::coverage(&outline, whole);
            let pixels = clip.frame_mut(frame).chunks_exact_mut(CHANNELS);
            for (pixel, share) in pixels.zip(shares) {
                pixel.iter_mut().zip(rgb).for_each(|(value, light)| *value = share * light);
            }
        }
        clip
    }
}

fn refused(what: String, remedy: &str) -> Error {
    Error::World { what, remedy: remedy.to_owned() }
}

/// Every number is one, and every range rises.
fn check_ranges(options: &WorldOptions) -> Result<()> {
    let WorldOptions { frames, size, speed, fps, tone, .. } = options;
    let rises = |[low, high]: [f64; 2]| low <= high && high.is_finite();
    if *frames < 2 {
        return Err(refused(format!("clips of {frames} frames"), "motion needs at least 2"));
    }
    if !rises(*size) || size[0] < SMALLEST {
        let remedy = format!("give the least and the most, from {SMALLEST} pixels on");
        return Err(refused(format!("shapes of size {size:?}"), &remedy));
    }
    if !rises(*speed) || speed[0] <= 0.0 {
        let remedy = "give the least and the most pixels per frame, above 0";
        return Err(refused(format!("motion of speed {speed:?}"), remedy));
    }
    if !fps.is_finite() || *fps <= 0.0 {
        return Err(refused(format!("{fps} frames per second"), "give a number above 0"));
    }
    let highest = PITCHES[PITCHES.len() - 1];
    match tone {
        Some(tone) if f64::from(tone.sample_rate) < 4.0 * highest => {
            let remedy = format!("give at least {} for the highest pitch", 4.0 * highest);
            Err(refused(format!("{} samples per second", tone.sample_rate), &remedy))
        }
        _ => Ok(()),
    }
}

/// The largest and fastest shape stays within the frame, and most of a frame is background.
fn check_room(options: &WorldOptions) -> Result<()> {
    let WorldOptions { frames, height, width, size, speed, .. } = *options;
    let (shape, extent) = (size[1], height.min(width) as f64);
    let travel = speed[1] * (frames - 1) as f64;
    let needed = (shape + travel).max(2.0 * shape);
    if needed > extent {
        let what = format!(
            "shapes of {shape} pixels that move {travel} pixels in frames of {height}x{width}"
        );
        let remedy = format!("both sides need at least {}", needed.ceil());
        return Err(refused(what, &remedy));
    }
    Ok(())
}
