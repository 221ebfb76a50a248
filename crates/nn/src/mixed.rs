//! A network that learns in f32 and whose blocks multiply in bf16.

use std::sync::Arc;

use burn::tensor::Tensor;

use crate::error::Result;
use crate::fold::Forward;
use crate::inputs::{Inputs, Prediction};
use crate::network::Network;
use crate::packed::Packed;
use crate::provider::{Products, Provider};
use crate::weights::Weights;

/// The same network, in whose blocks the products of linear layers are of operands that are rounded to bf16, within a
/// graph and outside of one, forward and back ([`kernels::linear_mixed`]). Matrices, gradients, sums, attention and what stands
/// around the blocks stay f32; so do products with matrices that are quantized, and low-rank changes beside layers.
pub struct MixedPrecision(pub Arc<dyn Network>);

impl Network for MixedPrecision {
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
        let layers = MixedLayers(weights.provider());
        self.0.block(index, stream, Forward { weights: &weights.over(&layers), shared, attention })
    }

    fn head(&self, weights: &Weights<'_>, stream: Packed, shared: &Packed) -> Result<Prediction> {
        self.0.head(weights, stream, shared)
    }
}

/// A provider whose matrices are multiplied in bf16, whatever they are.
struct MixedLayers<'a>(&'a dyn Provider);

impl Provider for MixedLayers<'_> {
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
        Products::Mixed
    }
}
