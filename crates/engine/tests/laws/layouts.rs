//! Every layout gives the answer of one device, for every family.

use comm::{Axis, Group, Mesh, MeshShape};
use nn::Schedule;
use parallel::Sharded;
use testkit::parity::{Bounds, compare};

use crate::asked::{Asked, all};

/// Sums over ranks associate differently from sums over all tokens; this is what that may cost of the norm
/// of a layer's gradient. The worst is a text of padding alone, whose gradients nearly cancel.
const SUMS: Bounds = Bounds::sums(2e-5);

/// Where scores or channels are summed by ranks, predictions are too.
const ROUNDING: Bounds = Bounds { tokens: 1e-5, parameters: 4e-5 };

/// Degrees along tensor, Ulysses and ring.
#[track_caller]
fn check(degrees: [usize; 3], bounds: Bounds) {
    let axes = [Axis::Tensor, Axis::Ulysses, Axis::Ring];
    let shape = axes
        .into_iter()
        .zip(degrees)
        .fold(MeshShape::default(), |shape, (axis, degree)| shape.with(axis, degree));
    let ranks = shape.size().unwrap();
    for Asked { name, family, question } in all() {
        let layout = |group: &Group| -> Box<dyn Schedule> {
            let mesh = Mesh::of(group.clone(), shape).unwrap();
            Box::new(Sharded::over(&mesh, family.splits))
        };
        // What all ranks owe to a text that they all hold is a sum over ranks.
        let bounds = if name.starts_with("joint") { bounds.max(ROUNDING) } else { bounds };
        let found = compare(&question, ranks, bounds, layout);
        found.unwrap_or_else(|err| panic!("{name} at {degrees:?}: {err}"));
    }
}

#[test]
fn ulysses_equals_one_device() {
    [[1, 2, 1], [1, 3, 1], [1, 4, 1]].into_iter().for_each(|degrees| check(degrees, SUMS));
}

#[test]
fn ring_equals_one_device() {
    [[1, 1, 2], [1, 1, 3]].into_iter().for_each(|degrees| check(degrees, ROUNDING));
}

#[test]
fn tensor_equals_one_device() {
    [[2, 1, 1], [3, 1, 1]].into_iter().for_each(|degrees| check(degrees, ROUNDING));
}

#[test]
fn their_hybrids_equal_one_device() {
    [[1, 2, 2], [2, 2, 1], [2, 1, 2], [2, 2, 2], [3, 2, 1]]
        .into_iter()
        .for_each(|degrees| check(degrees, ROUNDING));
}
