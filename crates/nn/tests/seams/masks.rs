//! Structured masks are the dense ones, forward and backward, at any size.

use burn::tensor::{Device, Tensor, TensorData};
use nn::{Attention, Mask, Plain, Qkv, Reach, Site, TrackName};
use testkit::numbers::{tensor, values};

const SITE: Site = Site { layer: 0, name: "masked", track: TrackName::Video };
const HEADS: usize = 2;
const WIDTH: usize = 5;

/// The scores of keys that are not seen.
const NEVER: f32 = -1e30;

/// The answer to `[B, T]` queries over `S` keys, and the gradients of queries, keys and values.
fn slope([batch, queries, keys]: [usize; 3], reach: Reach, mask: &Mask) -> [Vec<f32>; 4] {
    let leaf = |name: &str, tokens| {
        let x: Tensor<4> = tensor(name, [batch, tokens, HEADS, WIDTH]);
        Tensor::from_inner(x).require_grad()
    };
    let (q, k, v) = (leaf("q", queries), leaf("k", keys), leaf("v", keys));
    let qkv = Qkv { q: q.clone(), k: k.clone(), v: v.clone() };
    let out = Plain.attend(SITE, qkv, reach, Some(mask)).expect("the mask fits");
    let weight = Tensor::from_inner(tensor("weight", out.dims()));
    let graph = kernels::sum(out.clone() * weight).backward();
    let gradient = |x: &Tensor<4>| values(&x.grad(&graph).expect("a gradient"));
    [values(&out), gradient(&q), gradient(&k), gradient(&v)]
}

/// A dense mask by a rule on (sample, query, key).
fn dense(sizes: [usize; 3], sees: impl Fn(usize, usize, usize) -> bool) -> Mask {
    let [batch, queries, keys] = sizes;
    let at = |index: usize| (index / keys / queries, index / keys % queries, index % keys);
    let score = |index: usize| {
        let (sample, query, key) = at(index);
        if sees(sample, query, key) { 0.0 } else { NEVER }
    };
    let scores: Vec<f32> = (0..batch * queries * keys).map(score).collect();
    let shape = [batch, 1, queries, keys];
    Mask::Dense(Tensor::from_data(TensorData::new(scores, shape), &Device::flex()))
}

#[track_caller]
fn same(sizes: [usize; 3], reach: Reach, mask: &Mask, oracle: &Mask) {
    let (ours, wanted) = (slope(sizes, reach, mask), slope(sizes, reach, oracle));
    for (what, (ours, wanted)) in ["answer", "q", "k", "v"].iter().zip(ours.iter().zip(&wanted)) {
        let off = ours.iter().zip(wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(off < 1e-5, "{mask:?} at {sizes:?}: {what} is off by {off}");
    }
}

#[test]
fn causal_by_frame() {
    for (tokens, all) in [(3, 9), (3, 10), (4, 3), (1, 5), (7, 150)] {
        let sizes = [2, all, all];
        let oracle = dense(sizes, |_, query, key| key / tokens <= query / tokens);
        same(sizes, Reach::Own, &Mask::CausalFrames { tokens }, &oracle);
    }
}

#[test]
fn lengths_of_samples() {
    for (lengths, reach, [queries, keys]) in [
        (vec![4, 1, 7], Reach::Own, [7, 7]),
        (vec![5, 3], Reach::Replicated, [7, 5]),
        (vec![130, 1], Reach::Sharded, [3, 130]),
    ] {
        let sizes = [lengths.len(), queries, keys];
        let oracle = dense(sizes, |sample, _, key| key < lengths[sample]);
        same(sizes, reach, &Mask::Lengths(lengths.clone()), &oracle);
    }
}

#[test]
fn blocks() {
    for (size, [queries, keys], visible) in [
        (3, [9, 9], vec![vec![0, 2], vec![1], vec![0, 1, 2]]),
        (4, [9, 9], vec![vec![2], vec![0, 2], vec![0, 1]]),
        (4, [7, 5], vec![vec![1], vec![0, 1]]),
        (50, [70, 130], vec![vec![0, 2], vec![1]]),
    ] {
        let sizes = [2, queries, keys];
        let sees = |_, query: usize, key: usize| visible[query / size].contains(&(key / size));
        let oracle = dense(sizes, sees);
        same(sizes, Reach::Sharded, &Mask::Blocks { size, visible: visible.clone() }, &oracle);
    }
}

#[test]
fn masks_that_do_not_fit_are_refused_by_name() {
    let qkv = |queries, keys| {
        let [k, v] = ["k", "v"].map(|name| tensor(name, [2, keys, HEADS, WIDTH]));
        Qkv { q: tensor("q", [2, queries, HEADS, WIDTH]), k, v }
    };
    let blocks = |size, visible: &[&[usize]]| Mask::Blocks {
        size,
        visible: visible.iter().map(|seen| seen.to_vec()).collect(),
    };
    let refused = [
        (Mask::Dense(tensor("mask", [2, 1, 6, 5])), "its shape is [2, 1, 6, 5]"),
        (Mask::Dense(tensor("mask", [1, 1, 1, 1])), "its shape is [1, 1, 1, 1]"),
        (Mask::CausalFrames { tokens: 3 }, "self-attention over frames of 3 tokens"),
        (Mask::Lengths(vec![5]), "it has 1 lengths"),
        (Mask::Lengths(vec![5, 0]), "each of which is at least 1"),
        (Mask::Lengths(vec![5, 6]), "it has 2 lengths"),
        (blocks(0, &[&[0]]), "blocks of 0 queries"),
        (blocks(4, &[&[0]]), "it has 1 blocks of 4 queries"),
        (blocks(4, &[&[0], &[]]), "each of which sees some keys"),
        (blocks(4, &[&[0], &[1, 0]]), "in rising order"),
        (blocks(4, &[&[0], &[2]]), "it has 2 blocks"),
    ];
    for (mask, words) in refused {
        let error = Plain.attend(SITE, qkv(7, 5), Reach::Sharded, Some(&mask)).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("the plain kernel cannot serve `masked` of block 0"), "{error}");
        assert!(error.contains(mask.name()) && error.contains(words), "{error}");
    }
}
