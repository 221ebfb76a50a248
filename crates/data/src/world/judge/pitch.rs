//! Which pitch a sound has: the peak of its power over short windows.

use std::f64::consts::TAU;

/// How far a tone may be from the pitch it is called, as a share of it.
const TUNING: f64 = 0.07;
/// The least share of the sound's power near the peak.
const PURITY: f64 = 0.35;
/// A sound quieter than this, as a root mean square, is silence.
const QUIETEST: f64 = 0.02;
/// Windows per second: short enough that a tone may drift, long enough to tell the pitches apart.
const WINDOWS_PER_SECOND: f64 = 25.0;

/// The place of the pitch in `pitches`; `None` for silence, noise and other tones.
pub(super) fn read(samples: &[f32], sample_rate: u32, pitches: &[f64]) -> Option<usize> {
    let rate = f64::from(sample_rate);
    let length = (rate / WINDOWS_PER_SECOND) as usize;
    let power = samples.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / samples.len() as f64;
    if samples.len() < length || length < 16 || !power.is_finite() || power.sqrt() < QUIETEST {
        return None;
    }
    let (low, high) = (pitches.first()? * 0.8, pitches.last()? * 1.25);
    // A window tells frequencies apart that are about its own apart; look four times as closely.
    let steps = ((high - low) / (WINDOWS_PER_SECOND / 4.0)).ceil() as usize;
    let spectrum: Vec<(f64, f64)> = (0..=steps)
        .map(|step| low + (high - low) * step as f64 / steps as f64)
        .map(|pitch| (pitch, mean_power(samples, length, pitch / rate)))
        .collect();
    let (found, peak) = spectrum.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let nearest = (0..pitches.len()).min_by(|a, b| {
        let distance = |at: &usize| (pitches[*at] / found).ln().abs();
        distance(a).total_cmp(&distance(b))
    })?;
    let is_certain = peak >= PURITY * power && (pitches[nearest] / found).ln().abs() <= TUNING;
    is_certain.then_some(nearest)
}

/// The power of one frequency, in turns per sample, as the mean over overlapping windows. A pure tone
/// of that frequency gives the power of the tone.
fn mean_power(samples: &[f32], length: usize, frequency: f64) -> f64 {
    let window = |at: usize| 0.5 - 0.5 * libm::cos(TAU * (at as f64 + 0.5) / length as f64);
    let weight: f64 = (0..length).map(window).sum();
    let wave: Vec<[f64; 2]> = (0..length)
        .map(|at| {
            let (sine, cosine) = libm::sincos(TAU * frequency * at as f64);
            [window(at) * cosine, window(at) * sine]
        })
        .collect();
    let starts = (0..=samples.len() - length).step_by(length / 2);
    let count = starts.clone().count() as f64;
    let powers = starts.map(|start| {
        let values = samples[start..start + length].iter().map(|value| f64::from(*value));
        let [real, imaginary] = values.zip(&wave).fold([0.0, 0.0], |sum, (value, wave)| {
            [sum[0] + value * wave[0], sum[1] + value * wave[1]]
        });
        2.0 * (real * real + imaginary * imaginary) / (weight * weight)
    });
    powers.sum::<f64>() / count
}
