//! How a kernel becomes a burn operation: plain on CPU tensors, recorded on autodiff tensors.

use std::fmt::Debug;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::Tensor;

type Recorded = Autodiff<Flex, NoCheckpointing>;

/// A kernel of `N` float inputs and one output that knows its own backward pass.
pub(crate) trait Operation<const N: usize>: Clone + Debug + Send + 'static {
    /// What the backward pass needs from the forward pass.
    type Saved: Clone + Debug + Send + 'static;

    /// The result alone, for inputs that want no gradient; it may be written over an input that
    /// nobody else holds (see [`crate::storage::own`]).
    fn plain(&self, inputs: [FlexTensor; N]) -> FlexTensor {
        self.forward(inputs).0
    }

    /// The result and what its backward pass needs.
    fn forward(&self, inputs: [FlexTensor; N]) -> (FlexTensor, Self::Saved);

    /// The gradient of every wanted input, given the gradient of the output.
    fn backward(
        &self,
        saved: Self::Saved,
        gradient: FlexTensor,
        wanted: [bool; N],
    ) -> [Option<FlexTensor>; N];
}

/// An input of an [`Operation`]: a tensor of any rank on the CPU, inside or outside a graph.
pub(crate) enum Operand {
    Plain(FlexTensor),
    Recorded(FloatTensor<Recorded>),
}

impl Operand {
    /// `None` when the tensor lives on another backend.
    pub(crate) fn new<const D: usize>(tensor: &Tensor<D>) -> Option<Operand> {
        if tensor.device().is_autodiff() {
            let primitive = tensor.clone().try_into_primitive::<Recorded>().ok()?;
            return Some(Operand::Recorded(primitive));
        }
        tensor.clone().try_into_primitive::<Flex>().ok().map(Operand::Plain)
    }

    fn primitive(&self) -> FlexTensor {
        match self {
            Operand::Plain(tensor) => tensor.clone(),
            Operand::Recorded(tensor) => tensor.primitive().clone(),
        }
    }

    fn into_primitive(self) -> FlexTensor {
        match self {
            Operand::Plain(tensor) => tensor,
            Operand::Recorded(tensor) => tensor.into_primitive(),
        }
    }

    fn into_recorded(self) -> FloatTensor<Recorded> {
        match self {
            // A constant: a leaf that asks for no gradient.
            Operand::Plain(tensor) => FloatTensor::<Recorded>::new(tensor),
            Operand::Recorded(tensor) => tensor,
        }
    }
}

/// Runs `operation`, recording it if any input belongs to a graph.
pub(crate) fn apply<O: Operation<N>, const N: usize, const D: usize>(
    operation: &O,
    inputs: [Operand; N],
) -> Tensor<D> {
    if inputs.iter().all(|input| matches!(input, Operand::Plain(_))) {
        let primitives = inputs.map(Operand::into_primitive);
        return Tensor::from_primitive::<Flex>(operation.plain(primitives));
    }
    let primitives = inputs.each_ref().map(Operand::primitive);
    let nodes = inputs.map(|input| input.into_recorded().into_parts().1);
    let output = match RecordedOperation(operation.clone())
        .prepare::<NoCheckpointing>(nodes)
        .compute_bound()
        .stateful()
    {
        OpsKind::Tracked(prepared) => {
            let (output, saved) = operation.forward(primitives);
            prepared.finish(saved, output)
        }
        OpsKind::UnTracked(prepared) => prepared.finish(operation.plain(primitives)),
    };
    Tensor::from_primitive::<Recorded>(output)
}

#[derive(Clone, Debug)]
struct RecordedOperation<O>(O);

impl<O: Operation<N>, const N: usize> Backward<Flex, N> for RecordedOperation<O> {
    type State = O::Saved;

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        grads: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let gradient = grads.consume::<Flex>(&ops.node);
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let gradients = self.0.backward(ops.state, gradient, wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<Flex>(parent.id, gradient);
            }
        }
    }
}
