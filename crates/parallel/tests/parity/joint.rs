//! Joint attention with text: every rank holds the text, and it counts once.

use burn::tensor::Tensor;
use comm::{Axis, Mesh, MeshShape, on_ranks, share};
use nn::{Attention, Mask, Plain, Qkv, Reach, Site, TrackName};
use parallel::Spread;
use testkit::numbers::{bits, tensor, values};

const SITE: Site = Site { layer: 1, name: "joint", track: TrackName::Video };

/// Text of odd length, an odd number of tokens and of heads.
const TEXT: usize = 5;
const TOKENS: usize = 11;
const HEADS: usize = 3;

/// What attention answers, and what it owes to its inputs for a fixed gradient of the answer.
struct Answer {
    text: Tensor<4>,
    tokens: Tensor<4>,
    /// Gradients of the text's and of the tokens' queries, keys and values.
    owed: [[Tensor<4>; 2]; 3],
}

fn cut(x: &Tensor<4>) -> [Tensor<4>; 2] {
    let all = x.dims()[1];
    [x.clone().slice_dim(1, 0..TEXT), x.clone().slice_dim(1, TEXT..all)]
}

/// Attends to `[text, own tokens]` in a graph; `share` is how much of the text's gradient is this rank's.
fn answer(
    attention: &mut dyn Attention,
    qkv: [Tensor<4>; 3],
    mask: Option<&Mask>,
    own: Own,
) -> Answer {
    let leaves = qkv.map(|x| Tensor::from_inner(x).require_grad());
    let [q, k, v] = leaves.clone();
    let out = attention.attend(SITE, Qkv { q, k, v }, Reach::Joint { text: TEXT }, mask).unwrap();
    let weight: Tensor<4> = tensor("weight", [2, TEXT + TOKENS, HEADS, 4]);
    let [of_text, of_tokens] = cut(&weight);
    let of_tokens = of_tokens.narrow(1, own.start, own.count);
    let weight = Tensor::cat(vec![of_text * own.share, of_tokens], 1);
    let graph = (out.clone() * Tensor::from_inner(weight)).sum().backward();
    let owed = leaves.map(|leaf| cut(&leaf.grad(&graph).unwrap()));
    let [text, tokens] = cut(&out.inner());
    Answer { text, tokens, owed }
}

/// The tokens of a rank, and its share of what is owed to the answer to the text.
struct Own {
    start: usize,
    count: usize,
    share: f32,
}

fn close(what: &str, got: &Tensor<4>, want: &Tensor<4>) {
    assert_eq!(got.dims(), want.dims(), "{what}");
    let (got, want) = (values(got), values(want));
    let off = got.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(off < 2e-5, "{what} is off by {off}");
}

#[track_caller]
fn check([ulysses, ring]: [usize; 2], mask: Option<&Mask>) {
    let qkv = ["q", "k", "v"].map(|name| tensor::<4>(name, [2, TEXT + TOKENS, HEADS, 4]));
    let all = Own { start: 0, count: TOKENS, share: 1.0 };
    let want = answer(&mut Plain, qkv.clone(), mask, all);
    let ranks = ulysses * ring;
    let parts = on_ranks(ranks, |group| {
        let shape = MeshShape::default().with(Axis::Ulysses, ulysses).with(Axis::Ring, ring);
        let mesh = Mesh::of(group, shape).unwrap();
        let range = share(TOKENS, mesh.sequence().rank(), ranks);
        let own = qkv.clone().map(|x| {
            let [text, tokens] = cut(&x);
            Tensor::cat(vec![text, tokens.narrow(1, range.start, range.len())], 1)
        });
        // What is owed to a replicated answer is found in parts, which add up.
        let share = (1.0 + mesh.sequence().rank() as f32) * 2.0 / (ranks * (ranks + 1)) as f32;
        let own_part = Own { start: range.start, count: range.len(), share };
        answer(&mut Spread::over(&mesh), own, mask, own_part)
    });
    for part in &parts {
        close("the answer to the text", &part.text, &want.text);
        assert_eq!(bits(&part.text), bits(&parts[0].text), "every rank holds the same text");
    }
    let join = |of: &dyn Fn(&Answer) -> Tensor<4>| Tensor::cat(parts.iter().map(of).collect(), 1);
    close("the answer to the tokens", &join(&|part| part.tokens.clone()), &want.tokens);
    for which in 0..3 {
        let text = parts.iter().map(|part| part.owed[which][0].clone());
        let text = text.reduce(|sum, more| sum + more).unwrap();
        close("what is owed to the text", &text, &want.owed[which][0]);
        let tokens = join(&|part| part.owed[which][1].clone());
        close("what is owed to the tokens", &tokens, &want.owed[which][1]);
    }
}

#[test]
fn by_ulysses_by_a_ring_and_by_both() {
    for mesh in [[1, 1], [2, 1], [3, 1], [1, 2], [1, 3], [2, 2], [3, 2], [2, 4]] {
        check(mesh, None);
    }
}

/// Padding of the text is hidden from all queries, wherever they are.
#[test]
fn with_padding_that_nobody_sees() {
    let mut hidden = [0.0; 2 * (TEXT + TOKENS)];
    hidden[TEXT - 2..TEXT].fill(f32::NEG_INFINITY);
    let mask = Tensor::<1>::from_floats(&hidden[..], &burn::tensor::Device::flex());
    let mask = Mask::Dense(mask.reshape([2, 1, 1, TEXT + TOKENS]));
    let whole = Mask::Dense(tensor::<4>("mask", [1, HEADS, TEXT + TOKENS, TEXT + TOKENS]) * 2.0);
    for mesh in [[1, 1], [2, 1], [1, 2], [1, 3], [2, 2]] {
        check(mesh, Some(&mask));
        check(mesh, Some(&whole));
    }
}
