//! Another sample rate: a windowed sinc of 6 crossings on each side, as torchaudio's `resample` has it.

use std::f64::consts::PI;

/// Crossings of zero on each side of the sinc.
const CROSSINGS: f64 = 6.0;

/// Where the low pass lies, of half the lower rate.
const ROLLOFF: f64 = 0.99;

/// The samples of a sound at rate `to`, given those at rate `from`.
///
/// # Panics
/// Panics if a rate is 0.
pub fn resample(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    assert!(from > 0 && to > 0, "a rate is at least 1");
    if from == to {
        return samples.to_vec();
    }
    let shared = divisor(from, to);
    let (from, to) = ((from / shared) as usize, (to / shared) as usize);
    let band = from.min(to) as f64 * ROLLOFF;
    let width = (CROSSINGS * from as f64 / band).ceil() as usize;
    let phases: Vec<Vec<f64>> =
        (0..to).map(|phase| kernel(phase, [from, to], band, width)).collect();
    let length = (samples.len() * to).div_ceil(from);
    (0..length)
        .map(|at| {
            let (start, phase) = (at / to * from, at % to);
            let value = |offset: usize| {
                let place = (start + offset).checked_sub(width);
                place.and_then(|place| samples.get(place)).map_or(0.0, |value| f64::from(*value))
            };
            phases[phase].iter().enumerate().map(|(at, tap)| tap * value(at)).sum::<f64>() as f32
        })
        .collect()
}

/// The taps of one phase of the result, over `from + 2 width` samples.
fn kernel(phase: usize, [from, to]: [usize; 2], band: f64, width: usize) -> Vec<f64> {
    (0..2 * width + from)
        .map(|tap| {
            let time = (tap as f64 - width as f64) / from as f64 - phase as f64 / to as f64;
            let time = (time * band).clamp(-CROSSINGS, CROSSINGS);
            let window = (time * PI / CROSSINGS / 2.0).cos().powi(2);
            let sinc = if time == 0.0 { 1.0 } else { (time * PI).sin() / (time * PI) };
            sinc * window * band / from as f64
        })
        .collect()
}

fn divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::resample;

    fn tone(rate: u32, hertz: f64, length: usize) -> Vec<f32> {
        let angle = |at: usize| at as f64 * hertz * std::f64::consts::TAU / f64::from(rate);
        (0..length).map(|at| angle(at).sin() as f32).collect()
    }

    #[test]
    fn a_tone_stays_what_it_is() {
        for (from, to) in [(44_100, 16_000), (8_000, 16_000), (48_000, 16_000), (16_000, 24_000)] {
            let found = resample(&tone(from, 440.0, from as usize / 10), from, to);
            let wanted = tone(to, 440.0, found.len());
            assert_eq!(found.len(), to as usize / 10);
            // The ends see silence.
            let inner = 50..found.len() - 50;
            let off = found[inner.clone()].iter().zip(&wanted[inner]);
            let worst = off.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 5e-3, "{from} to {to}: off by {worst}");
        }
        assert_eq!(resample(&[0.25, -0.5], 7, 7), [0.25, -0.5]);
    }

    #[test]
    fn what_the_lower_rate_cannot_hold_is_taken_out() {
        let found = resample(&tone(48_000, 12_000.0, 4800), 48_000, 16_000);
        let loudest =
            found[50..found.len() - 50].iter().fold(0.0_f32, |most, it| most.max(it.abs()));
        assert!(loudest < 0.02, "{loudest}");
    }
}
