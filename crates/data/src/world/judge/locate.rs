//! Where in each frame something stands out, and in which colour.

use super::super::moving_shape::Colour;
use super::super::render::Window;
use super::fit::Fit;
use crate::clip::{CHANNELS, Clip};

/// The least similarity (cosine) of a colour to the one it is called.
const SAME_COLOUR: f64 = 0.94;
/// The least similarity of the colour of one frame to that of all.
const SAME_IN_FRAME: f64 = 0.85;
/// How bright a colour may be, relative to the one it is called.
const BRIGHTNESS: [f64; 2] = [0.5, 1.5];
/// The least light that counts as something.
const DIMMEST: f64 = 0.25;

/// What was seen in a clip: for each frame, how much of the clip's colour each pixel has.
pub(super) struct Sight {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Per frame `[H, W]`: 0 is background, 1 the colour.
    pub(super) shares: Vec<Vec<f32>>,
    /// Per frame, the middle of the brightest patch, `[column, row]`.
    pub(super) centres: Vec<[f64; 2]>,
    /// Noise of the shares, a standard deviation.
    pub(super) noise: f64,
    /// Red, green and blue beyond the background, of the whole clip.
    colour: [f64; 3],
    /// The same of each frame.
    frame_colours: Vec<[f64; 3]>,
    /// Squares of all pixels, over the three channels, beyond what noise makes; per frame `[H, W]`.
    light: Vec<Vec<f32>>,
}

impl Sight {
    /// Looks for something about `size` pixels wide; `None` if there is nothing.
    pub(super) fn of(clip: &Clip, size: f64) -> Option<Sight> {
        let [frames, height, width] = clip.size();
        let side = ((0.75 * size).round() as usize).max(3);
        if frames < 2 || height < side || width < side {
            return None;
        }
        let background = background(clip)?;
        let centres: Vec<_> =
            (0..frames).map(|frame| brightest(clip, frame, background, side)).collect();
        let core = (0.5 * size / 2.0).max(1.0);
        let frame_colours: Vec<_> = (0..frames)
            .map(|frame| mean_colour(clip, frame, background, (centres[frame], core)))
            .collect();
        let colour =
            [0, 1, 2].map(|channel| median(frame_colours.iter().map(|colour| colour[channel])));
        let strength = dot(colour, colour);
        if strength.sqrt() < DIMMEST {
            return None;
        }
        let shares: Vec<Vec<f32>> = (0..frames)
            .map(|frame| {
                let pixels = clip.frame(frame).chunks_exact(CHANNELS);
                let share = |pixel: &[f32]| dot(beyond(pixel, background), colour) / strength;
                pixels.map(|pixel| share(pixel) as f32).collect()
            })
            .collect();
        let noise = noise(far_away(&shares, &centres, width, size));
        let light = light(clip, background);
        Some(Sight { height, width, shares, centres, noise, colour, frame_colours, light })
    }

    /// The colour, if it is one that we know, and the same in most frames; `strength` is how much of
    /// it the shape has.
    pub(super) fn name_colour(&self, strength: f64) -> Option<Colour> {
        let known = Colour::KNOWN.map(|colour| (colour, colour.rgb().map(f64::from)));
        let similar = |rgb: [f64; 3]| cosine(self.colour, rgb);
        let (colour, rgb) =
            known.into_iter().max_by(|a, b| similar(a.1).total_cmp(&similar(b.1)))?;
        let brightness = strength * norm(self.colour) / norm(rgb);
        let agree = |frame: &&[f64; 3]| cosine(**frame, self.colour) >= SAME_IN_FRAME;
        let agreeing = self.frame_colours.iter().filter(agree).count();
        let is_certain = similar(rgb) >= SAME_COLOUR
            && (BRIGHTNESS[0]..=BRIGHTNESS[1]).contains(&brightness)
            && 4 * agreeing >= 3 * self.frame_colours.len();
        is_certain.then_some(colour)
    }

    /// The light outside of the windows of a fit, as a share of the light that the fit explains.
    pub(super) fn light_beside(&self, fit: &Fit) -> f64 {
        let mut beside = 0.0;
        for (frame, light) in self.light.iter().enumerate() {
            let window = fit.windows[frame];
            let total: f64 = light.iter().map(|value| f64::from(*value)).sum();
            let within: f64 = window.pixels(self.width).map(|at| f64::from(light[at])).sum();
            beside += total - within;
        }
        beside.max(0.0) / (fit.explained * dot(self.colour, self.colour)).max(f64::MIN_POSITIVE)
    }
}

impl Window {
    /// The places of its pixels in a frame of the given width, row by row.
    pub(super) fn pixels(self, width: usize) -> impl Iterator<Item = usize> {
        (self.top..self.top + self.height)
            .flat_map(move |row| (self.left..self.left + self.width).map(move |x| row * width + x))
    }
}

/// The median of each channel: a shape covers less than half of a frame. `None` if a value of the
/// clip is not finite.
fn background(clip: &Clip) -> Option<[f64; 3]> {
    if clip.pixels().iter().any(|value| !value.is_finite()) {
        return None;
    }
    let channel = |channel: usize| clip.pixels().iter().skip(channel).step_by(CHANNELS);
    Some([0, 1, 2].map(|at| median(channel(at).map(|value| f64::from(*value)))))
}

/// The values that are further than the size from the centre of their frame, on either axis.
fn far_away(shares: &[Vec<f32>], centres: &[[f64; 2]], width: usize, size: f64) -> Vec<f32> {
    let mut far = Vec::new();
    for (shares, [column, row]) in shares.iter().zip(centres) {
        let places = shares.iter().enumerate().filter(|(at, _)| {
            let x = (at % width) as f64 + 0.5 - column;
            let y = (at / width) as f64 + 0.5 - row;
            x.abs().max(y.abs()) > size
        });
        far.extend(places.map(|(_, value)| *value));
    }
    far
}

/// The middle of the square of the given side that has the most light.
fn brightest(clip: &Clip, frame: usize, background: [f64; 3], side: usize) -> [f64; 2] {
    let [_, height, width] = clip.size();
    let sums = running_sums(clip, frame, background);
    let row_length = width + 1;
    let mut best = (f64::NEG_INFINITY, [0.0, 0.0]);
    for top in 0..=height - side {
        for left in 0..=width - side {
            let corner = |row: usize, column: usize| sums[row * row_length + column];
            let light = corner(top + side, left + side) + corner(top, left)
                - corner(top, left + side)
                - corner(top + side, left);
            if light > best.0 {
                let middle = side as f64 / 2.0;
                best = (light, [left as f64 + middle, top as f64 + middle]);
            }
        }
    }
    best.1
}

/// The light of all pixels above and left of a corner, `[H + 1, W + 1]`.
fn running_sums(clip: &Clip, frame: usize, background: [f64; 3]) -> Vec<f64> {
    let [_, height, width] = clip.size();
    let row_length = width + 1;
    let mut sums = vec![0.0; (height + 1) * row_length];
    let pixels = clip.frame(frame).chunks_exact(CHANNELS).enumerate();
    for (at, pixel) in pixels {
        let (row, column) = (at / width, at % width);
        let light: f64 = beyond(pixel, background).iter().sum();
        let here = (row + 1) * row_length + column + 1;
        sums[here] = light + sums[here - 1] + sums[here - row_length] - sums[here - row_length - 1];
    }
    sums
}

/// The mean colour beyond the background of the pixels within `reach` of the centre on both axes.
fn mean_colour(
    clip: &Clip,
    frame: usize,
    background: [f64; 3],
    (centre, reach): ([f64; 2], f64),
) -> [f64; 3] {
    let [_, height, width] = clip.size();
    let near = |middle: f64, length: usize| {
        (0..length).filter(move |at| (*at as f64 + 0.5 - middle).abs() <= reach)
    };
    let mut sum = [0.0; 3];
    let mut count = 0.0;
    for row in near(centre[1], height) {
        for column in near(centre[0], width) {
            let pixel = beyond(&clip.pixel(frame, row, column), background);
            sum = [0, 1, 2].map(|channel| sum[channel] + pixel[channel]);
            count += 1.0;
        }
    }
    sum.map(|sum| sum / f64::max(count, 1.0))
}

/// Squares summed over the channels, less the mean that noise makes; per frame `[H, W]`.
fn light(clip: &Clip, background: [f64; 3]) -> Vec<Vec<f32>> {
    let [frames, ..] = clip.size();
    let beyond_it = |pixel: &[f32]| beyond(pixel, background);
    let all = clip.pixels().chunks_exact(CHANNELS);
    let values: Vec<f32> =
        all.flat_map(|pixel| beyond_it(pixel).map(|value| value as f32)).collect();
    let noise = noise(values);
    let expected = CHANNELS as f64 * noise * noise;
    let square = |pixel: &[f32]| {
        let pixel = beyond_it(pixel);
        (dot(pixel, pixel) - expected) as f32
    };
    (0..frames)
        .map(|frame| clip.frame(frame).chunks_exact(CHANNELS).map(square).collect())
        .collect()
}

/// The standard deviation of the noise, from the median size of values most of which are noise.
fn noise(mut values: Vec<f32>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter_mut().for_each(|value| *value = value.abs());
    let middle = values.len() / 2;
    f64::from(*values.select_nth_unstable_by(middle, f32::total_cmp).1) / 0.6745
}

/// A pixel beyond the background. Overshoot is cut off, so that a few wild values decide nothing.
fn beyond(pixel: &[f32], background: [f64; 3]) -> [f64; 3] {
    [0, 1, 2].map(|channel| f64::from(pixel[channel].clamp(-0.5, 1.5)) - background[channel])
}

/// The middle value; 0 of none.
pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: [f64; 3]) -> f64 {
    dot(a, a).sqrt()
}

fn cosine(a: [f64; 3], b: [f64; 3]) -> f64 {
    dot(a, b) / (norm(a) * norm(b)).max(f64::MIN_POSITIVE)
}
