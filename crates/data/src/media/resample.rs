//! Sounds at another sample rate, by a windowed sinc.
//!
//! Every sample is a sum over its neighbours in one order, with `libm`, so that the bits are the same on every machine.

/// Zeros of the sinc on either side, before it is stretched.
const ZEROS: f64 = 16.0;

/// How much of the lower rate's band is kept.
const ROLLOFF: f64 = 0.95;

/// The samples of a channel at another rate. There are as many as last as long, to the nearest.
pub(crate) fn resampled(samples: &[f32], from: u32, to: u32) -> Vec<f32> {
    if from == to || samples.is_empty() {
        return samples.to_vec();
    }
    let divisor = greatest_common_divisor(from, to);
    let (from, to) = (u64::from(from / divisor), u64::from(to / divisor));
    let count = (samples.len() as u64 * to + from / 2) / from;
    let band = ROLLOFF * (to as f64 / from as f64).min(1.0);
    let reach = ZEROS / band;
    // Output `n` lies `n * from % to` parts of a sample behind one of the input: a filter for each.
    let filters: Vec<Vec<f64>> = match to <= MOST_FILTERS {
        true => (0..to).map(|part| filter(part as f64 / to as f64, band, reach)).collect(),
        false => Vec::new(),
    };
    let place = |at: u64| (at * from / to, at * from % to);
    (0..count)
        .map(|at| {
            let (whole, part) = place(at);
            match filters.get(part as usize) {
                Some(own) => sum(samples, whole, own),
                None => sum(samples, whole, &filter(part as f64 / to as f64, band, reach)),
            }
        })
        .collect()
}

/// No more filters are kept: rates without a common divisor have as many as the rate itself.
const MOST_FILTERS: u64 = 4096;

/// Weights of the neighbours of a place `part` behind a sample, from the furthest before it on.
fn filter(part: f64, band: f64, reach: f64) -> Vec<f64> {
    let side = reach.ceil() as i64;
    let weights: Vec<f64> = (-side..=side + 1)
        .map(|at| {
            let far = at as f64 - part;
            if far.abs() >= reach {
                return 0.0;
            }
            let window = libm::cos(std::f64::consts::FRAC_PI_2 * far / reach);
            band * sinc(band * far) * window * window
        })
        .collect();
    // A constant stays what it is.
    let all: f64 = weights.iter().sum();
    weights.into_iter().map(|own| own / all).collect()
}

fn sinc(at: f64) -> f64 {
    let angle = std::f64::consts::PI * at;
    if at == 0.0 { 1.0 } else { libm::sin(angle) / angle }
}

/// The weighted neighbours of a sample; beyond the ends there is silence.
fn sum(samples: &[f32], whole: u64, weights: &[f64]) -> f32 {
    let side = (weights.len() / 2 - 1) as i64;
    let first = whole as i64 - side;
    let weighted = weights.iter().enumerate().map(|(at, weight)| {
        let sample = usize::try_from(first + at as i64).ok().and_then(|own| samples.get(own));
        sample.map_or(0.0, |own| f64::from(*own) * weight)
    });
    weighted.sum::<f64>() as f32
}

fn greatest_common_divisor(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::resampled;

    fn tone(hertz: f64, rate: u32, seconds: f64) -> Vec<f32> {
        let count = (seconds * f64::from(rate)).round() as usize;
        let angle = std::f64::consts::TAU * hertz / f64::from(rate);
        (0..count).map(|at| (0.5 * (angle * at as f64).sin()) as f32).collect()
    }

    /// The largest difference away from the ends.
    fn apart(found: &[f32], want: &[f32], rate: u32) -> f32 {
        assert_eq!(found.len(), want.len());
        let edge = rate as usize / 50;
        let inner = edge..want.len() - edge;
        inner.map(|at| (found[at] - want[at]).abs()).fold(0.0, f32::max)
    }

    #[test]
    fn a_tone_stays_the_tone_at_every_rate() {
        for (from, to) in
            [(8000, 48_000), (48_000, 8000), (44_100, 48_000), (44_100, 16_000), (7993, 8000)]
        {
            for hertz in [262.0, 831.0, 2500.0] {
                let found = resampled(&tone(hertz, from, 0.3), from, to);
                let want = tone(hertz, to, 0.3);
                let far = apart(&found, &want, to);
                assert!(far < 2e-3, "{hertz} Hz from {from} to {to}: {far}");
            }
        }
    }

    /// What the lower rate cannot hold is gone and does not come back as another tone.
    #[test]
    fn what_is_too_high_is_left_out() {
        let found = resampled(&tone(7000.0, 48_000, 0.3), 48_000, 8000);
        let silence = vec![0.0; found.len()];
        assert!(apart(&found, &silence, 8000) < 2e-3);
    }

    #[test]
    fn lengths_are_exact_and_the_same_rate_changes_nothing() {
        let sound = tone(440.0, 8000, 0.5);
        assert_eq!(resampled(&sound, 8000, 8000), sound);
        for (count, from, to, want) in [(8000, 8000, 44_100, 44_100), (3, 2, 3, 5), (1, 8, 1, 0)] {
            assert_eq!(resampled(&vec![0.1; count], from, to).len(), want);
        }
        let level = resampled(&[0.25; 4000], 44_100, 48_000);
        assert!((level[2000] - 0.25).abs() < 1e-6);
    }
}
