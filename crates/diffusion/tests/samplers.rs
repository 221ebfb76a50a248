//! Timestep samplers: what is drawn depends on its key alone and follows its density.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use diffusion::{Draw, TimestepSampler};

const COUNT: u64 = 40_000;
const TOKENS: usize = 4096;

fn samplers() -> [TimestepSampler; 7] {
    [
        TimestepSampler::uniform(0.0, 1.0).unwrap(),
        TimestepSampler::uniform(0.2, 0.7).unwrap(),
        TimestepSampler::logit_normal(0.5, 1.5).unwrap(),
        TimestepSampler::shifted_logit_normal(1.0, 1e-3, 0.1).unwrap(),
        TimestepSampler::shifted_logit_normal(0.7, 0.0, 0.0).unwrap(),
        TimestepSampler::mode(1.29).unwrap(),
        TimestepSampler::mode(-0.8).unwrap().with_shift(5.0).unwrap(),
    ]
}

fn draw(sample: u64) -> Draw {
    Draw::new(5).stream("level").step(3).sample(sample)
}

fn levels(sampler: TimestepSampler, tokens: usize) -> Vec<f64> {
    (0..COUNT).map(|sample| f64::from(sampler.level(draw(sample), tokens))).collect()
}

/// The share of levels below each of the bounds must be what the density says. The bound allows
/// for four standard deviations of the count.
fn check(sampler: TimestepSampler, tokens: usize, below: impl Fn(f64) -> f64) {
    let levels = levels(sampler, tokens);
    for bound in [0.02, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.98] {
        let found = levels.iter().filter(|level| **level < bound).count() as f64 / COUNT as f64;
        let want = below(bound);
        let allowed = 4.0 * (want * (1.0 - want) / COUNT as f64).sqrt() + 1e-4;
        assert!(
            (found - want).abs() < allowed,
            "{sampler:?}: {found} are below {bound}, not {want}"
        );
    }
}

/// How likely a normal number is below `x`.
fn normal_below(x: f64) -> f64 {
    0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
}

fn logit(level: f64) -> f64 {
    (level / (1.0 - level)).ln()
}

#[test]
fn a_level_depends_on_its_key_alone() {
    for sampler in samplers() {
        let forwards: Vec<f32> = (0..50).map(|i| sampler.level(draw(i), TOKENS)).collect();
        let mut backwards: Vec<f32> =
            (0..50).rev().map(|i| sampler.level(draw(i), TOKENS)).collect();
        backwards.reverse();
        assert_eq!(forwards, backwards, "{sampler:?}");
        let mut distinct = forwards.clone();
        distinct.sort_by(f32::total_cmp);
        distinct.dedup();
        assert!(distinct.len() > 45, "{sampler:?}: samples share their levels");
        let other = |draw: Draw| sampler.level(draw, TOKENS);
        let steps = (0..50).filter(|i| other(draw(*i)) == other(draw(*i).step(4))).count();
        assert!(steps < 5, "{sampler:?}: steps share their levels");
    }
}

#[test]
fn levels_stay_within_their_bounds() {
    for sampler in samplers() {
        for tokens in [1, 93, 4096, 24_576] {
            let levels = levels(sampler, tokens);
            assert!(levels.iter().all(|level| (0.0..=1.0).contains(level)), "{sampler:?}");
        }
    }
    let within = levels(samplers()[1], TOKENS);
    assert!(within.iter().all(|level| (0.2..0.7).contains(level)));
    let floored = levels(TimestepSampler::shifted_logit_normal(2.0, 0.05, 0.3).unwrap(), 256);
    assert!(floored.iter().all(|level| *level >= 0.05 - 1e-7));
}

#[test]
fn uniform_levels_are_uniform() {
    check(samplers()[0], TOKENS, |bound| bound);
    check(samplers()[1], TOKENS, |bound| ((bound - 0.2) / 0.5).clamp(0.0, 1.0));
    let levels = levels(samplers()[1], TOKENS);
    let mean = levels.iter().sum::<f64>() / COUNT as f64;
    let variance = levels.iter().map(|level| (level - mean).powi(2)).sum::<f64>() / COUNT as f64;
    assert!((mean - 0.45).abs() < 3e-3, "{mean}");
    assert!((variance - 0.25 / 12.0).abs() < 3e-4, "{variance}");
}

#[test]
fn logit_normal_levels_are_the_sigmoid_of_normal_numbers() {
    for (mean, deviation) in [(0.0, 1.0), (0.5, 1.5), (-1.0, 0.4)] {
        let sampler = TimestepSampler::logit_normal(mean, deviation).unwrap();
        check(sampler, TOKENS, |bound| normal_below((logit(bound) - mean) / deviation));
        let logits: Vec<f64> = levels(sampler, TOKENS).into_iter().map(logit).collect();
        let found = logits.iter().sum::<f64>() / COUNT as f64;
        let square = logits.iter().map(|logit| (logit - found).powi(2)).sum::<f64>();
        assert!((found - mean).abs() < 0.03 * deviation, "{found}, not {mean}");
        let spread = (square / COUNT as f64).sqrt();
        assert!((spread / deviation - 1.0).abs() < 0.02, "{spread}, not {deviation}");
    }
}

/// Below a level is what the stretched density has there, without what was reflected above it,
/// and the uniform share.
#[test]
fn shifted_logit_normal_levels_follow_the_tokens() {
    for (tokens, deviation, floor, uniform) in [
        (4096, 1.0, 1e-3, 0.1),
        (1024, 1.0, 1e-3, 0.1),
        (256, 1.4, 0.01, 0.4),
        (8192, 0.7, 0.0, 0.0),
    ] {
        let sampler = TimestepSampler::shifted_logit_normal(deviation, floor, uniform).unwrap();
        let mean = 0.95 + (tokens as f64 - 1024.0) * 1.1 / 3072.0;
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let low = sigmoid(mean - 2.5758 * deviation);
        let high = sigmoid(mean + 3.0902 * deviation);
        let stretched_below = |level: f64| {
            let squeezed = low + level * (high - low);
            if squeezed <= 0.0 { 0.0 } else { normal_below((logit(squeezed) - mean) / deviation) }
        };
        check(sampler, tokens, |bound| {
            let body = stretched_below(bound) - stretched_below(2.0 * floor - bound);
            (1.0 - uniform) * body + uniform * ((bound - floor) / (1.0 - floor)).max(0.0)
        });
    }
}

/// The density's cumulative distribution is the inverse of the curve it is drawn by.
#[test]
fn mode_levels_follow_their_curve() {
    for scale in [-0.8, 0.0, 1.29, 1.75] {
        let curve =
            |u: f64| 1.0 - u - scale * ((std::f64::consts::FRAC_PI_2 * u).cos().powi(2) - 1.0 + u);
        check(TimestepSampler::mode(scale).unwrap(), TOKENS, |bound| {
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..60 {
                let middle = (low + high) / 2.0;
                if curve(middle) > bound { low = middle } else { high = middle }
            }
            1.0 - low
        });
    }
}

/// A shift moves each level as it moves a schedule's, and keeps the draw.
#[test]
fn a_shift_moves_levels_towards_noise() {
    let plain = TimestepSampler::logit_normal(0.0, 1.0).unwrap();
    let moved = plain.with_shift(3.0).unwrap();
    for sample in 0..200 {
        let level = f64::from(plain.level(draw(sample), TOKENS));
        let want = 3.0 * level / (1.0 + 2.0 * level);
        assert!((f64::from(moved.level(draw(sample), TOKENS)) - want).abs() < 1e-6);
    }
    assert_eq!(plain.with_shift(1.0).unwrap(), plain);
}

#[test]
fn densities_that_do_not_exist_are_refused() {
    let message = |sampler: diffusion::Result<TimestepSampler>| sampler.unwrap_err().to_string();
    let plain = TimestepSampler::mode(0.0).unwrap();
    for (message, words) in [
        (message(TimestepSampler::uniform(-0.1, 1.0)), ["uniform", "lowest", "-0.1", "0 to 1"]),
        (message(TimestepSampler::uniform(0.6, 0.5)), ["uniform", "highest", "0.5", "0.6 to 1"]),
        (message(TimestepSampler::logit_normal(f64::NAN, 1.0)), ["mean", "NaN", "finite", "logit"]),
        (message(TimestepSampler::logit_normal(0.0, 0.0)), ["deviation", "0", "above 0", "logit"]),
        (
            message(TimestepSampler::shifted_logit_normal(1.0, 0.6, 0.1)),
            ["shifted_logit_normal", "floor", "0.6", "0 to 0.5"],
        ),
        (
            message(TimestepSampler::shifted_logit_normal(1.0, 0.1, 1.1)),
            ["shifted_logit_normal", "uniform", "1.1", "0 to 1"],
        ),
        (message(TimestepSampler::mode(1.8)), ["mode", "scale", "1.8", "-1 to 1.75"]),
        (message(plain.with_shift(-3.0)), ["sampler", "shift", "-3", "above 0"]),
    ] {
        assert!(words.iter().all(|word| message.contains(word)), "{words:?}: {message}");
        assert!(!message.ends_with('.'), "{message}");
    }
}

/// Dealt evenly, the parts of a density are that density, with far less left to chance.
#[test]
fn parts_of_a_density_make_the_whole() {
    const PARTS: u64 = 4000;
    for sampler in samplers() {
        let whole = levels(sampler, TOKENS);
        let parts: Vec<f64> = (0..PARTS)
            .map(|part| f64::from(sampler.level_in(part, PARTS, draw(part + 90_000), TOKENS)))
            .collect();
        for bound in [0.05, 0.2, 0.4, 0.5, 0.6, 0.8, 0.95] {
            let share = |levels: &[f64]| {
                levels.iter().filter(|level| **level < bound).count() as f64 / levels.len() as f64
            };
            let (found, want) = (share(&parts), share(&whole));
            assert!((found - want).abs() < 0.012, "{sampler:?}: {found}, not {want} below {bound}");
        }
    }
    // Without a mixture each part is a range of its own.
    let normal = TimestepSampler::logit_normal(0.5, 1.5).unwrap();
    let level = |part| normal.level_in(part, 16, draw(part), TOKENS);
    assert!((1..16).all(|part| level(part) > level(part - 1)));
    let (low, high) = (normal_below((logit(f64::from(level(3))) - 0.5) / 1.5), 3.0 / 16.0);
    assert!((high..=high + 1.0 / 16.0).contains(&low), "{low}");
}

/// A part of a density is that density where it lies: as often drawn as the whole one is there.
#[test]
fn a_part_of_a_density_is_the_density_there() {
    for (index, whole) in samplers().into_iter().enumerate() {
        for range in [[0.875, 1.0], [0.0, 0.875], [0.3, 0.6]] {
            let Ok(part) = whole.within(range) else { continue };
            let draw = |sample: u64| Draw::new(3).stream("level").sample(sample);
            let inside = |level: &f32| (range[0]..=range[1]).contains(&f64::from(*level));
            let mut want: Vec<f32> =
                (0..60_000).map(|at| whole.level(draw(at), 2048)).filter(inside).collect();
            let mut found: Vec<f32> = (0..20_000).map(|at| part.level(draw(at), 2048)).collect();
            assert!(found.iter().all(inside), "{index}: {range:?}");
            if want.len() < 1000 {
                continue;
            }
            want.sort_by(f32::total_cmp);
            found.sort_by(f32::total_cmp);
            for share in [0.1, 0.25, 0.5, 0.75, 0.9] {
                let at = |all: &[f32]| all[(share * all.len() as f64) as usize];
                let off = (at(&found) - at(&want)).abs() as f64 / (range[1] - range[0]);
                // LTX-2's mixes a uniform density in, whose share stays what it is.
                let bound = if index == 3 { 0.15 } else { 0.04 };
                assert!(off < bound, "{index} {range:?} at {share}: {off}");
            }
        }
    }
    let all = TimestepSampler::logit_normal(0.0, 1.0).unwrap();
    assert_eq!(all.within([0.0, 1.0]).unwrap(), all);
    assert!(all.within([0.9, 0.1]).is_err() && all.within([0.5, 1.5]).is_err());
    assert!(TimestepSampler::uniform(0.0, 0.5).unwrap().within([0.8, 1.0]).is_err());
}
