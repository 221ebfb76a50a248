//! Attention in O(tokens) memory, as plain functions and as a differentiable operation.
//!
//! Tensors keep the layout a linear layer leaves: `[B, T, N, H]` (sample, token, head, width), so no
//! head is ever transposed. Lengths of queries and keys may differ, and any width will do. A mask is
//! added to the scores: `[B | 1, N | 1, T | 1, S]`, `-inf` where a key must not be seen; a query
//! that sees no key at all gets zeros.

mod backward;
mod exponential;
mod forward;
mod operands;
mod shape;
mod tile;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Bool, DType, Tensor};

use self::backward::Given;
use self::operands::{Operands, Pairs};
use self::shape::{Extents, Mask};
use crate::narrow::Stored;
use crate::operation::{Operand, Operation, apply};
use crate::{oracle, storage};

/// What attends to what.
#[derive(Clone, Debug)]
pub struct AttentionInputs {
    /// Queries `[B, T, N, H]`.
    pub q: Tensor<4>,
    /// Keys `[B, S, N, H]`.
    pub k: Tensor<4>,
    /// Values `[B, S, N, H]`.
    pub v: Tensor<4>,
    /// Added to the scores: `[B | 1, N | 1, T | 1, S]`.
    pub mask: Option<Tensor<4>>,
    /// The factor on `q k^T`.
    pub scale: f32,
}

/// What the backward pass knows beside its inputs; both may stem from more keys than are given.
#[derive(Clone, Debug)]
pub struct AttentionSums {
    /// Log-sum-exp of the scores of every query, `[B, N, T]`.
    pub lse: Tensor<3>,
    /// [`attention_delta`] of the output, `[B, N, T]`.
    pub delta: Tensor<3>,
}

/// `softmax(scale q k^T + mask) v`, `[B, T, N, H]`, differentiable in `q`, `k` and `v`.
///
/// If all three are bf16, of even width and in no graph, both products are of bf16 (probabilities are
/// rounded too) where the instruction set does that; else whatever is narrow is widened. Scores,
/// their exponentials and all sums are f32 in any case, and so is the result.
pub fn attention(inputs: AttentionInputs) -> Tensor<4> {
    let AttentionInputs { q, k, v, mask, scale } = &inputs;
    let operands = [Operand::new(q), Operand::new(k), Operand::new(v)];
    let mask = mask.as_ref().map(|mask| mask_values(mask.clone()));
    match (operands, mask) {
        ([Some(q), Some(k), Some(v)], None) => {
            apply(&Attention { mask: None, scale: *scale }, [q, k, v])
        }
        ([Some(q), Some(k), Some(v)], Some(Some(mask))) => {
            apply(&Attention { mask: Some(mask), scale: *scale }, [q, k, v])
        }
        _ => oracle::attention(inputs).0,
    }
}

/// The output of [`attention`] and the log-sum-exp of its scores, `[B, N, T]`, outside any graph.
pub fn attention_forward(inputs: AttentionInputs) -> (Tensor<4>, Tensor<3>) {
    let inputs = inputs.inner();
    let Some((extents, [q, k, v], mask)) = inputs.on_cpu() else {
        return oracle::attention(inputs);
    };
    let (out, lse) = run(&extents, [&q, &k, &v], mask.as_ref());
    (Tensor::from_primitive::<Flex>(out), Tensor::from_primitive::<Flex>(lse))
}

/// Gradients of `q`, `k` and `v` for the gradient `[B, T, N, H]` of the output, outside any graph.
///
/// The keys given may be a part of those that `sums` and the output were made from, as a ring of
/// ranks needs: the gradients of all parts add up to the whole.
pub fn attention_backward(
    inputs: AttentionInputs,
    sums: AttentionSums,
    gradient: Tensor<4>,
) -> [Tensor<4>; 3] {
    let inputs = inputs.inner();
    let sums = AttentionSums { lse: sums.lse.inner(), delta: sums.delta.inner() };
    let gradient = gradient.inner();
    let Some((extents, [q, k, v], mask)) = inputs.on_cpu() else {
        return oracle::attention_backward(inputs, sums, gradient);
    };
    let [Some(lse), Some(delta)] = [cpu(&sums.lse), cpu(&sums.delta)] else {
        return oracle::attention_backward(inputs, sums, gradient);
    };
    let Some(gradient) = cpu(&gradient) else { unreachable!("the queries are on the CPU") };
    let [q, k, v] = [q, k, v].map(storage::contiguous);
    run_backward(&extents, [&q, &k, &v], mask.as_ref(), [&lse, &delta, &gradient])
        .map(Tensor::from_primitive::<Flex>)
}

/// Sum over the width of output times its gradient: `[B, T, N, H]` twice to `[B, N, T]`.
pub fn attention_delta(out: Tensor<4>, gradient: Tensor<4>) -> Tensor<3> {
    (out * gradient).sum_dim(3).squeeze_dim::<3>(3).swap_dims(1, 2)
}

/// An additive mask from one that is true where a key may be seen.
pub fn additive_mask<const D: usize>(visible: Tensor<D, Bool>) -> Tensor<D> {
    let shape = visible.shape();
    let device = visible.device();
    Tensor::zeros(shape, (&device, DType::F32)).mask_fill(visible.bool_not(), f32::NEG_INFINITY)
}

impl AttentionInputs {
    fn inner(self) -> AttentionInputs {
        AttentionInputs {
            q: self.q.inner(),
            k: self.k.inner(),
            v: self.v.inner(),
            mask: self.mask.map(Tensor::inner),
            scale: self.scale,
        }
    }

    fn on_cpu(&self) -> Option<(Extents, [FlexTensor; 3], Option<FlexTensor>)> {
        let own = |x: &Tensor<4>| x.clone().try_into_primitive::<Flex>().ok().map(storage::stored);
        let tensors = [own(&self.q)?, own(&self.k)?, own(&self.v)?];
        let mask = match &self.mask {
            Some(mask) => Some(cpu(mask)?),
            None => None,
        };
        let extents = extents(&tensors[0], &tensors[1], self.scale);
        Some((extents, tensors, mask))
    }
}

fn cpu<const D: usize>(tensor: &Tensor<D>) -> Option<FlexTensor> {
    tensor.clone().try_into_primitive::<Flex>().ok().map(storage::contiguous)
}

fn mask_values(mask: Tensor<4>) -> Option<FlexTensor> {
    cpu(&mask.inner())
}

fn extents(q: &FlexTensor, k: &FlexTensor, scale: f32) -> Extents {
    let [batch, queries, heads, width] = storage::sizes(q)[..] else { panic!("q has four dims") };
    let [key_batch, keys, key_heads, key_width] = storage::sizes(k)[..] else {
        panic!("k has four dims")
    };
    assert_eq!(
        (batch, heads, width),
        (key_batch, key_heads, key_width),
        "attention: samples, heads and widths of queries and keys"
    );
    Extents { batch, heads, queries, keys, width, scale }
}

/// The result and the log-sum-exp, from contiguous operands in the type that they have.
fn run(
    extents: &Extents,
    inputs: [&FlexTensor; 3],
    mask: Option<&FlexTensor>,
) -> (FlexTensor, FlexTensor) {
    let mask = mask.map(|mask| view(mask, extents));
    let shape = storage::sizes(inputs[0]);
    let (out, lse) = match in_bf16(extents, inputs) {
        Some(pairs) => forward::forward(extents, &Operands::Bf16(pairs), mask.as_ref()),
        None => {
            let inputs = inputs.map(|input| storage::contiguous(input.clone()));
            let operands = Operands::F32(inputs.each_ref().map(storage::values));
            forward::forward(extents, &operands, mask.as_ref())
        }
    };
    let lse = storage::tensor(lse, [extents.batch, extents.heads, extents.queries]);
    (storage::tensor(out, shape), lse)
}

/// The operands as pairs of bf16, if they are all bf16 and can be multiplied so.
fn in_bf16<'a>(extents: &Extents, inputs: [&'a FlexTensor; 3]) -> Option<Pairs<'a>> {
    match inputs.map(storage::weights) {
        [Stored::Bf16(q), Stored::Bf16(k), Stored::Bf16(v)] => Pairs::new(extents, [q, k, v]),
        _ => None,
    }
}

fn run_backward(
    extents: &Extents,
    [q, k, v]: [&FlexTensor; 3],
    mask: Option<&FlexTensor>,
    [lse, delta, gradient]: [&FlexTensor; 3],
) -> [FlexTensor; 3] {
    let mask = mask.map(|mask| view(mask, extents));
    let given = Given {
        q: storage::values(q),
        k: storage::values(k),
        v: storage::values(v),
        mask: mask.as_ref(),
        lse: storage::values(lse),
        delta: storage::values(delta),
        gradient: storage::values(gradient),
    };
    let [dq, dk, dv] = backward::backward(extents, given);
    [
        storage::tensor(dq, storage::sizes(q)),
        storage::tensor(dk, storage::sizes(k)),
        storage::tensor(dv, storage::sizes(v)),
    ]
}

fn view<'a>(mask: &'a FlexTensor, extents: &Extents) -> Mask<'a> {
    let sizes: [usize; 4] = storage::sizes(mask).try_into().expect("a mask has four dims");
    let Extents { batch, heads, queries, keys, .. } = *extents;
    for (size, whole) in sizes.into_iter().zip([batch, heads, queries, keys]).take(3) {
        assert!(size == 1 || size == whole, "attention: a mask of {sizes:?} for {extents:?}");
    }
    assert_eq!(sizes[3], keys, "attention: a mask covers every key");
    Mask { values: storage::values(mask), sizes, heads }
}

#[derive(Clone, Debug)]
struct Attention {
    mask: Option<FlexTensor>,
    scale: f32,
}

/// The inputs, the output and the log-sum-exp of a recorded call.
#[derive(Clone, Debug)]
struct Saved {
    inputs: [FlexTensor; 3],
    out: FlexTensor,
    lse: FlexTensor,
}

impl Operation<3> for Attention {
    type Saved = Saved;

    fn plain(&self, inputs: [FlexTensor; 3]) -> FlexTensor {
        let inputs = inputs.map(storage::stored);
        let extents = extents(&inputs[0], &inputs[1], self.scale);
        run(&extents, inputs.each_ref(), self.mask.as_ref()).0
    }

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, Saved) {
        let inputs = inputs.map(storage::contiguous);
        let extents = extents(&inputs[0], &inputs[1], self.scale);
        let (out, lse) = run(&extents, inputs.each_ref(), self.mask.as_ref());
        (out.clone(), Saved { inputs, out, lse })
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: FlexTensor,
        wanted: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let gradient = storage::contiguous(gradient);
        let extents = extents(&saved.inputs[0], &saved.inputs[1], self.scale);
        let delta =
            backward::delta(&extents, storage::values(&saved.out), storage::values(&gradient));
        let delta = storage::tensor(delta, [extents.batch, extents.heads, extents.queries]);
        let mut gradients = run_backward(
            &extents,
            saved.inputs.each_ref(),
            self.mask.as_ref(),
            [&saved.lse, &delta, &gradient],
        )
        .map(Some);
        for (gradient, wanted) in gradients.iter_mut().zip(wanted) {
            if !wanted {
                *gradient = None;
            }
        }
        gradients
    }
}
