//! Which steps are taken by the whole sequence, and which patch by patch; which blocks are whose.

use std::ops::Range;

use comm::share;

/// Steps that are taken in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) steps: Range<usize>,
    /// Whether patches take them one after another, rather than all at once.
    pub(super) patched: bool,
}

/// The ways of all steps: the first ones at once, one at the least, and each at which another network takes
/// over: what is kept is of the network before.
pub(super) fn segments(
    steps: usize,
    warmup: usize,
    expert: impl Fn(usize) -> usize,
) -> Vec<Segment> {
    let mut all: Vec<Segment> = Vec::new();
    for step in 0..steps {
        let switches = step > 0 && expert(step) != expert(step - 1);
        let patched = step >= warmup.max(1) && !switches;
        match all.last_mut() {
            Some(last) if last.patched == patched => last.steps.end = step + 1,
            _ => all.push(Segment { steps: step..step + 1, patched }),
        }
    }
    all
}

/// The blocks of each stage: as many as are asked for, or as even as can be.
pub(crate) fn stages(depth: usize, count: usize, asked: Option<&[usize]>) -> Vec<Range<usize>> {
    match asked {
        None => (0..count).map(|stage| share(depth, stage, count)).collect(),
        Some(lengths) => {
            let ranges = lengths.iter().scan(0, |start, length| {
                *start += length;
                Some(*start - length..*start)
            });
            ranges.collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Segment, segments, stages};

    fn ways(steps: usize, warmup: usize, switch: usize) -> Vec<(std::ops::Range<usize>, bool)> {
        let all = segments(steps, warmup, |step| usize::from(step >= switch));
        all.into_iter().map(|Segment { steps, patched }| (steps, patched)).collect()
    }

    #[test]
    fn the_first_steps_and_switches_are_whole() {
        assert_eq!(ways(6, 2, 99), [(0..2, false), (2..6, true)]);
        // Nothing is kept before the first step, so it is whole whatever is asked for.
        assert_eq!(ways(3, 0, 99), [(0..1, false), (1..3, true)]);
        assert_eq!(ways(3, 3, 99), [(0..3, false)]);
        assert_eq!(ways(2, 5, 99), [(0..2, false)]);
        let switched = [(0..1, false), (1..4, true), (4..5, false), (5..7, true)];
        assert_eq!(ways(7, 1, 4), switched);
        assert_eq!(ways(4, 2, 1), [(0..2, false), (2..4, true)]);
    }

    #[test]
    fn every_block_has_a_stage() {
        assert_eq!(stages(7, 3, None), [0..3, 3..5, 5..7]);
        assert_eq!(stages(7, 3, Some(&[1, 5, 1])), [0..1, 1..6, 6..7]);
        assert_eq!(stages(2, 2, None), [0..1, 1..2]);
    }
}
