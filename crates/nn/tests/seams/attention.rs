//! The contract of attention: who is entered how often, and what each reach means.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use nn::{
    Attention, Mask, Parameters, Plain, Qkv, Reach, Recompute, Result, Site, TrackName, Weights,
    backward,
};
use testkit::contract::Watched;
use testkit::numbers::{bits, tensor, values};
use testkit::parity::{Question, all, loss};

use super::toy;

const SITE: Site = Site { layer: 1, name: "site", track: TrackName::Video };

/// Plain attention that remembers every answer.
#[derive(Default)]
struct Remembering(BTreeMap<Site, Vec<Vec<u32>>>);

impl Attention for Remembering {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        let out = Plain.attend(site, qkv, reach, mask)?;
        self.0.entry(site).or_default().push(bits(&out));
        Ok(out)
    }
}

/// A site is entered once going forward and once more where its block is run again, with the same answer.
/// FastVideo's `block_skip` is `full` under another name.
#[test]
fn a_site_is_entered_again_only_where_its_block_is_and_answers_the_same() {
    let Question { network, store, inputs } = toy(2, 5);
    let runs = |recompute| {
        let mut attention = Remembering::default();
        let parameters = Parameters { provider: &store, trainable: &all };
        let model = &*network;
        backward(model, parameters, &inputs, &mut attention, &mut loss, recompute).unwrap();
        let own = attention.0.iter().filter(|(site, _)| site.name == "own");
        let counts: Vec<usize> = own.map(|(_, answers)| answers.len()).collect();
        for (site, answers) in &attention.0 {
            assert!(answers.iter().all(|answer| *answer == answers[0]), "{site}");
        }
        counts
    };
    assert_eq!(runs(Recompute::Never), [1, 1, 1]);
    assert_eq!(runs(Recompute::PerBlock), [2, 2, 2]);
    assert_eq!(runs(Recompute::Keep(1)), [2, 2, 1]);
    assert_eq!(runs(Recompute::Keep(9)), [1, 1, 1]);
}

fn qkv(queries: usize, keys: usize) -> Qkv {
    let q = tensor("q", [2, queries, 3, 4]);
    let [k, v] = ["k", "v"].map(|name| tensor(name, [2, keys, 3, 4]));
    Qkv { q, k, v }
}

/// Text and a stream in one sequence: every query sees all of both, each key once.
#[test]
fn joint_is_one_sequence() {
    let whole = qkv(7, 7);
    let joint = Plain.attend(SITE, whole.clone(), Reach::Joint { text: 2 }, None).unwrap();
    let oracle = by_hand(&whole);
    for (ours, wanted) in values(&joint).into_iter().zip(oracle) {
        assert!((f64::from(ours) - wanted).abs() < 1e-6, "{ours} instead of {wanted}");
    }
}

/// Softmax attention in f64.
fn by_hand(Qkv { q, k, v }: &Qkv) -> Vec<f64> {
    let ([batch, queries, heads, width], [_, keys, _, _]) = (q.dims(), k.dims());
    let [q, k, v] = [q, k, v].map(|x| values(x).into_iter().map(f64::from).collect::<Vec<_>>());
    let row = |b, t, n, tokens: usize| ((b * tokens + t) * heads + n) * width;
    let mut out = Vec::new();
    for (b, t, n) in (0..batch * queries * heads)
        .map(|at| (at / heads / queries, at / heads % queries, at % heads))
    {
        let own = &q[row(b, t, n, queries)..][..width];
        let score = |s: usize| {
            let key = &k[row(b, s, n, keys)..][..width];
            own.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (width as f64).sqrt()
        };
        let weights: Vec<f64> = (0..keys).map(|s| score(s).exp()).collect();
        let total: f64 = weights.iter().sum();
        out.extend((0..width).map(|at| {
            let value = |s: usize| weights[s] * v[row(b, s, n, keys) + at];
            (0..keys).map(value).sum::<f64>() / total
        }));
    }
    out
}

#[test]
fn what_breaks_the_contract_is_refused_by_name() {
    let refused = |qkv: Qkv, reach| Plain.attend(SITE, qkv, reach, None).unwrap_err().to_string();
    let start = "the plain kernel cannot serve `site` of block 1: ";
    for (reach, words) in [
        (Reach::Own, "7 queries and 5 keys are not the same tokens; say `Sharded`"),
        (Reach::Joint { text: 2 }, "7 queries and 5 keys are not 2 of text and one stream"),
    ] {
        let error = refused(qkv(7, 5), reach);
        assert!(error.starts_with(start) && error.contains(words), "{error}");
    }
    let error = refused(qkv(7, 7), Reach::Joint { text: 8 });
    assert!(error.contains("are not 8 of text"), "{error}");
    let error = refused(qkv(7, 7), Reach::Within { axis: 1 });
    assert!(error.contains("within axis 1"), "{error}");
    let odd = Qkv { v: tensor("v", [2, 6, 3, 4]), ..qkv(7, 7) };
    assert!(refused(odd, Reach::Own).contains("do not fit each other"));
    for reach in [Reach::Sharded, Reach::Replicated] {
        Plain.attend(SITE, qkv(7, 5), reach, None).unwrap();
    }
}

/// The watcher that families are held to sees what they could do wrong.
#[test]
fn the_watcher_sees_a_site_entered_twice_and_another_streams_tokens() {
    let mut watched = Watched::default();
    for keys in [7, 5] {
        watched.attend(SITE, qkv(7, keys), Reach::Own, None).unwrap();
    }
    let [twice, other] = &watched.faults[..] else { panic!("{:?}", watched.faults) };
    assert!(twice.contains("`site` of block 1 is entered twice"), "{twice}");
    assert!(other.contains("7 queries and 5 keys are not the same tokens"), "{other}");
    let Question { network, store, inputs } = toy(1, 5);
    let mut watched = Watched::default();
    nn::forward(&*network, &Weights::new(&store), &inputs, &mut watched).unwrap();
    assert!(watched.faults.is_empty(), "{:?}", watched.faults);
}
