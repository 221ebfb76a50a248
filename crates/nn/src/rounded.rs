//! A network whose blocks multiply in bf16, whatever it is and however it is run.

use kernels::InstructionSet;

use burn::tensor::Tensor;

use crate::attention::{Attention, Qkv, Reach, Site};
use crate::error::Result;
use crate::fold::Forward;
use crate::inputs::{Inputs, Prediction};
use crate::mask::Mask;
use crate::network::Network;
use crate::packed::Packed;
use crate::provider::{Products, Provider};
use crate::weights::Weights;

/// The same network, in whose blocks activations are rounded to bf16 where they meet a matrix that is
/// bf16, and queries, keys and values where tokens mix. Sums, and all that is no product, stay f32; so do
/// products with matrices of another type, and everything outside the blocks.
///
/// It changes nothing where the instruction set in use does not multiply bf16, nor within a graph.
pub struct Rounded<'a>(pub &'a dyn Network);

impl Network for Rounded<'_> {
    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn heads(&self) -> usize {
        self.0.heads()
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.0.declare(weights)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Packed> {
        self.0.shared(weights, inputs)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Packed) -> Result<Packed> {
        self.0.embed(weights, inputs, shared)
    }

    fn block(&self, index: usize, stream: Packed, pass: Forward<'_, Packed>) -> Result<Packed> {
        let Forward { weights, shared, attention } = pass;
        if !InstructionSet::in_use().multiplies_bf16() {
            return self.0.block(index, stream, Forward { weights, shared, attention });
        }
        let layers = RoundedLayers(weights.provider());
        let pass = Forward {
            weights: &weights.over(&layers),
            shared,
            attention: &mut RoundedAttention(attention),
        };
        self.0.block(index, stream, pass)
    }

    fn head(&self, weights: &Weights<'_>, stream: Packed, shared: &Packed) -> Result<Prediction> {
        self.0.head(weights, stream, shared)
    }
}

/// A provider whose matrices want their input in bf16 if they are bf16.
struct RoundedLayers<'a>(&'a dyn Provider);

impl Provider for RoundedLayers<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.0.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        self.0.has(name)
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(self.0)
    }

    fn products(&self) -> Products {
        Products::Rounded
    }
}

/// An attention that is given bf16.
struct RoundedAttention<'a>(&'a mut dyn Attention);

impl Attention for RoundedAttention<'_> {
    fn attend(
        &mut self,
        site: Site,
        Qkv { q, k, v }: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        let recorded = [&q, &k, &v].iter().any(|x| x.device().is_autodiff());
        let [q, k, v] = match recorded {
            true => [q, k, v],
            false => [q, k, v].map(kernels::to_bf16),
        };
        self.0.attend(site, Qkv { q, k, v }, reach, mask)
    }
}
