//! Numbers by step, and how many of them are shown.

/// Beyond this a number is of no use to look at, and its differences to others overflow.
const LARGEST: f64 = 1e100;

/// Fewer points than this are shown as they are.
const ROUGH: usize = 40;

/// A named curve.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Steps and values, in order of steps. What is not finite is left out of pictures.
    pub points: Vec<(u64, f64)>,
}

/// A point that can be drawn.
pub(super) type Point = (f64, f64);

impl Series {
    /// The points that have a place in a picture.
    pub(super) fn drawable(&self) -> Vec<Point> {
        let points = self.points.iter().map(|(step, value)| (*step as f64, *value));
        points.filter(|(_, value)| value.is_finite() && value.abs() <= LARGEST).collect()
    }
}

/// The course of many points: a running mean over about a twenty-fifth of them, without the lean
/// towards zero that it would begin with. None if the points are few enough to speak for themselves.
pub(super) fn smoothed(points: &[Point]) -> Option<Vec<Point>> {
    if points.len() < ROUGH {
        return None;
    }
    let keep = 1.0 - 25.0 / points.len().max(50) as f64;
    let (mut mean, mut weight) = (0.0, 0.0);
    let follow = |(step, value): &Point| {
        mean = keep * mean + (1.0 - keep) * value;
        weight = keep * weight + (1.0 - keep);
        (*step, mean / weight)
    };
    Some(points.iter().map(follow).collect())
}

/// At most about `limit` of the points. Of neighbours the lowest and the highest stay, so that the
/// picture keeps its outline.
pub(super) fn thinned(points: &[Point], limit: usize) -> Vec<Point> {
    if points.len() <= limit {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(limit + 2);
    for chunk in points.chunks(points.len().div_ceil(limit / 2)) {
        let by_value = |left: &&Point, right: &&Point| left.1.total_cmp(&right.1);
        let low = chunk.iter().min_by(by_value).copied();
        let high = chunk.iter().max_by(by_value).copied();
        let mut pair: Vec<Point> = low.into_iter().chain(high).collect();
        pair.sort_by(|left, right| left.0.total_cmp(&right.0));
        pair.dedup();
        kept.extend(pair);
    }
    kept.extend(points.last().filter(|last| kept.last() != Some(last)));
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(length: usize) -> Vec<Point> {
        (0..length)
            .map(|step| (step as f64, 5.0 + if step % 2 == 0 { 1.0 } else { -1.0 }))
            .collect()
    }

    #[test]
    fn what_cannot_be_drawn_is_left_out() {
        let values = [1.0, f64::NAN, f64::INFINITY, -f64::INFINITY, 1e200, -2.0];
        let points = values.iter().enumerate().map(|(step, value)| (step as u64, *value)).collect();
        let series = Series { name: String::new(), points };
        assert_eq!(series.drawable(), [(0.0, 1.0), (5.0, -2.0)]);
    }

    #[test]
    fn smoothing_has_no_lean_and_halves_the_noise() {
        assert_eq!(smoothed(&wave(ROUGH - 1)), None);
        let smooth = smoothed(&wave(1000)).unwrap();
        assert_eq!(smooth[0], (0.0, 6.0));
        assert!(smooth[200..].iter().all(|(_, value)| (value - 5.0).abs() < 0.05));
        assert_eq!(smooth.len(), 1000);
    }

    #[test]
    fn thinning_keeps_the_outline_and_the_ends() {
        let mut points = wave(5000);
        points[1234].1 = 50.0;
        points[4321].1 = -50.0;
        let thin = thinned(&points, 600);
        assert!(thin.len() <= 602, "{}", thin.len());
        assert!(thin.contains(&(1234.0, 50.0)) && thin.contains(&(4321.0, -50.0)));
        assert!(thin.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(thin.last(), points.last());
        assert_eq!(thinned(&points[..600], 600), points[..600]);
    }
}
