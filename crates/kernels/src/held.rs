//! Linear layers whose matrix is held in fewer bits than a float, and never learns: one operation for all of them.

use std::fmt::Debug;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Device, Tensor};

use crate::activation::Activation;
use crate::gemm::{Epilogue, Matrix, product};
use crate::linear::column_sums;
use crate::narrow::Stored;
use crate::operation::{Operand, Operation, apply};
use crate::pack::{Order, Unpacked, blocks};
use crate::storage;

/// A matrix `[outputs, inputs]` in a form of its own. Clones share it.
pub(crate) trait Held: Clone + Debug + Send + 'static {
    /// `[outputs, inputs]`.
    fn shape(&self) -> [usize; 2];

    /// `x W^T` and what follows, for `rows` rows of f32.
    fn multiply(&self, x: &[f32], rows: usize, epilogue: Epilogue<'_>) -> Vec<f32>;

    /// What it stands for, in f32.
    fn widened(&self, device: &Device) -> Tensor<2>;
}

/// `activation(x W^T + b)` of `[.., in]`, differentiable in `x`, as if it were linear, and in `b`. None if a tensor
/// is on another backend.
pub(crate) fn linear_held<M: Held, const D: usize>(
    x: &Tensor<D>,
    weight: &M,
    bias: Option<&Tensor<1>>,
    activation: Activation,
) -> Option<Tensor<D>> {
    let offset = match bias {
        Some(bias) => Operand::new(bias),
        None => Some(Operand::Plain(storage::tensor(Vec::new(), [0]))),
    };
    let inputs = [Operand::new(x)?, offset?];
    let weight = weight.clone();
    if inputs.iter().any(|input| matches!(input, Operand::Recorded(_))) {
        // The backward pass of the activation needs its input, so it is an operation of its own.
        let linear = Linear { weight, activation: Activation::Identity };
        return Some(activation.apply(apply(&linear, inputs)));
    }
    Some(apply(&Linear { weight, activation }, inputs))
}

#[derive(Clone, Debug)]
struct Linear<M> {
    weight: M,
    activation: Activation,
}

/// The shape of the input, and whether there is a bias.
type Saved = (Vec<usize>, bool);

impl<M: Held> Operation<2> for Linear<M> {
    type Saved = Saved;

    fn forward(&self, [x, bias]: [FlexTensor; 2]) -> (FlexTensor, Saved) {
        let (x, bias) = (storage::contiguous(x), storage::contiguous(bias));
        let [outputs, inputs] = self.weight.shape();
        let before = storage::sizes(&x);
        let mut shape = before.clone();
        let last = shape.last_mut().expect("an input has at least one dim");
        assert_eq!(*last, inputs, "linear: an input of width {last} meets a weight of {inputs}");
        *last = outputs;
        let rows = shape[..shape.len() - 1].iter().product();
        let bias = Some(storage::values(&bias)).filter(|bias| !bias.is_empty());
        let epilogue = Epilogue { bias, activation: self.activation, ..Epilogue::NONE };
        let out = self.weight.multiply(storage::values(&x), rows, epilogue);
        (storage::tensor(out, shape), (before, bias.is_some()))
    }

    fn backward(
        &self,
        (shape, biased): Saved,
        gradient: FlexTensor,
        wanted: [bool; 2],
    ) -> [Option<FlexTensor>; 2] {
        let gradient = storage::contiguous(gradient);
        let dy = storage::values(&gradient);
        let [outputs, inputs] = self.weight.shape();
        let dx = wanted[0].then(|| {
            let widened = self.weight.widened(&Device::flex()).try_into_primitive::<Flex>();
            let widened = widened.unwrap_or_else(|_| unreachable!("it was made on the CPU"));
            let right = Unpacked {
                values: Stored::F32(storage::values(&widened)).into(),
                order: Order::RowsApart(inputs),
                blocks: &blocks(outputs),
                columns: inputs,
            };
            let left = Matrix { values: dy, stride: outputs };
            let rows = dy.len() / outputs.max(1);
            storage::tensor(product(&left, rows, &right, Epilogue::NONE), shape)
        });
        let db =
            (wanted[1] && biased).then(|| storage::tensor(column_sums(dy, outputs), [outputs]));
        [dx, db]
    }
}
