//! Attention equals its oracle: output, log-sum-exp and gradients, with every kind of mask.

use burn::tensor::{Device, Tensor};
use kernels::{
    AttentionInputs, AttentionSums, InstructionSet, Operands, additive_mask, attention,
    attention_backward, attention_delta, attention_forward, oracle, to_bf16,
};
use proptest::prelude::*;

use crate::check::{check, close, numbers, random, values};
use crate::sets::{on, same_on_every_set};

const TOLERANCE: f32 = 5e-5;

/// Half a unit in the last of the eight bits of a probability, of which the output is a mean.
const BF16_TOLERANCE: f32 = 1.0 / 512.0;

/// Lengths around the tiles of 96 and 256.
fn length() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![1, 2, 5, 17, 95, 96, 97, 130, 255, 256, 257, 300])
}

/// Head widths around panels of 16 and blocks of 256.
fn width() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![1, 3, 16, 40, 64, 72, 128, 300])
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Masked {
    Nothing,
    /// `[B, 1, 1, S]`: padding of the keys.
    Keys,
    /// `[1, N, T, S]` with finite values, hidden keys and one query that sees none.
    Scores,
}

fn masked() -> impl Strategy<Value = Masked> {
    prop::sample::select(vec![Masked::Nothing, Masked::Keys, Masked::Scores])
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    queries: usize,
    keys: usize,
    heads: usize,
    width: usize,
    masked: Masked,
    seed: u64,
}

fn case() -> impl Strategy<Value = Case> {
    (1_usize..3, length(), length(), 1_usize..4, width(), masked(), any::<u64>()).prop_map(
        |(batch, queries, keys, heads, width, masked, seed)| Case {
            batch,
            queries,
            keys,
            heads,
            width,
            masked,
            seed,
        },
    )
}

impl Case {
    fn lengths(&self) -> [usize; 3] {
        let token = self.heads * self.width;
        let keys = self.batch * self.keys * token;
        [self.batch * self.queries * token, keys, keys]
    }

    fn mask(&self) -> Option<Tensor<4>> {
        let device = Device::flex();
        let Case { batch, queries, keys, heads, seed, .. } = *self;
        match self.masked {
            Masked::Nothing => None,
            Masked::Keys => {
                let visible = random::<4>(seed ^ 5, [batch, 1, 1, keys], &device).greater_elem(0.4);
                // Every sample keeps its last key.
                let last = Tensor::<4>::zeros([batch, 1, 1, keys], &device)
                    .slice_fill([0..batch, 0..1, 0..1, keys - 1..keys], 1.0)
                    .greater_elem(0.5);
                Some(additive_mask(visible.bool_or(last)))
            }
            Masked::Scores => {
                let mut scores = numbers(seed ^ 6, heads * queries * keys);
                for score in &mut scores {
                    if *score < -1.0 {
                        *score = f32::NEG_INFINITY;
                    }
                }
                scores[..keys].fill(f32::NEG_INFINITY);
                let scores = Tensor::<1>::from_floats(&scores[..], &device);
                Some(scores.reshape([1, heads, queries, keys]))
            }
        }
    }

    fn inputs(&self, leaves: &[Tensor<1>]) -> AttentionInputs {
        let Case { batch, queries, keys, heads, width, .. } = *self;
        let shape = |leaf: &Tensor<1>, tokens| leaf.clone().reshape([batch, tokens, heads, width]);
        let recorded = leaves[0].device().is_autodiff();
        AttentionInputs {
            q: shape(&leaves[0], queries),
            k: shape(&leaves[1], keys),
            v: shape(&leaves[2], keys),
            mask: self.mask().map(|mask| if recorded { mask.autodiff() } else { mask }),
            scale: 1.0 / (width as f32).sqrt(),
        }
    }

    /// Leaves outside any graph.
    fn leaves(&self) -> Vec<Tensor<1>> {
        let random = |(index, length)| random(self.seed + index, [length], &Device::flex());
        (0..).zip(self.lengths()).map(random).collect()
    }
}

/// The same with operands rounded to bf16.
fn rounded(inputs: AttentionInputs) -> AttentionInputs {
    let AttentionInputs { q, k, v, mask, scale } = inputs;
    AttentionInputs { q: to_bf16(q), k: to_bf16(k), v: to_bf16(v), mask, scale }
}

/// Queries have the same bits beside others and on any number of threads, in bf16 too.
#[test]
fn of_bf16_is_invariant_by_row() {
    let case = Case {
        batch: 2,
        queries: 195,
        keys: 523,
        heads: 2,
        width: 72,
        masked: Masked::Keys,
        seed: 5,
    };
    let inputs = rounded(case.inputs(&case.leaves()));
    for set in InstructionSet::with_own(Operands::Bf16) {
        let whole = on(set, 1, || attention(inputs.clone()));
        assert_eq!(values(on(set, 3, || attention(inputs.clone()))), values(whole.clone()));
        for split in [1, 64, 97] {
            let part = |first: usize| {
                let q = inputs.q.clone().narrow(1, first, split.min(195 - first));
                on(set, 2, || attention(AttentionInputs { q, ..inputs.clone() }))
            };
            let parts = (0..195).step_by(split).map(part).collect();
            assert_eq!(values(Tensor::cat(parts, 1)), values(whole.clone()), "{set}, {split}");
        }
    }
}

/// Checks that both are close, infinities being equal.
fn close_or_infinite(what: &str, value: Tensor<3>, expected: Tensor<3>) {
    let (value, expected) = (values(value), values(expected));
    let finite = |values: &[f32]| -> Vec<f32> {
        values.iter().map(|value| if value.is_infinite() { 0.0 } else { *value }).collect()
    };
    for (value, expected) in value.iter().zip(&expected) {
        assert_eq!(value.is_infinite(), expected.is_infinite(), "{what}: {value} {expected}");
    }
    close(what, &finite(&value), &finite(&expected), TOLERANCE);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn equals_its_oracle(case in case()) {
        check(
            case.seed,
            &case.lengths(),
            TOLERANCE,
            |leaves| attention(case.inputs(leaves)),
            |leaves| oracle::attention(case.inputs(leaves)).0,
        );
    }

    #[test]
    fn log_sum_exp_equals_the_oracles(case in case()) {
        let inputs = case.inputs(&case.leaves());
        let (expected, expected_lse) = oracle::attention(inputs.clone());
        same_on_every_set(|_| {
            let (out, lse) = attention_forward(inputs.clone());
            close("output", &values(out.clone()), &values(expected.clone()), TOLERANCE);
            close_or_infinite("lse", lse.clone(), expected_lse.clone());
            [values(out), values(lse)]
        });
    }

    /// Operands that are bf16: scores differ by nothing but sums, and probabilities are rounded once.
    #[test]
    fn of_bf16_equals_its_oracle(case in case()) {
        let inputs = rounded(case.inputs(&case.leaves()));
        let (expected, expected_lse) = oracle::attention(inputs.clone());
        for set in InstructionSet::present() {
            let (out, lse) = on(set, 2, || attention_forward(inputs.clone()));
            let narrow = set.multiplies_bf16() && case.width % 2 == 0;
            let tolerance = if narrow { BF16_TOLERANCE } else { TOLERANCE };
            // Values are about 1, even where their mean is not.
            let [own, expected] = [out.clone(), expected.clone()].map(|x| [values(x), vec![1.0]].concat());
            close(&format!("output under {set}"), &own, &expected, tolerance);
            close_or_infinite(&format!("lse under {set}"), lse, expected_lse.clone());
            let plain = on(set, 2, || attention(inputs.clone()));
            prop_assert_eq!(values(plain), values(out));
        }
    }

    /// With the sums of all keys, the gradients of two parts of the keys make up the whole.
    #[test]
    fn gradients_of_key_parts_add_up(mut case in case(), share in 0.0_f64..1.0) {
        case.keys += 1;
        let first = 1 + ((case.keys - 2) as f64 * share) as usize;
        let inputs = case.inputs(&case.leaves());
        let gradient = random(case.seed ^ 9, inputs.q.dims(), &Device::flex());
        let (out, lse) = attention_forward(inputs.clone());
        let sums = AttentionSums { lse, delta: attention_delta(out, gradient.clone()) };
        let part = |start, count| {
            let narrow = |x: &Tensor<4>, dim| x.clone().narrow(dim, start, count);
            let part = AttentionInputs {
                k: narrow(&inputs.k, 1),
                v: narrow(&inputs.v, 1),
                mask: inputs.mask.as_ref().map(|mask| narrow(mask, 3)),
                ..inputs.clone()
            };
            attention_backward(part, sums.clone(), gradient.clone())
        };
        let [dq, dk, dv] = part(0, first);
        let [other_dq, other_dk, other_dv] = part(first, case.keys - first);
        let own = [
            dq + other_dq,
            Tensor::cat(vec![dk, other_dk], 1),
            Tensor::cat(vec![dv, other_dv], 1),
        ];
        let whole = oracle::attention_backward(inputs, sums, gradient);
        for (name, (own, whole)) in ["dq", "dk", "dv"].iter().zip(own.into_iter().zip(whole)) {
            // The terms of a gradient are about 1 even where they cancel.
            let [own, whole] = [own, whole].map(|x| [values(x), vec![1.0]].concat());
            close(name, &own, &whole, TOLERANCE);
        }
    }
}

/// A query that sees no key yields zeros and harms no gradient.
#[test]
fn a_blind_query_attends_to_nothing() {
    let case =
        Case { batch: 2, queries: 3, keys: 5, heads: 2, width: 8, masked: Masked::Scores, seed: 3 };
    let (out, lse) = attention_forward(case.inputs(&case.leaves()));
    for sample in 0..2 {
        let row = values(out.clone().slice([sample..sample + 1, 0..1, 0..1, 0..8]));
        assert!(row.iter().all(|value| *value == 0.0), "{row:?}");
        let lse = values(lse.clone().slice([sample..sample + 1, 0..1, 0..1]));
        assert_eq!(lse, [f32::NEG_INFINITY]);
    }
}
