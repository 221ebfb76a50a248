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

/// The course of many points that jump about: the mean of the neighbours on both sides, the nearer the
/// weightier, so that it neither lags behind nor leans towards the ends. None if the points are few
/// or smooth enough to speak for themselves.
pub(super) fn smoothed(points: &[Point]) -> Option<Vec<Point>> {
    if points.len() < ROUGH || is_smooth(points) {
        return None;
    }
    // About a fiftieth of the points counts on either side.
    let keep = 1.0 - 1.0 / (points.len() as f64 / 50.0).max(2.0);
    let before = running(points.iter(), keep);
    let after = running(points.iter().rev(), keep);
    let sides = before.iter().zip(after.iter().rev());
    let course = points.iter().zip(sides).map(|((step, value), (before, after))| {
        // Both sides hold the point itself.
        let (sum, weight) = (before.0 + after.0 - value, before.1 + after.1 - 1.0);
        (*step, sum / weight)
    });
    Some(course.collect())
}

/// At every point, the sum of the values so far and of their weights, which fade.
fn running<'a>(points: impl Iterator<Item = &'a Point>, keep: f64) -> Vec<(f64, f64)> {
    let fade = |held: &mut (f64, f64), (_, value): &Point| {
        *held = (keep * held.0 + value, keep * held.1 + 1.0);
        Some(*held)
    };
    points.scan((0.0, 0.0), fade).collect()
}

/// A curve without noise goes up and down a few times at most.
fn is_smooth(points: &[Point]) -> bool {
    let (low, high) = points
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), (_, value)| (value.min(low), value.max(high)));
    let way: f64 = points.windows(2).map(|pair| (pair[1].1 - pair[0].1).abs()).sum();
    way <= 4.0 * (high - low)
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
    fn smoothing_follows_the_middle_without_a_lag() {
        let ramp = |slope: f64| -> Vec<Point> {
            wave(1000).iter().map(|(step, value)| (*step, value + slope * step)).collect()
        };
        for slope in [0.0, 0.05] {
            let smooth = smoothed(&ramp(slope)).unwrap();
            assert_eq!(smooth.len(), 1000);
            let middle = &smooth[200..800];
            assert!(middle.iter().all(|(step, value)| (value - 5.0 - slope * step).abs() < 0.05));
        }
        let ends = smoothed(&ramp(0.0)).unwrap();
        assert!((ends[0].1 - 5.0).abs() < 0.1 && (ends[999].1 - 5.0).abs() < 0.1);
    }

    #[test]
    fn what_is_few_or_smooth_stays_as_it_is() {
        assert_eq!(smoothed(&wave(ROUGH - 1)), None);
        assert!(smoothed(&wave(ROUGH)).is_some());
        let hill: Vec<Point> = (0..500).map(|at| (at as f64, (at as f64 / 159.0).sin())).collect();
        assert_eq!(smoothed(&hill), None);
        assert_eq!(smoothed(&vec![(1.0, 2.0); 100]), None);
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
