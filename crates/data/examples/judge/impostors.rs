//! Clips that a judge must see through, and harm that it must bear.

use data::Clip;
use data::world::{Colour, Shown, World};
use diffusion::Draw;

/// One way to spoil an honest clip, or to make a false one from it; the last is the clip's index.
pub(crate) type Change = fn(&World, &Shown, u64) -> Clip;

/// What an honest clip may suffer; it must still be read.
pub(crate) const HARM: [(&str, Change); 15] = [
    ("as rendered", |_, shown, _| shown.clip.clone()),
    ("noise 0.05", |_, shown, at| noisy(&shown.clip, 0.05, at)),
    ("noise 0.10", |_, shown, at| noisy(&shown.clip, 0.10, at)),
    ("noise 0.15", |_, shown, at| noisy(&shown.clip, 0.15, at)),
    ("blur 0.7", |_, shown, _| blurred(&shown.clip, 0.7)),
    ("blur 0.7, noise 0.10", |_, shown, at| noisy(&blurred(&shown.clip, 0.7), 0.10, at)),
    ("blur 0.7, noise 0.15", |_, shown, at| noisy(&blurred(&shown.clip, 0.7), 0.15, at)),
    ("8 bits, noise 0.05", |_, shown, at| bytes(&noisy(&shown.clip, 0.05, at))),
    ("flicker 15 %", |_, shown, at| flickering(&shown.clip, 0.15, at)),
    ("dim to 65 %", |_, shown, _| mapped(&shown.clip, |value| 0.65 * value)),
    ("grey background 0.1", |_, shown, _| mapped(&shown.clip, |value| 0.1 + 0.9 * value)),
    ("one frame lost", |_, shown, at| without_frame(&shown.clip, at)),
    ("trail of 15 %", |_, shown, _| trailing(&shown.clip, 0.15)),
    ("wobbly by 0.6 pixels", |_, shown, at| wobbly(&shown.clip, 0.6, at)),
    ("soft, trail, flicker, noise", |_, shown, at| {
        let clip = flickering(&trailing(&blurred(&shown.clip, 0.6), 0.1), 0.1, at);
        noisy(&clip, 0.05, at)
    }),
];

/// What must not be accepted, with a caption that is true of the clip it was made from.
pub(crate) const IMPOSTORS: [(&str, Change); 21] = [
    ("normal noise", |_, shown, at| noisy(&black(shown), [0.1, 0.3, 1.0][at as usize % 3], at)),
    ("uniform noise", |_, shown, at| uniform(&black(shown), at)),
    ("smooth noise", |_, shown, at| smooth_noise(shown, at)),
    ("still frames", |_, shown, _| still(&shown.clip)),
    ("still frames, noise 0.15", |_, shown, at| noisy(&still(&shown.clip), 0.15, at)),
    ("frames in disorder", |_, shown, at| disordered(&shown.clip, at)),
    ("Gaussian blob", |world, shown, at| blob(world, shown, at, gauss)),
    ("Gaussian blob, noise 0.10", |world, shown, at| {
        noisy(&blob(world, shown, at, gauss), 0.1, at)
    }),
    ("Gaussian blob, clipped", |world, shown, at| {
        blob(world, shown, at, |x| (1.5 * gauss(x)).min(1.0))
    }),
    ("blob with the circle's area", |world, shown, _| blob_of(world, shown, 0.354, gauss)),
    ("cosine blob", |world, shown, at| blob(world, shown, at, |x| cosine(x / 2.5))),
    ("soft disc, edge 40 %", |_, shown, _| soft_disc(shown, 0.4)),
    ("soft disc, edge 60 %", |_, shown, _| soft_disc(shown, 0.6)),
    ("soft disc, edge 100 %", |_, shown, _| soft_disc(shown, 1.0)),
    ("disc, much smaller or larger", |_, shown, at| disc(shown, [0.4, 2.2][at as usize % 2])),
    ("ring", |_, shown, _| outlined(shown, ring)),
    ("tall ellipse", |_, shown, _| {
        outlined(shown, |x, y| edge((x * x / 0.45 + y * y / 1.2).sqrt()))
    }),
    ("diamond", |_, shown, _| outlined(shown, |x, y| edge((x.abs() + y.abs()) * 0.85))),
    ("gone after half of the frames", |_, shown, _| gone(&shown.clip)),
    ("white", |_, shown, _| recoloured(shown, [1.0, 1.0, 1.0])),
    ("all six colours at once", |_, shown, _| rainbow(shown)),
];

fn black(shown: &Shown) -> Clip {
    Clip::black(shown.clip.size())
}

fn mapped(clip: &Clip, change: impl Fn(f32) -> f32) -> Clip {
    let mut clip = clip.clone();
    clip.pixels_mut().iter_mut().for_each(|value| *value = change(*value));
    clip
}

fn draw(name: &str, at: u64) -> Draw {
    Draw::new(5).stream(name).sample(at)
}

/// Normal noise of the given standard deviation on every value.
pub(crate) fn noisy(clip: &Clip, sigma: f32, at: u64) -> Clip {
    let mut clip = clip.clone();
    let noise = draw("noise", at).normal(0..clip.pixels().len());
    clip.pixels_mut().iter_mut().zip(noise).for_each(|(value, noise)| *value += sigma * noise);
    clip
}

fn uniform(clip: &Clip, at: u64) -> Clip {
    let noise = draw("uniform", at).uniform(0..clip.pixels().len());
    Clip::new(clip.size(), noise).expect("as many values")
}

fn bytes(clip: &Clip) -> Clip {
    mapped(clip, |value| (value.clamp(0.0, 1.0) * 255.0).round() / 255.0)
}

/// Every frame brighter or darker by up to the given share.
fn flickering(clip: &Clip, share: f32, at: u64) -> Clip {
    let mut clip = clip.clone();
    let gains = draw("flicker", at).uniform(0..clip.size()[0]);
    for (frame, gain) in gains.into_iter().enumerate() {
        let gain = 1.0 + share * (2.0 * gain - 1.0);
        clip.frame_mut(frame).iter_mut().for_each(|value| *value *= gain);
    }
    clip
}

fn without_frame(clip: &Clip, at: u64) -> Clip {
    let mut clip = clip.clone();
    let frame = at as usize % clip.size()[0];
    clip.frame_mut(frame).fill(0.0);
    clip
}

/// Every frame keeps a share of the one before.
fn trailing(clip: &Clip, share: f32) -> Clip {
    let mut result = clip.clone();
    for frame in 1..clip.size()[0] {
        let before = clip.frame(frame - 1);
        let now = result.frame_mut(frame).iter_mut();
        now.zip(before).for_each(|(now, before)| *now = now.max(share * before));
    }
    result
}

/// Every pixel taken from up to `reach` pixels away, along smooth waves that change with the frame.
fn wobbly(clip: &Clip, reach: f64, at: u64) -> Clip {
    let mut result = clip.clone();
    let [frames, height, width] = clip.size();
    let phases = draw("phases", at).uniform(0..4 * frames);
    for frame in 0..frames {
        let from = clip.frame(frame);
        let phase = |which: usize| 6.3 * f64::from(phases[4 * frame + which]);
        let value = |row: f64, column: f64, channel: usize| {
            let (row, column) =
                (row.clamp(0.0, (height - 1) as f64), column.clamp(0.0, (width - 1) as f64));
            let (top, left) = (row as usize, column as usize);
            let (low, right) = ((top + 1).min(height - 1), (left + 1).min(width - 1));
            let (down, across) = ((row - top as f64) as f32, (column - left as f64) as f32);
            let at = |row: usize, column: usize| from[(row * width + column) * 3 + channel];
            let upper = at(top, left) * (1.0 - across) + at(top, right) * across;
            let lower = at(low, left) * (1.0 - across) + at(low, right) * across;
            upper * (1.0 - down) + lower * down
        };
        for (at, result) in result.frame_mut(frame).iter_mut().enumerate() {
            let (row, column) = ((at / 3 / width) as f64, (at / 3 % width) as f64);
            let wave = |x: f64, y: f64, which: usize| {
                (0.9 * x + phase(which)).sin() * (0.7 * y + phase(which + 1)).cos()
            };
            let (down, across) = (reach * wave(row, column, 0), reach * wave(column, row, 2));
            *result = value(row + down, column + across, at % 3);
        }
    }
    result
}

fn still(clip: &Clip) -> Clip {
    let mut result = clip.clone();
    let frames = clip.size()[0];
    (0..frames).for_each(|frame| result.frame_mut(frame).copy_from_slice(clip.frame(frames / 2)));
    result
}

fn gone(clip: &Clip) -> Clip {
    let mut clip = clip.clone();
    let frames = clip.size()[0];
    (frames / 2..frames).for_each(|frame| clip.frame_mut(frame).fill(0.0));
    clip
}

/// The frames in an order that goes back and forth.
fn disordered(clip: &Clip, at: u64) -> Clip {
    let mut result = clip.clone();
    let frames = clip.size()[0];
    let keys = draw("order", at).uniform(0..frames);
    let mut order: Vec<usize> = (0..frames).collect();
    order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]));
    // A draw may be in order by chance; swapping the ends makes sure that it is not.
    let is_sorted = order.windows(2).filter(|pair| pair[0] < pair[1]).count() + 2 >= frames;
    if is_sorted {
        order.swap(0, frames - 1);
    }
    for (frame, from) in order.into_iter().enumerate() {
        result.frame_mut(frame).copy_from_slice(clip.frame(from));
    }
    result
}

/// A Gaussian blur of every frame; beyond the edge is black.
pub(crate) fn blurred(clip: &Clip, sigma: f64) -> Clip {
    let [_, height, width] = clip.size();
    let reach = (4.0 * sigma).ceil() as isize;
    let weights: Vec<f64> =
        (-reach..=reach).map(|at| (-((at * at) as f64) / (2.0 * sigma * sigma)).exp()).collect();
    let total: f64 = weights.iter().sum();
    let pass = |clip: &Clip, [down, right]: [isize; 2]| {
        let mut result = clip.clone();
        for frame in 0..clip.size()[0] {
            for at in 0..height * width * 3 {
                let (row, column) = ((at / 3 / width) as isize, (at / 3 % width) as isize);
                let sum: f64 = (-reach..=reach)
                    .zip(&weights)
                    .map(|(offset, weight)| (row + down * offset, column + right * offset, weight))
                    .filter(|(row, column, _)| {
                        (0..height as isize).contains(row) && (0..width as isize).contains(column)
                    })
                    .map(|(row, column, weight)| {
                        let from = (row as usize * width + column as usize) * 3 + at % 3;
                        weight * f64::from(clip.frame(frame)[from])
                    })
                    .sum();
                result.frame_mut(frame)[at] = (sum / total) as f32;
            }
        }
        result
    };
    pass(&pass(clip, [1, 0]), [0, 1])
}

fn smooth_noise(shown: &Shown, at: u64) -> Clip {
    let clip = blurred(&noisy(&black(shown), 1.0, at), 1.5);
    mapped(&clip, |value| (3.0 * value + 0.2).clamp(0.0, 1.0))
}

/// Something of the clip's own colour, painted around the shape's middle: `paint` has the place from
/// there in pixels.
fn painted(shown: &Shown, rgb: [f32; 3], paint: impl Fn(f64, f64) -> f64) -> Clip {
    let mut clip = black(shown);
    let [frames, _, width] = clip.size();
    for frame in 0..frames {
        let [column, row] = shown.motion.centre(frame);
        for (at, pixel) in clip.frame_mut(frame).chunks_exact_mut(3).enumerate() {
            let x = (at % width) as f64 + 0.5 - column;
            let y = (at / width) as f64 + 0.5 - row;
            let share = paint(x, y).clamp(0.0, 1.0) as f32;
            pixel.iter_mut().zip(rgb).for_each(|(value, light)| *value = share * light);
        }
    }
    clip
}

fn gauss(x: f64) -> f64 {
    (-x * x / 2.0).exp()
}

fn cosine(x: f64) -> f64 {
    if x.abs() >= 1.0 { 0.0 } else { 0.5 + 0.5 * (std::f64::consts::PI * x).cos() }
}

/// A round blob of any width: its profile is stretched by 0.12 to 0.6 of the shape's size.
fn blob(world: &World, shown: &Shown, at: u64, profile: fn(f64) -> f64) -> Clip {
    let share = f64::from(draw("width", at).uniform(0..1)[0]);
    blob_of(world, shown, 0.12 + 0.48 * share, profile)
}

fn blob_of(_: &World, shown: &Shown, width: f64, profile: fn(f64) -> f64) -> Clip {
    let scale = width * shown.motion.size;
    painted(shown, shown.scene.colour.rgb(), |x, y| profile((x * x + y * y).sqrt() / scale))
}

/// A disc of the right size whose edge fades over the given share of its width.
fn soft_disc(shown: &Shown, fade: f64) -> Clip {
    let (radius, fade) = (shown.motion.size / 2.0, fade * shown.motion.size);
    painted(shown, shown.scene.colour.rgb(), |x, y| 0.5 + (radius - (x * x + y * y).sqrt()) / fade)
}

fn disc(shown: &Shown, scale: f64) -> Clip {
    let radius = scale * shown.motion.size / 2.0;
    painted(shown, shown.scene.colour.rgb(), |x, y| 0.5 + radius - (x * x + y * y).sqrt())
}

/// A figure whose place is given in halves of the shape's size.
fn outlined(shown: &Shown, inside: fn(f64, f64) -> f64) -> Clip {
    let half = shown.motion.size / 2.0;
    painted(shown, shown.scene.colour.rgb(), |x, y| inside(x / half, y / half))
}

/// Covered where the distance is below 1, with an edge of about a pixel.
fn edge(distance: f64) -> f64 {
    0.5 + 5.0 * (1.0 - distance)
}

fn ring(x: f64, y: f64) -> f64 {
    let distance = (x * x + y * y).sqrt();
    edge(distance).min(0.5 + 5.0 * (distance - 0.55))
}

fn recoloured(shown: &Shown, rgb: [f32; 3]) -> Clip {
    let half = shown.motion.size / 2.0;
    painted(shown, rgb, |x, y| 0.5 + half - x.abs().max(y.abs()))
}

/// The honest clip, but every frame has another colour.
fn rainbow(shown: &Shown) -> Clip {
    let mut clip = shown.clip.clone();
    for frame in 0..clip.size()[0] {
        let rgb = Colour::KNOWN[frame % 6].rgb();
        for pixel in clip.frame_mut(frame).chunks_exact_mut(3) {
            let share = pixel.iter().copied().fold(0.0, f32::max);
            pixel.iter_mut().zip(rgb).for_each(|(value, light)| *value = share * light);
        }
    }
    clip
}
