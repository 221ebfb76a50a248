//! Where something goes, from where it is in each frame.

use super::super::moving_shape::Direction;
use super::locate::median;

/// How slow and how fast a motion may be, relative to the slowest and the fastest of the world.
const SPEED: [f64; 2] = [0.5, 1.6];
/// The most motion across, as a share of that along.
const ACROSS: f64 = 0.35;
/// The share of steps that must go the same way, and of frames that must be where they should.
const STEADY: f64 = 0.7;
/// How far a frame may be from where it should be: so many of its steps.
const ASTRAY: f64 = 0.75;

/// Pixels per frame on both axes: the median slope over all pairs of frames, so that a frame in which
/// the shape was lost does not matter.
pub(super) fn velocity(centres: &[[f64; 2]]) -> [f64; 2] {
    [0, 1].map(|axis| {
        let pairs =
            (0..centres.len()).flat_map(|from| (from + 1..centres.len()).map(move |to| (from, to)));
        median(
            pairs.map(|(from, to)| (centres[to][axis] - centres[from][axis]) / (to - from) as f64),
        )
    })
}

/// The direction, if the motion is straight, steady and about as fast as the world's.
pub(super) fn direction(centres: &[[f64; 2]], speed: [f64; 2]) -> Option<Direction> {
    let velocity = velocity(centres);
    let along = |direction: Direction| {
        let step = direction.step();
        velocity[0] * step[0] + velocity[1] * step[1]
    };
    let best = Direction::ALL.into_iter().max_by(|a, b| along(*a).total_cmp(&along(*b)))?;
    let step = best.step();
    let across = (velocity[0] * step[1]).abs() + (velocity[1] * step[0]).abs();
    let forward = centres.windows(2).filter(|pair| {
        let moved: f64 = (0..2).map(|axis| (pair[1][axis] - pair[0][axis]) * step[axis]).sum();
        moved > 0.25 * along(best)
    });
    let on_course = centres.len() - strayed(centres, velocity, ASTRAY * along(best));
    let is_certain = (SPEED[0] * speed[0]..=SPEED[1] * speed[1]).contains(&along(best))
        && across <= ACROSS * along(best)
        && forward.count() as f64 >= STEADY * (centres.len() - 1) as f64
        && on_course as f64 >= STEADY * centres.len() as f64;
    is_certain.then_some(best)
}

/// How many frames are further than `reach` from the straight line of the motion.
fn strayed(centres: &[[f64; 2]], velocity: [f64; 2], reach: f64) -> usize {
    let offset = |axis: usize| {
        let offsets = centres.iter().enumerate();
        offsets.map(move |(frame, centre)| centre[axis] - velocity[axis] * frame as f64)
    };
    let start = [median(offset(0)), median(offset(1))];
    let away = offset(0).zip(offset(1)).map(|(x, y)| (x - start[0]).hypot(y - start[1]));
    away.filter(|distance| *distance > reach).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(frames: usize, at: impl Fn(f64) -> [f64; 2]) -> Vec<[f64; 2]> {
        (0..frames).map(|frame| at(frame as f64)).collect()
    }

    #[test]
    fn a_straight_way_has_a_direction() {
        let ways = [[-2.0, 0.1], [2.0, -0.3], [0.2, -2.0], [0.0, 2.0]];
        for (way, expected) in ways.into_iter().zip(Direction::ALL) {
            let centres = path(7, |frame| [10.0 + way[0] * frame, 12.0 + way[1] * frame]);
            assert_eq!(direction(&centres, [2.0, 2.0]), Some(expected));
        }
    }

    #[test]
    fn a_lost_frame_does_not_matter() {
        let mut centres = path(8, |frame| [4.0 + 2.0 * frame, 16.0]);
        centres[3] = [30.0, 2.0];
        assert_eq!(direction(&centres, [2.0, 2.0]), Some(Direction::Right));
    }

    #[test]
    fn rest_diagonals_rushes_and_swings_have_none() {
        let still = path(8, |_| [16.0, 16.0]);
        let slow = path(8, |frame| [16.0 + 0.6 * frame, 16.0]);
        let diagonal = path(8, |frame| [8.0 + 1.6 * frame, 8.0 + 1.6 * frame]);
        let rush = path(4, |frame| [4.0 + 6.0 * frame, 16.0]);
        let swing = path(9, |frame| [10.0 + if frame % 2.0 == 0.0 { 4.0 } else { 0.0 }, 16.0]);
        let jump = path(8, |frame| [if frame < 4.0 { 6.0 } else { 20.0 }, 16.0]);
        for centres in [still, slow, diagonal, rush, swing, jump] {
            assert_eq!(direction(&centres, [2.0, 2.0]), None, "{centres:?}");
        }
    }
}
