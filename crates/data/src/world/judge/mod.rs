//! The judge: what does a clip show? Plain image analysis, no learning.
//!
//! It finds the brightest patch of each frame, names its colour, and fits every shape of the world
//! to all frames at once: a place per frame, one size and one softness of the edge. An attribute is
//! answered only if the picture leaves no doubt, so that noise, a still picture and a round blob get
//! no score. What a clip is *meant* to show is never an input.

mod explain;
mod fit;
mod locate;
mod motion;
mod pitch;

use super::moving_shape::{Colour, Direction, MovingShape, Shape};
use super::{PITCHES, WorldOptions};
use crate::clip::Clip;
use fit::{Bounds, Fit};
use locate::Sight;

/// What a shape must look like to be named. Lengths are shares of the mean size of the world.
///
/// The figures lie between what the generator's clips show under noise and blur and what impostors
/// show; `cargo run -p data --example judge` prints both.
mod limits {
    use super::Shape;

    /// The size of a shape beyond the sizes of the world.
    pub(super) const SIZE: [f64; 2] = [0.78, 1.25];
    /// Softness of the edge of a circle; beyond, it is a blob.
    pub(super) const SOFT_CIRCLE: f64 = 0.105;
    /// Softness of the edge of a shape with corners.
    pub(super) const SOFT_CORNERS: f64 = 0.15;
    /// The softness that a shape may have to be named.
    pub(super) fn softest(shape: Shape) -> f64 {
        match shape {
            Shape::Circle => SOFT_CIRCLE,
            Shape::Square | Shape::Triangle => SOFT_CORNERS,
        }
    }

    /// Light that the fitted shape leaves unexplained, as a share of its own.
    pub(super) const MISFIT: f64 = 0.06;
    /// How much more the second-best shape must leave unexplained.
    pub(super) const MARGIN: f64 = 0.015;
    /// Light beside the shape, as a share of its own.
    pub(super) const BESIDE: f64 = 0.35;
}

/// Reads clips of one world.
#[derive(Clone, Debug)]
pub struct Judge {
    options: WorldOptions,
}

/// What a clip shows, as far as it is certain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The shape.
    pub shape: Option<Shape>,
    /// Its colour.
    pub colour: Option<Colour>,
    /// Where it goes.
    pub direction: Option<Direction>,
}

impl Reading {
    /// The scene, if every attribute is certain.
    pub fn scene(&self) -> Option<MovingShape> {
        let Reading { shape, colour, direction } = *self;
        Some(MovingShape { shape: shape?, colour: colour?, direction: direction? })
    }

    /// Whether the clip shows just this scene.
    pub fn shows(&self, scene: &MovingShape) -> bool {
        self.scene() == Some(*scene)
    }
}

/// The figures behind a reading, to see how sure it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Evidence {
    /// The shape that fits best.
    pub shape: Shape,
    /// Its size in pixels.
    pub size: f64,
    /// The softness of its edge: the standard deviation of a blur, in pixels.
    pub softness: f64,
    /// Light it leaves unexplained, as a share of its own.
    pub misfit: f64,
    /// How much more the best other shape leaves unexplained, were it as sharp as a shape must be to be named.
    pub margin: f64,
    /// Light beside it, as a share of its own.
    pub beside: f64,
    /// Motion in pixels per frame, `[columns, rows]`.
    pub velocity: [f64; 2],
}

impl Judge {
    /// A judge for the clips of a world with these options.
    pub fn new(options: &WorldOptions) -> Judge {
        Judge { options: *options }
    }

    /// What the clip shows. Its size and length need not be those of the world.
    pub fn read(&self, clip: &Clip) -> Reading {
        self.examine(clip).0
    }

    /// What the clip shows, and why; there is no evidence where nothing stands out at all.
    pub fn examine(&self, clip: &Clip) -> (Reading, Option<Evidence>) {
        let size = self.mean_size();
        let Some(sight) = Sight::of(clip, size) else { return (Reading::default(), None) };
        let bounds = Bounds { size, least: 0.4 * size, most: 1.8 * size, softest: 0.45 * size };
        let mut fits = Shape::ALL.map(|shape| Fit::of(shape, &sight, bounds));
        fits.sort_by(|a, b| a.misfit.total_cmp(&b.misfit));
        let best = &fits[0];
        if !best.stands_out(&sight) {
            return (Reading::default(), None);
        }
        // Another shape counts as sharp as it would have to be to be named: a square that is blurred enough is
        // nearly a circle, and says nothing against one.
        let others = Shape::ALL.into_iter().filter(|shape| *shape != best.shape);
        let others = others.map(|shape| {
            let softest = limits::softest(shape) * size;
            Fit::of(shape, &sight, Bounds { softest, ..bounds }).misfit
        });
        let evidence = Evidence {
            shape: best.shape,
            size: best.size,
            softness: best.softness,
            misfit: best.misfit,
            margin: others.fold(f64::INFINITY, f64::min) - best.misfit,
            beside: sight.light_beside(best),
            velocity: motion::velocity(&best.centres),
        };
        let reading = Reading {
            shape: self.name_shape(&evidence, best),
            colour: sight.name_colour(best.strength()),
            direction: motion::direction(&best.centres, self.options.speed),
        };
        (reading, Some(evidence))
    }

    /// Which of the [`PITCHES`] a tone has, if it has one; `samples` are mono.
    pub fn read_tone(&self, samples: &[f32], sample_rate: u32) -> Option<usize> {
        pitch::read(samples, sample_rate, &PITCHES)
    }

    fn mean_size(&self) -> f64 {
        (self.options.size[0] + self.options.size[1]) / 2.0
    }

    fn name_shape(&self, evidence: &Evidence, fit: &Fit) -> Option<Shape> {
        let softest = limits::softest(evidence.shape);
        let [least, most] = [0, 1].map(|end| limits::SIZE[end] * self.options.size[end]);
        let is_certain = (least..=most).contains(&evidence.size)
            && evidence.softness <= softest * self.mean_size()
            && evidence.misfit <= limits::MISFIT
            && evidence.margin >= limits::MARGIN
            && evidence.beside <= limits::BESIDE
            && fit.is_steady();
        is_certain.then_some(evidence.shape)
    }
}
