//! A linear map given by a plain function and its adjoint: how an exchange between ranks becomes
//! part of a graph without this crate knowing what a rank is.

use std::fmt;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use crate::operation::{Operand, Operation, apply};

/// `forward(x)`, whose gradient is `adjoint` of the gradient of the result.
///
/// Both functions are called with tensors outside any graph, `adjoint` while a backward pass runs
/// and on the thread that runs it. An input that wants no gradient never calls it.
///
/// # Panics
/// Panics for a tensor in a graph on another backend than the CPU.
pub fn linear_map<const D: usize, const E: usize>(
    x: Tensor<D>,
    forward: impl Fn(Tensor<D>) -> Tensor<E> + Clone + Send + 'static,
    adjoint: impl Fn(Tensor<E>) -> Tensor<D> + Clone + Send + 'static,
) -> Tensor<E> {
    match Operand::new(&x) {
        Some(operand) => apply(&LinearMap { forward, adjoint }, [operand]),
        None if x.device().is_autodiff() => {
            panic!("a linear map has a gradient on the CPU backend only, not on {:?}", x.device())
        }
        None => forward(x),
    }
}

#[derive(Clone)]
struct LinearMap<F, A, const D: usize, const E: usize> {
    forward: F,
    adjoint: A,
}

impl<F, A, const D: usize, const E: usize> fmt::Debug for LinearMap<F, A, D, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinearMap<{D}, {E}>")
    }
}

impl<F, A, const D: usize, const E: usize> Operation<1> for LinearMap<F, A, D, E>
where
    F: Fn(Tensor<D>) -> Tensor<E> + Clone + Send + 'static,
    A: Fn(Tensor<E>) -> Tensor<D> + Clone + Send + 'static,
{
    type Saved = ();

    fn forward(&self, [x]: [FlexTensor; 1]) -> (FlexTensor, ()) {
        (cpu((self.forward)(Tensor::from_primitive::<Flex>(x))), ())
    }

    fn backward(&self, (): (), gradient: FlexTensor, wanted: [bool; 1]) -> [Option<FlexTensor>; 1] {
        [wanted[0].then(|| cpu((self.adjoint)(Tensor::from_primitive::<Flex>(gradient))))]
    }
}

fn cpu<const D: usize>(tensor: Tensor<D>) -> FlexTensor {
    let primitive = tensor.inner().try_into_primitive::<Flex>();
    primitive.unwrap_or_else(|_| panic!("a linear map of a CPU tensor gives a CPU tensor"))
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};

    use super::linear_map;

    /// `[2, 3]` to `[6]`: transposed, flattened and doubled.
    fn double(x: Tensor<2>) -> Tensor<1> {
        assert!(!x.device().is_autodiff(), "the function sees no graph");
        x.transpose().reshape([6]) * 2.0
    }

    fn adjoint(gradient: Tensor<1>) -> Tensor<2> {
        assert!(!gradient.device().is_autodiff(), "the adjoint sees no graph");
        gradient.reshape([3, 2]).transpose() * 2.0
    }

    fn x() -> Tensor<2> {
        Tensor::from_data([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &Device::flex())
    }

    fn values<const D: usize>(x: Tensor<D>) -> Vec<f32> {
        x.into_data().iter::<f32>().collect()
    }

    #[test]
    fn outside_a_graph_it_is_the_function() {
        let out = linear_map(x(), double, |_| -> Tensor<2> { panic!("no gradient is wanted") });
        assert_eq!(values(out), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
    }

    #[test]
    fn a_constant_in_a_graph_calls_no_adjoint() {
        let constant = Tensor::from_inner(x());
        let out =
            linear_map(constant, double, |_| -> Tensor<2> { panic!("no gradient is wanted") });
        let weight = Tensor::from_inner(Tensor::<1>::ones([6], &Device::flex())).require_grad();
        let graph = (out * weight.clone()).sum().backward();
        let gradient = weight.grad(&graph).unwrap();
        assert_eq!(values(gradient), [2.0, 8.0, 4.0, 10.0, 6.0, 12.0]);
    }

    #[test]
    fn its_gradient_is_the_adjoint_and_adds_up() {
        let leaf = Tensor::from_inner(x()).require_grad();
        let weight = Tensor::from_data([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &Device::flex());
        let weight = Tensor::<1>::from_inner(weight);
        let out = linear_map(leaf.clone(), double, adjoint) * weight;
        let graph = (out.sum() + leaf.clone().sum()).backward();
        let gradient = leaf.grad(&graph).unwrap();
        assert_eq!(values(gradient), [3.0, 7.0, 11.0, 5.0, 9.0, 13.0]);
    }
}
