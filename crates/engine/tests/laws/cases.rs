//! Layouts that whole requests are made by, on threads and on processes.

use comm::{Axis, MeshShape};
use parallel::Layout;

/// How far from one device a layout may be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Law {
    /// Not at all.
    Bits,
    /// So far as sums of another order differ: 1e-5 of the latents' norm.
    Rounding,
    /// Not at all from one device that looks at keys as old as these patches have.
    StaleBits,
    /// The same, with sums of another order.
    StaleRounding,
}

/// Degrees along tensor, Ulysses, ring, pipeline, cfg and data; patches, warm-up; the law.
pub(crate) type Case = ([usize; 6], Option<usize>, Option<usize>, Law);

/// The layout of a case.
pub(crate) fn layout((degrees, patches, warmup, _): Case) -> Layout {
    let mesh = Axis::ALL
        .into_iter()
        .zip(degrees)
        .fold(MeshShape::default(), |mesh, (axis, degree)| mesh.with(axis, degree));
    let pipeline = parallel::Pipeline { patches, warmup, stages: None };
    Layout { pipeline, ..Layout::new(mesh.size().unwrap(), mesh) }
}

/// Axes that share a prediction, one at a time; the others are below.
pub(crate) const ALONE: [Case; 6] = [
    ([1, 2, 1, 1, 1, 1], None, None, Law::Bits),
    ([1, 5, 1, 1, 1, 1], None, None, Law::Bits),
    ([1, 1, 2, 1, 1, 1], None, None, Law::Rounding),
    ([1, 1, 3, 1, 1, 1], None, None, Law::Rounding),
    ([2, 1, 1, 1, 1, 1], None, None, Law::Rounding),
    ([3, 1, 1, 1, 1, 1], None, None, Law::Rounding),
];

/// Axes that share nothing within a prediction.
pub(crate) const REPLICAS_AND_BRANCHES: [Case; 4] = [
    ([1, 1, 1, 1, 1, 2], None, None, Law::Bits),
    ([1, 1, 1, 1, 1, 3], None, None, Law::Bits),
    ([1, 1, 1, 1, 2, 1], None, None, Law::Bits),
    ([1, 1, 1, 1, 2, 2], None, None, Law::Bits),
];

/// Axes that share a prediction.
pub(crate) const SEQUENCES_AND_MATRICES: [Case; 4] = [
    ([1, 3, 1, 1, 2, 1], None, None, Law::Bits),
    ([1, 2, 2, 1, 1, 1], None, None, Law::Rounding),
    ([2, 1, 1, 1, 2, 1], None, None, Law::Rounding),
    ([2, 2, 1, 1, 1, 2], None, None, Law::Rounding),
];

/// Stages where nothing is stale.
pub(crate) const WHOLE_SEQUENCES: [Case; 4] = [
    ([1, 1, 1, 2, 1, 1], None, Some(99), Law::Bits),
    ([1, 1, 1, 3, 2, 1], Some(2), Some(99), Law::Bits),
    ([1, 2, 1, 2, 1, 1], Some(3), Some(99), Law::Bits),
    ([1, 1, 1, 2, 1, 1], Some(1), Some(1), Law::Bits),
];

/// Stages whose patches look at keys that are a step old.
pub(crate) const PATCHES: [Case; 4] = [
    ([1, 1, 1, 2, 1, 1], Some(2), None, Law::StaleBits),
    ([1, 1, 1, 3, 1, 1], Some(3), Some(2), Law::StaleBits),
    ([1, 1, 1, 2, 1, 1], Some(3), Some(0), Law::StaleBits),
    ([1, 1, 1, 2, 2, 1], Some(3), None, Law::StaleBits),
];

/// The same beside other axes.
pub(crate) const PATCHES_AND_ELSE: [Case; 4] = [
    ([1, 2, 1, 2, 1, 1], Some(3), None, Law::StaleBits),
    ([1, 1, 2, 2, 1, 1], Some(2), None, Law::StaleRounding),
    ([2, 1, 1, 2, 1, 1], Some(2), None, Law::StaleRounding),
    ([1, 2, 1, 2, 2, 1], Some(2), None, Law::StaleBits),
];

/// Two and three axes at once, up to eight ranks.
pub(crate) const EXACT_HYBRIDS: [Case; 8] = [
    ([1, 2, 2, 1, 2, 1], None, None, Law::Rounding),
    ([2, 2, 1, 1, 2, 1], None, None, Law::Rounding),
    ([2, 1, 2, 1, 2, 1], None, None, Law::Rounding),
    ([2, 2, 2, 1, 1, 1], None, None, Law::Rounding),
    ([1, 2, 1, 1, 2, 2], None, None, Law::Bits),
    ([3, 1, 1, 1, 2, 1], None, None, Law::Rounding),
    ([3, 2, 1, 1, 1, 1], None, None, Law::Rounding),
    ([1, 1, 2, 1, 2, 2], None, None, Law::Rounding),
];

/// The same with patches that flow.
pub(crate) const PATCHED_HYBRIDS: [Case; 7] = [
    ([2, 1, 1, 2, 2, 1], Some(2), None, Law::StaleRounding),
    ([1, 1, 2, 2, 2, 1], Some(2), None, Law::StaleRounding),
    ([1, 2, 2, 2, 1, 1], Some(2), None, Law::StaleRounding),
    ([2, 2, 1, 2, 1, 1], Some(2), None, Law::StaleRounding),
    ([1, 1, 1, 2, 2, 2], Some(3), None, Law::StaleBits),
    ([1, 2, 1, 2, 1, 2], Some(2), None, Law::StaleBits),
    ([1, 1, 1, 3, 2, 1], Some(5), Some(2), Law::StaleBits),
];

/// Every pair of axes, with two ranks along each.
pub(crate) fn pairs() -> Vec<Case> {
    let mut pairs: Vec<Case> = Vec::new();
    for first in 0..Axis::ALL.len() {
        for second in first + 1..Axis::ALL.len() {
            let mut degrees = [1; Axis::ALL.len()];
            (degrees[first], degrees[second]) = (2, 2);
            let has = |axis: Axis| degrees[axis as usize] > 1;
            let rounds = has(Axis::Tensor) || has(Axis::Ring);
            let law = match (has(Axis::Pipeline), rounds) {
                (false, false) => Law::Bits,
                (false, true) => Law::Rounding,
                (true, false) => Law::StaleBits,
                (true, true) => Law::StaleRounding,
            };
            pairs.push((degrees, has(Axis::Pipeline).then_some(2), None, law));
        }
    }
    pairs
}

/// All of them by one number of ranks.
#[cfg(feature = "mpi")]
pub(crate) fn by(ranks: usize) -> Vec<Case> {
    let pairs = pairs();
    let all = [
        &ALONE[..],
        &REPLICAS_AND_BRANCHES,
        &SEQUENCES_AND_MATRICES,
        &WHOLE_SEQUENCES,
        &PATCHES,
        &PATCHES_AND_ELSE,
        &EXACT_HYBRIDS,
        &PATCHED_HYBRIDS,
        &pairs,
    ];
    all.concat().into_iter().filter(|case| layout(*case).ranks == ranks).collect()
}
