//! Fits a rendered shape to all frames of a clip: a place and a strength per frame, one size and one
//! softness for all.
//!
//! The model of a frame is `strength * blur(coverage(shape, place, size), variance)`. Strengths are
//! solved for exactly; the rest goes downhill by Gauss and Newton's method, whose derivatives come
//! from the rendered picture itself: moving is its gradient, blurring is the heat equation, growing
//! is moving away from the middle.

use super::super::moving_shape::Shape;
use super::super::render::{Outline, Window, coverage};
use super::locate::{Sight, median};

/// How often place, size and softness are improved at most.
const ROUNDS: usize = 12;
/// Steps below this many pixels no longer matter.
const SETTLED: f64 = 0.01;
/// The light that a frame's fit must explain, in squares of the noise: the best place for a shape in
/// pure noise explains about 25.
const SIGNAL: f64 = 100.0;
/// How weak a frame may be beside the others before it counts as empty.
const WEAKEST: f64 = 0.4;
/// How badly one frame may fit before it counts as broken.
const FRAME_MISFIT: f64 = 0.5;

/// What a fit may become, in pixels.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The size to start from.
    pub(super) size: f64,
    /// The least size.
    pub(super) least: f64,
    /// The most size.
    pub(super) most: f64,
    /// The softest edge.
    pub(super) softest: f64,
}

/// A shape in every frame.
pub(super) struct Fit {
    pub(super) shape: Shape,
    /// In pixels.
    pub(super) size: f64,
    /// Standard deviation of the blur, in pixels.
    pub(super) softness: f64,
    /// The middle of the box in each frame, `[column, row]`.
    pub(super) centres: Vec<[f64; 2]>,
    /// Where each frame was looked at.
    pub(super) windows: Vec<Window>,
    /// Light that the model has, over the frames that count.
    pub(super) explained: f64,
    /// Light it leaves unexplained beyond the noise, as a share of its own, over the same frames. With
    /// more noise expected than there is, it is below 0.
    pub(super) misfit: f64,
    frames: Vec<FrameFit>,
}

/// How well one frame fits.
#[derive(Clone, Copy)]
struct FrameFit {
    strength: f64,
    explained: f64,
    /// Squares left over, less what noise makes.
    left: f64,
}

/// One frame: what was seen in its window, and where the shape is thought to be.
struct FittedFrame {
    window: Window,
    seen: Vec<f32>,
    centre: [f64; 2],
}

/// Equations of two unknowns, added up over pixels.
#[derive(Clone, Copy, Default)]
struct Equations {
    matrix: [[f64; 2]; 2],
    right: [f64; 2],
}

impl Fit {
    /// The best fit of a shape.
    pub(super) fn of(shape: Shape, sight: &Sight, bounds: Bounds) -> Fit {
        let mut frames: Vec<FittedFrame> = (0..sight.shares.len())
            .map(|at| FittedFrame::new(shape, sight, at, bounds.size))
            .collect();
        let mut form = Form { shape, size: bounds.size, variance: 0.3 };
        for _ in 0..ROUNDS {
            let mut common = Equations::default();
            let steps = frames.iter_mut().map(|frame| frame.improve(&form, &mut common));
            let longest = steps.fold(0.0, f64::max);
            let [size, variance] = common.solve();
            let next_size = form.size + size.clamp(-1.0, 1.0);
            let next_variance = form.variance + variance.clamp(-0.8, 0.8);
            let before = form;
            form.size = next_size.clamp(bounds.least, bounds.most);
            form.variance = next_variance.clamp(0.0, bounds.softest * bounds.softest);
            let changed = [form.size - before.size, form.variance - before.variance, longest];
            if changed.into_iter().all(|step| step.abs() < SETTLED) {
                break;
            }
        }
        Fit::finish(form, frames, sight.noise)
    }

    fn finish(form: Form, frames: Vec<FittedFrame>, noise: f64) -> Fit {
        let fits: Vec<_> = frames.iter().map(|frame| frame.judge(&form, noise)).collect();
        // A generated clip may have a frame that failed; the others still show what it is.
        let mut order: Vec<_> = fits.clone();
        order.sort_by(|a, b| a.misfit().total_cmp(&b.misfit()));
        order.truncate(fits.len() - fits.len() / 8);
        let explained: f64 = order.iter().map(|fit| fit.explained).sum();
        let left: f64 = order.iter().map(|fit| fit.left).sum();
        Fit {
            shape: form.shape,
            size: form.size,
            softness: form.variance.sqrt(),
            centres: frames.iter().map(|frame| frame.centre).collect(),
            windows: frames.iter().map(|frame| frame.window).collect(),
            explained,
            misfit: left / explained.max(f64::MIN_POSITIVE),
            frames: fits,
        }
    }

    /// Whether most frames show more than noise can.
    pub(super) fn stands_out(&self, sight: &Sight) -> bool {
        let least = SIGNAL * sight.noise * sight.noise;
        let strong = |fit: &&FrameFit| fit.explained >= least && fit.strength > WEAKEST;
        4 * self.frames.iter().filter(strong).count() >= 3 * self.frames.len()
    }

    /// How strong the colour is in a typical frame.
    pub(super) fn strength(&self) -> f64 {
        median(self.frames.iter().map(|fit| fit.strength))
    }

    /// Whether most frames fit by themselves, with about the same strength.
    pub(super) fn is_steady(&self) -> bool {
        let typical = self.strength();
        let good =
            |fit: &&FrameFit| fit.misfit() <= FRAME_MISFIT && fit.strength >= WEAKEST * typical;
        4 * self.frames.iter().filter(good).count() >= 3 * self.frames.len()
    }
}

impl FrameFit {
    fn misfit(&self) -> f64 {
        self.left / self.explained.max(f64::MIN_POSITIVE)
    }
}

/// What all frames have in common.
#[derive(Clone, Copy)]
struct Form {
    shape: Shape,
    size: f64,
    variance: f64,
}

impl Form {
    /// The shares of a window, `[height, width]`.
    fn render(&self, centre: [f64; 2], window: Window) -> Vec<f32> {
        let outline = Outline { shape: self.shape, centre, size: self.size };
        blur(&coverage(&outline, window), window, self.variance)
    }
}

impl FittedFrame {
    fn new(shape: Shape, sight: &Sight, frame: usize, size: f64) -> FittedFrame {
        let [column, row] = sight.centres[frame];
        let reach = 0.75 * size + 4.0;
        let range = |middle: f64, length: usize| {
            let start = (middle - reach).floor().max(0.0) as usize;
            (start, ((middle + reach).ceil() as usize).min(length) - start)
        };
        let ((top, height), (left, width)) = (range(row, sight.height), range(column, sight.width));
        let window = Window { top, left, height, width };
        let seen = window.pixels(sight.width).map(|at| sight.shares[frame][at]).collect();
        // The light of a triangle has its middle below the middle of its box.
        let lift = if shape == Shape::Triangle { size / 6.0 } else { 0.0 };
        FittedFrame { window, seen, centre: [column, row - lift] }
    }

    /// Moves the centre one step, whose length it tells, and adds the frame's share of the equations
    /// for size and variance.
    fn improve(&mut self, form: &Form, common: &mut Equations) -> f64 {
        let model = form.render(self.centre, self.window);
        let power = product(&model, &model).max(1e-9);
        let strength = product(&model, &self.seen) / power;
        let Window { height, width, top, left } = self.window;
        // Each derivative is taken across the model: along it, the strength follows by itself.
        let mut along = [0.0; 4];
        let derivatives: Vec<[f64; 4]> = (0..height * width)
            .map(|at| {
                let place = [(left + at % width) as f64 + 0.5, (top + at / width) as f64 + 0.5];
                let offset = [place[0] - self.centre[0], place[1] - self.centre[1]];
                let derivative = derivatives(&model, self.window, at, (form, offset));
                (0..4).for_each(|k| along[k] += derivative[k] * f64::from(model[at]));
                derivative
            })
            .collect();
        let mut place = Equations::default();
        for (at, derivative) in derivatives.into_iter().enumerate() {
            let value = f64::from(model[at]);
            let across: [f64; 4] =
                std::array::from_fn(|k| strength * (derivative[k] - along[k] / power * value));
            let left = f64::from(self.seen[at]) - strength * value;
            place.add([across[0], across[1]], left);
            common.add([across[2], across[3]], left);
        }
        let step = place.solve().map(|step| step.clamp(-1.0, 1.0));
        self.centre = [0, 1].map(|axis| self.centre[axis] + step[axis]);
        step[0].abs().max(step[1].abs())
    }

    fn judge(&self, form: &Form, noise: f64) -> FrameFit {
        let model = form.render(self.centre, self.window);
        let power = product(&model, &model);
        let strength = product(&model, &self.seen) / power.max(1e-9);
        let explained = strength * strength * power;
        let all = product(&self.seen, &self.seen);
        let left = all - explained - noise * noise * self.seen.len() as f64;
        FrameFit { strength, explained, left }
    }
}

/// How a pixel of the model changes with column, row, size and variance.
fn derivatives(
    model: &[f32],
    window: Window,
    at: usize,
    (form, offset): (&Form, [f64; 2]),
) -> [f64; 4] {
    let (row, column) = ((at / window.width) as isize, (at % window.width) as isize);
    let value = |row: isize, column: isize| {
        let inside = (0..window.height as isize).contains(&row)
            && (0..window.width as isize).contains(&column);
        if inside { f64::from(model[row as usize * window.width + column as usize]) } else { 0.0 }
    };
    let here = value(row, column);
    let (west, east) = (value(row, column - 1), value(row, column + 1));
    let (north, south) = (value(row - 1, column), value(row + 1, column));
    let gradient = [(east - west) / 2.0, (south - north) / 2.0];
    // The heat equation: blurring by a little more variance adds half the curvature.
    let soften = (east + west + north + south - 4.0 * here) / 2.0;
    let outward = gradient[0] * offset[0] + gradient[1] * offset[1];
    // Growing would widen the blur too; it is held.
    let grow = -(outward + 2.0 * form.variance * soften) / form.size;
    [-gradient[0], -gradient[1], grow, soften]
}

impl Equations {
    fn add(&mut self, derivative: [f64; 2], left: f64) {
        for i in 0..2 {
            self.right[i] += derivative[i] * left;
            for j in 0..2 {
                self.matrix[i][j] += derivative[i] * derivative[j];
            }
        }
    }

    /// The step downhill; a little damping keeps it finite.
    fn solve(&self) -> [f64; 2] {
        let damping = 1e-3 * (self.matrix[0][0] + self.matrix[1][1]) + 1e-9;
        let [[a, b], [_, d]] = self.matrix;
        let (a, d) = (a + damping, d + damping);
        let determinant = a * d - b * b;
        let [x, y] = self.right;
        [(d * x - b * y) / determinant, (a * y - b * x) / determinant]
    }
}

fn product(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum()
}

/// A Gaussian blur of the given variance in square pixels; outside of the window is background.
fn blur(picture: &[f32], window: Window, variance: f64) -> Vec<f32> {
    if variance < 0.01 {
        return picture.to_vec();
    }
    let reach = (3.0 * variance.sqrt()).ceil().max(1.0) as usize;
    let weight = |offset: usize| (-((offset * offset) as f64) / (2.0 * variance)).exp();
    let total: f64 = weight(0) + 2.0 * (1..=reach).map(weight).sum::<f64>();
    let weights: Vec<f32> = (0..=reach).map(|at| (weight(at) / total) as f32).collect();
    let across = blur_lines(picture, (window.height, window.width), &weights);
    blur_lines(&across, (window.width, window.height), &weights)
}

/// Blurs each line and transposes, so that doing it twice is a blur of both axes.
fn blur_lines(picture: &[f32], (lines, length): (usize, usize), weights: &[f32]) -> Vec<f32> {
    let mut result = vec![0.0; picture.len()];
    for line in 0..lines {
        let values = &picture[line * length..][..length];
        for (at, value) in values.iter().enumerate().filter(|(_, value)| **value != 0.0) {
            result[at * lines + line] += value * weights[0];
            for (offset, weight) in weights.iter().enumerate().skip(1) {
                if at >= offset {
                    result[(at - offset) * lines + line] += value * weight;
                }
                if at + offset < length {
                    result[(at + offset) * lines + line] += value * weight;
                }
            }
        }
    }
    result
}
