//! Ring attention, alone and with Ulysses: the answers and gradients of one device, within rounding.

use burn::tensor::Tensor;
use comm::{Axis, Mesh, MeshShape, on_ranks, share};
use nn::{Attention, Mask, Plain, Qkv, Reach, Schedule, Site, TrackName};
use parallel::{Sharded, Spread};
use testkit::numbers::{tensor, values};
use testkit::parity::{Bounds, check};

use super::toy;

const SITE: Site = Site { layer: 0, name: "ring", track: TrackName::Video };

/// Sums over blocks of keys associate differently from sums over all of them.
const ROUNDING: Bounds = Bounds::within(1e-5);

fn hybrid(ulysses: usize, ring: usize) -> impl Fn(&comm::Group) -> Box<dyn Schedule> + Sync {
    move |group| {
        let shape = MeshShape::default().with(Axis::Ulysses, ulysses).with(Axis::Ring, ring);
        let mesh = Mesh::of(group.clone(), shape).unwrap();
        Box::new(Sharded::over(&mesh, &[]))
    }
}

#[test]
fn on_any_number_of_ranks() {
    for (ranks, tokens) in [(1, 8), (2, 8), (2, 13), (3, 13), (4, 5), (3, 331)] {
        check(&toy(2, tokens), ranks, ROUNDING, |group| Box::new(Sharded::ring(group)));
    }
}

#[test]
fn with_ulysses_inside() {
    for (ulysses, ring, tokens) in [(2, 2, 13), (3, 2, 17), (2, 3, 20), (4, 2, 23)] {
        check(&toy(2, tokens), ulysses * ring, ROUNDING, hybrid(ulysses, ring));
    }
}

/// Uneven heads: four of them on three ranks.
#[test]
fn ulysses_shares_heads_that_do_not_divide() {
    for (ranks, tokens) in [(3, 13), (3, 9)] {
        check(&toy(2, tokens), ranks, Bounds::sums(1e-6), |group| {
            Box::new(Sharded::ulysses(group))
        });
    }
}

/// Attends with a mask, whole and on a mesh.
fn masked([ulysses, ring]: [usize; 2], reach: Reach, [tokens, keys]: [usize; 2], mask: &Mask) {
    let q: Tensor<4> = tensor("q", [2, tokens, 4, 3]);
    let [k, v] = ["k", "v"].map(|name| tensor::<4>(name, [2, keys, 4, 3]));
    let whole = Qkv { q, k, v };
    let want = Plain.attend(SITE, whole.clone(), reach, Some(mask)).unwrap();
    let parts = on_ranks(ulysses * ring, |group| {
        let shape = MeshShape::default().with(Axis::Ulysses, ulysses).with(Axis::Ring, ring);
        let mesh = Mesh::of(group, shape).unwrap();
        let own = |x: &Tensor<4>| {
            let range = share(x.dims()[1], mesh.sequence().rank(), mesh.sequence().size());
            x.clone().narrow(1, range.start, range.len())
        };
        let qkv = Qkv { q: own(&whole.q), k: own(&whole.k), v: own(&whole.v) };
        Spread::over(&mesh).attend(SITE, qkv, reach, Some(mask)).unwrap()
    });
    let got = values(&Tensor::cat(parts, 1));
    for (got, want) in got.iter().zip(values(&want)) {
        assert!((got - want).abs() < 1e-5, "{mask:?}: {got} instead of {want}");
    }
}

#[test]
fn masks_are_addressed_by_the_global_index() {
    let dense = |shape| Mask::Dense(tensor::<4>("mask", shape) * 3.0);
    let blocks = |visible: &[&[usize]]| Mask::Blocks {
        size: 3,
        visible: visible.iter().map(|seen| seen.to_vec()).collect(),
    };
    for mesh in [[1, 2], [1, 3], [2, 2], [2, 3]] {
        for shape in [[1, 1, 1, 7], [2, 1, 7, 7], [1, 4, 7, 7], [2, 4, 1, 7]] {
            masked(mesh, Reach::Own, [7, 7], &dense(shape));
        }
        for shape in [[2, 1, 1, 9], [1, 1, 7, 9], [2, 4, 7, 9]] {
            masked(mesh, Reach::Sharded, [7, 9], &dense(shape));
        }
        masked(mesh, Reach::Own, [7, 7], &Mask::CausalFrames { tokens: 3 });
        masked(mesh, Reach::Own, [7, 7], &Mask::Lengths(vec![2, 7]));
        masked(mesh, Reach::Own, [7, 7], &blocks(&[&[0, 2], &[1], &[0, 1, 2]]));
        masked(mesh, Reach::Sharded, [7, 9], &blocks(&[&[1], &[0], &[0, 2]]));
    }
}

/// A query that sees nothing on any rank finds zeros, as it does in the kernel.
#[test]
fn a_query_that_sees_nothing_finds_nothing() {
    let mut hidden = [0.0; 49];
    hidden[14..21].fill(f32::NEG_INFINITY);
    let mask = Tensor::<1>::from_floats(&hidden[..], &burn::tensor::Device::flex());
    masked([1, 3], Reach::Own, [7, 7], &Mask::Dense(mask.reshape([1, 1, 7, 7])));
}

/// Keys and values travel while a block is looked at, and nothing else does: `2 p h (N - 1) / N` elements.
#[test]
fn traffic_is_what_a_ring_costs() {
    for ranks in [2, 4] {
        let bytes = on_ranks(ranks, |group| {
            let own = || tensor::<4>("x", [1, 8 / ranks, 4, 3]);
            let qkv = Qkv { q: own(), k: own(), v: own() };
            let mut ring = Spread::ring(&group);
            ring.attend(SITE, qkv, Reach::Own, None).unwrap();
            group.traffic().bytes
        });
        let elements = 2 * 8 * 12 * (ranks - 1) / ranks;
        assert_eq!(bytes, vec![4 * elements as u64; ranks]);
        let bytes = on_ranks(ranks, |group| {
            let own = || tensor::<4>("x", [1, 8 / ranks, 4, 3]);
            let qkv = Qkv { q: own(), k: own(), v: own() };
            Spread::ulysses(&group).attend(SITE, qkv, Reach::Own, None).unwrap();
            group.traffic().bytes
        });
        let elements = 4 * (8 / ranks) * 12 * (ranks - 1) / ranks;
        assert_eq!(bytes, vec![4 * elements as u64; ranks]);
    }
}
