//! A value that is known already, as a function of several tensors with a gradient of the caller's: how
//! work that is spread over ranks becomes part of a graph without this crate knowing what a rank is.

use std::fmt;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use crate::operation::{Operand, Operation, apply};

/// `out`, whose gradients with respect to `inputs` are `gradients` of its own gradient.
///
/// The function is called with a tensor outside any graph, while a backward pass runs and on the thread
/// that runs it. If no input wants a gradient, it is never called.
///
/// # Panics
/// Panics for tensors in a graph on another backend than the CPU.
pub fn with_gradient<const N: usize, const D: usize, const E: usize>(
    inputs: [Tensor<D>; N],
    out: Tensor<E>,
    gradients: impl Fn(Tensor<E>) -> [Tensor<D>; N] + Clone + Send + 'static,
) -> Tensor<E> {
    if inputs.iter().all(|input| !input.device().is_autodiff()) {
        return out;
    }
    let operand = |input: &Tensor<D>| {
        let device = input.device();
        Operand::new(input).unwrap_or_else(|| {
            panic!("a gradient of the caller's is for the CPU backend, not for {device:?}")
        })
    };
    let operands = inputs.each_ref().map(operand);
    apply(&WithGradient { out: cpu(out), gradients }, operands)
}

#[derive(Clone)]
struct WithGradient<G, const D: usize, const E: usize> {
    out: FlexTensor,
    gradients: G,
}

impl<G, const D: usize, const E: usize> fmt::Debug for WithGradient<G, D, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WithGradient<{D}, {E}>")
    }
}

impl<G, const N: usize, const D: usize, const E: usize> Operation<N> for WithGradient<G, D, E>
where
    G: Fn(Tensor<E>) -> [Tensor<D>; N] + Clone + Send + 'static,
{
    type Saved = ();

    fn forward(&self, _: [FlexTensor; N]) -> (FlexTensor, ()) {
        (self.out.clone(), ())
    }

    fn backward(&self, (): (), gradient: FlexTensor, wanted: [bool; N]) -> [Option<FlexTensor>; N] {
        let found = (self.gradients)(Tensor::from_primitive::<Flex>(gradient));
        let mut wanted = wanted.into_iter();
        found.map(|one| wanted.next().unwrap_or(false).then(|| cpu(one)))
    }
}

fn cpu<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    let primitive = tensor.inner().try_into_primitive::<Flex>();
    primitive.unwrap_or_else(|_| panic!("what stands for CPU tensors is a CPU tensor"))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};

    use super::with_gradient;

    fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
        x.into_data().iter::<f32>().collect()
    }

    /// A product of three, with the product rule for a gradient.
    #[test]
    fn every_input_gets_its_gradient() {
        let at = |values: [f32; 2]| Tensor::<1>::from_floats(values, &Device::flex());
        let plain = [at([1.0, 2.0]), at([3.0, 4.0]), at([5.0, 6.0])];
        let leaves = plain.clone().map(|one| Tensor::from_inner(one).require_grad());
        let [a, b, c] = plain;
        let out = a.clone() * b.clone() * c.clone();
        let product = with_gradient(leaves.clone(), out.clone(), move |gradient: Tensor<1>| {
            let [a, b, c] = [a.clone(), b.clone(), c.clone()];
            [b.clone() * c.clone(), a.clone() * c, a * b].map(|other| other * gradient.clone())
        });
        assert_eq!(values(product.clone().inner()), values(out));
        let graph = (product * 2.0).sum().backward();
        let gradients = leaves.map(|leaf| values(leaf.grad(&graph).unwrap()));
        assert_eq!(gradients, [vec![30.0, 48.0], vec![10.0, 24.0], vec![6.0, 16.0]]);
    }

    #[test]
    fn without_a_graph_no_gradient_is_asked_for() {
        let x = Tensor::<1>::from_floats([1.0], &Device::flex());
        let out = with_gradient([x.clone()], x * 3.0, |_| -> [Tensor<1>; 1] {
            panic!("nobody wants a gradient")
        });
        assert_eq!(values(out), [3.0]);
    }
}
