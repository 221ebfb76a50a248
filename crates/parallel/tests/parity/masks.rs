//! Masks are addressed by the global index of tokens and heads, whatever part a rank holds.

use burn::tensor::Tensor;
use comm::{on_ranks, share};
use nn::{Attention, Mask, Plain, Qkv, Reach, Site, TrackName};
use parallel::Spread;
use testkit::numbers::{bits, tensor};

const BATCH: usize = 2;
const HEADS: usize = 4;
const WIDTH: usize = 3;

const SITE: Site = Site { layer: 0, name: "masked", track: TrackName::Video };

fn dense(shape: [usize; 4]) -> Mask {
    Mask::Dense(tensor("mask", shape) * 3.0)
}

/// Attends with a mask, whole and on `ranks` ranks.
fn check(ranks: usize, reach: Reach, [tokens, keys]: [usize; 2], mask: &Mask) {
    let site = SITE;
    let q: Tensor<4> = tensor("q", [BATCH, tokens, HEADS, WIDTH]);
    let [k, v] = ["k", "v"].map(|name| tensor::<4>(name, [BATCH, keys, HEADS, WIDTH]));
    let whole = Qkv { q, k, v };
    let want =
        Plain.attend(site, whole.clone(), reach, Some(mask)).expect("the plain kernel attends");
    let parts = on_ranks(ranks, |group| {
        let own = |x: &Tensor<4>| {
            let range = share(x.dims()[1], group.rank(), ranks);
            x.clone().narrow(1, range.start, range.len())
        };
        let keys = |x: &Tensor<4>| if reach == Reach::Replicated { x.clone() } else { own(x) };
        let qkv = Qkv { q: own(&whole.q), k: keys(&whole.k), v: keys(&whole.v) };
        let mut ulysses = Spread::ulysses(&group);
        ulysses.attend(site, qkv, reach, Some(mask)).expect("Ulysses attends")
    });
    assert_eq!(bits(&Tensor::cat(parts, 1)), bits(&want));
}

#[test]
fn of_self_attention() {
    for ranks in [1, 2, 4] {
        for mask in [[1, 1, 1, 7], [BATCH, 1, 7, 7], [1, HEADS, 7, 7], [BATCH, HEADS, 1, 7]] {
            check(ranks, Reach::Own, [7, 7], &dense(mask));
        }
    }
}

#[test]
fn of_cross_attention() {
    for ranks in [1, 2, 4] {
        for mask in [[BATCH, 1, 1, 5], [1, 1, 7, 5], [BATCH, HEADS, 7, 5]] {
            check(ranks, Reach::Replicated, [7, 5], &dense(mask));
        }
    }
}

#[test]
fn of_attention_to_another_stream() {
    for ranks in [1, 2, 4] {
        for mask in [[BATCH, 1, 1, 5], [1, 1, 7, 5], [BATCH, HEADS, 7, 5]] {
            check(ranks, Reach::Sharded, [7, 5], &dense(mask));
        }
    }
}

/// Between its exchanges all tokens are there, so a structured mask means what it means on one device.
#[test]
fn structured() {
    let blocks = |visible: &[&[usize]]| Mask::Blocks {
        size: 3,
        visible: visible.iter().map(|seen| seen.to_vec()).collect(),
    };
    for ranks in [1, 2, 4] {
        check(ranks, Reach::Own, [7, 7], &Mask::CausalFrames { tokens: 3 });
        check(ranks, Reach::Own, [7, 7], &Mask::Lengths(vec![5, 7]));
        check(ranks, Reach::Own, [7, 7], &blocks(&[&[0, 2], &[1], &[0, 1, 2]]));
        check(ranks, Reach::Sharded, [7, 5], &blocks(&[&[1], &[0], &[0, 1]]));
        check(ranks, Reach::Sharded, [7, 5], &Mask::Lengths(vec![2, 5]));
        check(ranks, Reach::Replicated, [7, 5], &Mask::Lengths(vec![2, 5]));
    }
}

#[test]
fn what_cannot_be_cut_to_a_shard_is_refused() {
    let masks = [
        (Mask::CausalFrames { tokens: 3 }, "a mask causal by frame"),
        (Mask::Blocks { size: 4, visible: vec![vec![0], vec![0]] }, "a block-sparse mask"),
    ];
    for (mask, name) in masks {
        let errors = on_ranks(2, |group| {
            let x: Tensor<4> = tensor("x", [1, 4, HEADS, WIDTH]);
            let qkv = Qkv { q: x.clone(), k: x.clone(), v: x };
            let mut ulysses = Spread::ulysses(&group);
            let refused = ulysses.attend(SITE, qkv, Reach::Replicated, Some(&mask));
            refused.unwrap_err().to_string()
        });
        for error in errors {
            let want = format!("{name} cannot be cut to a shard of the queries");
            assert!(error.ends_with(&want), "{error}");
        }
    }
}
