//! Masks are addressed by the global index of tokens and heads, whatever part a rank holds.

use burn::tensor::Tensor;
use comm::on_ranks;
use nn::{Attention, Plain, Qkv, Reach, Site};
use parallel::{Ulysses, share};
use testkit::numbers::{bits, tensor};

const BATCH: usize = 2;
const HEADS: usize = 4;
const WIDTH: usize = 3;

/// Attends with a mask of the given shape, whole and on `ranks` ranks.
fn check(ranks: usize, reach: Reach, [tokens, keys]: [usize; 2], mask: [usize; 4]) {
    let site = Site { layer: 0, name: "masked" };
    let mask: Tensor<4> = tensor("mask", mask) * 3.0;
    let q: Tensor<4> = tensor("q", [BATCH, tokens, HEADS, WIDTH]);
    let [k, v] = ["k", "v"].map(|name| tensor::<4>(name, [BATCH, keys, HEADS, WIDTH]));
    let whole = Qkv { q, k, v };
    let want =
        Plain.attend(site, whole.clone(), reach, Some(&mask)).expect("the plain kernel attends");
    let parts = on_ranks(ranks, |group| {
        let range = share(tokens, group.rank(), ranks);
        let own = |x: &Tensor<4>| x.clone().narrow(1, range.start, range.len());
        let keys = |x: &Tensor<4>| if reach == Reach::Own { own(x) } else { x.clone() };
        let qkv = Qkv { q: own(&whole.q), k: keys(&whole.k), v: keys(&whole.v) };
        let mut ulysses = Ulysses { group, inner: Plain };
        ulysses.attend(site, qkv, reach, Some(&mask)).expect("Ulysses attends")
    });
    assert_eq!(bits(&Tensor::cat(parts, 1)), bits(&want));
}

#[test]
fn of_self_attention() {
    for ranks in [1, 2, 4] {
        for mask in [[1, 1, 1, 7], [BATCH, 1, 7, 7], [1, HEADS, 7, 7], [BATCH, HEADS, 1, 7]] {
            check(ranks, Reach::Own, [7, 7], mask);
        }
    }
}

#[test]
fn of_cross_attention() {
    for ranks in [1, 2, 4] {
        for mask in [[BATCH, 1, 1, 5], [1, 1, 7, 5], [BATCH, HEADS, 7, 5]] {
            check(ranks, Reach::Replicated, [7, 5], mask);
        }
    }
}
