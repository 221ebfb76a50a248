//! The log-mel spectrogram that LTX-2's audio VAE sees.
//!
//! A centred short-time Fourier transform of 1024 samples under a Hann window, the clip mirrored at its ends;
//! magnitudes summed in triangular bands after Slaney, each of unit area; the logarithm of at least 1e-5.

use std::f64::consts::{PI, TAU};

/// Samples of a spectrum.
const WINDOW: usize = 1024;

/// The least that a band holds.
const FLOOR: f64 = 1e-5;

/// How a waveform becomes a spectrogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spectrogram {
    /// Samples per second.
    pub sample_rate: u32,
    /// Samples from one spectrum to the next.
    pub hop: usize,
    /// Bands of a spectrum, from 0 to half the sample rate.
    pub bins: usize,
}

impl Spectrogram {
    /// How many spectra so many samples have.
    pub fn frames(&self, samples: usize) -> usize {
        1 + samples / self.hop
    }

    /// The spectra of one channel, `[frames, bins]` row by row.
    pub fn of(&self, samples: &[f32]) -> Vec<f32> {
        let bands = self.bands();
        let window: Vec<f64> =
            (0..WINDOW).map(|at| 0.5 - 0.5 * (TAU * at as f64 / WINDOW as f64).cos()).collect();
        let mut out = Vec::with_capacity(self.frames(samples.len()) * self.bins);
        for frame in 0..self.frames(samples.len()) {
            let first = (frame * self.hop) as isize - (WINDOW / 2) as isize;
            let mut real: Vec<f64> =
                (0..WINDOW).map(|at| mirrored(samples, first + at as isize) * window[at]).collect();
            let mut imaginary = vec![0.0; WINDOW];
            fourier(&mut real, &mut imaginary);
            let magnitudes: Vec<f64> =
                (0..=WINDOW / 2).map(|at| real[at].hypot(imaginary[at])).collect();
            out.extend(bands.iter().map(|(start, weights)| {
                let parts = weights.iter().zip(&magnitudes[*start..]);
                parts.map(|(weight, it)| weight * it).sum::<f64>().max(FLOOR).ln() as f32
            }));
        }
        out
    }

    /// The weights of every band, beginning at its first frequency.
    fn bands(&self) -> Vec<(usize, Vec<f64>)> {
        let top = f64::from(self.sample_rate) / 2.0;
        let edge = |at: usize| hertz(mels(top) * at as f64 / (self.bins + 1) as f64);
        let step = top / (WINDOW / 2) as f64;
        (0..self.bins)
            .map(|band| {
                let [low, middle, high] = [0, 1, 2].map(|at| edge(band + at));
                let start = (low / step).ceil() as usize;
                let weight = |at: usize| {
                    let frequency = at as f64 * step;
                    let rising = (frequency - low) / (middle - low);
                    let falling = (high - frequency) / (high - middle);
                    rising.min(falling).max(0.0) * 2.0 / (high - low)
                };
                let end = ((high / step).floor() as usize).min(WINDOW / 2);
                (start, (start..=end).map(weight).collect())
            })
            .collect()
    }
}

/// A sample of a clip that is mirrored at its ends, as often as need be.
fn mirrored(samples: &[f32], at: isize) -> f64 {
    let last = samples.len() as isize - 1;
    if last <= 0 {
        return samples.first().map_or(0.0, |value| f64::from(*value));
    }
    let place = at.rem_euclid(2 * last);
    f64::from(samples[place.min(2 * last - place) as usize])
}

/// Mels after Slaney: linear below 1 kHz, logarithmic above.
fn mels(hertz: f64) -> f64 {
    match hertz < 1000.0 {
        true => hertz * 3.0 / 200.0,
        false => 15.0 + (hertz / 1000.0).ln() * 27.0 / 6.4_f64.ln(),
    }
}

fn hertz(mels: f64) -> f64 {
    match mels < 15.0 {
        true => mels * 200.0 / 3.0,
        false => 1000.0 * ((mels - 15.0) * 6.4_f64.ln() / 27.0).exp(),
    }
}

/// The discrete Fourier transform, in place; the length is a power of two.
fn fourier(real: &mut [f64], imaginary: &mut [f64]) {
    let length = real.len();
    let bits = length.trailing_zeros();
    for at in 0..length {
        let other = at.reverse_bits() >> (usize::BITS - bits);
        if at < other {
            real.swap(at, other);
            imaginary.swap(at, other);
        }
    }
    let mut half = 1;
    while half < length {
        for offset in 0..half {
            let (sine, cosine) = (-PI * offset as f64 / half as f64).sin_cos();
            for start in (offset..length).step_by(2 * half) {
                let other = start + half;
                let (re, im) = (
                    real[other] * cosine - imaginary[other] * sine,
                    real[other] * sine + imaginary[other] * cosine,
                );
                (real[other], imaginary[other]) = (real[start] - re, imaginary[start] - im);
                (real[start], imaginary[start]) = (real[start] + re, imaginary[start] + im);
            }
        }
        half *= 2;
    }
}
