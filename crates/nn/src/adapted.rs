//! Layers with low-rank changes beside them: loaded ones, and those that learn.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use burn::tensor::Tensor;
use kernels::Activation;

use crate::error::Result;
use crate::image::{Convolution2d, Convolution3d};
use crate::layers::{Embedding, Linear, Project};
use crate::lora::{Change, LowRank, changed};
use crate::part::Part;
use crate::provider::{Bias, Provider};
use crate::store::Parameter;

/// What a layer's low-rank change sees of the layer's input `[rows, inputs]`, in training.
pub type Dropout = Arc<dyn Fn(Tensor<2>) -> Tensor<2> + Send + Sync>;

/// A low-rank change beside a layer.
#[derive(Clone)]
pub struct Adapter {
    matrices: Matrices,
    dropout: Option<Dropout>,
}

/// Where the two matrices are.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "one per layer, beside tensors that are far larger")]
enum Matrices {
    Held(LowRank),
    Named { layer: String, rank: usize, scale: f32 },
}

impl Adapter {
    /// A change that is held here.
    pub fn held(change: LowRank) -> Adapter {
        Adapter { matrices: Matrices::Held(change), dropout: None }
    }

    /// The change of `layer` whose matrices are parameters called [`LowRank::names`]: they are taken
    /// from where all parameters come from, so that they can learn.
    pub fn named(layer: &str, rank: usize, scale: f32, dropout: Option<Dropout>) -> Adapter {
        let layer = layer.to_owned();
        Adapter { matrices: Matrices::Named { layer, rank, scale }, dropout }
    }

    /// The change to a matrix `[outputs, inputs]`.
    fn change(&self, leaves: &dyn Provider, [outputs, inputs]: [usize; 2]) -> Result<LowRank> {
        match &self.matrices {
            Matrices::Held(change) => Ok(change.clone()),
            Matrices::Named { layer, rank, scale } => {
                let ([down, up], rank) = (LowRank::names(layer), *rank);
                Ok(LowRank {
                    down: leaves.values(&down, &[rank, inputs])?.reshape([rank, inputs]),
                    up: leaves.values(&up, &[outputs, rank])?.reshape([outputs, rank]),
                    scale: *scale,
                })
            }
        }
    }
}

/// Low-rank changes that are kept beside their layers, by the name of the parameter they change.
#[derive(Clone, Default)]
pub struct Adapters(BTreeMap<String, Vec<Adapter>>);

impl fmt::Debug for Adapters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

impl Adapters {
    /// Whether nothing is kept beside.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A layer with a part of its matrix `[outputs, inputs]`, and the same part of its changes beside.
    pub(crate) fn beside(
        &self,
        leaves: &dyn Provider,
        name: &str,
        sizes: [usize; 2],
        base: Linear,
        part: &Part,
    ) -> Result<Linear> {
        let own = self.0.get(&format!("{name}.weight")).map_or(&[][..], Vec::as_slice);
        own.iter().try_fold(base, |base, adapter| {
            let change = adapter.change(leaves, sizes)?.part(part);
            Ok(Linear::of(Beside { base, change, dropout: adapter.dropout.clone() }))
        })
    }

    /// The same under the names that `rename` gives; `None` drops one.
    pub(crate) fn renamed(self, rename: impl Fn(&str) -> Option<String>) -> Adapters {
        let all = self.0.into_iter();
        Adapters(all.filter_map(|(name, own)| Some((rename(&name)?, own))).collect())
    }

    /// Whether there are changes of a parameter.
    pub(crate) fn has(&self, parameter: &str) -> bool {
        self.0.get(parameter).is_some_and(|own| !own.is_empty())
    }

    /// Keeps the changes of another one too.
    pub(crate) fn extend(&mut self, other: Adapters) {
        for (name, own) in other.0 {
            self.0.entry(name).or_default().extend(own);
        }
    }

    /// The changes of a parameter that are held here; those that are parameters themselves are not.
    pub(crate) fn held(&self, parameter: &str) -> Vec<LowRank> {
        let all = self.0.get(parameter).map_or(&[][..], Vec::as_slice);
        let held = all.iter().filter_map(|own| match &own.matrices {
            Matrices::Held(change) => Some(change.clone()),
            Matrices::Named { .. } => None,
        });
        held.collect()
    }

    /// Forgets the changes of a parameter.
    pub(crate) fn forget(&mut self, parameter: &str) {
        self.0.remove(parameter);
    }

    /// Keeps one more change beside the layer of `parameter`.
    pub fn push(&mut self, parameter: impl Into<String>, adapter: Adapter) {
        self.0.entry(parameter.into()).or_default().push(adapter);
    }
}

/// A provider whose layers have [`Adapters`] beside them: matrices of linear layers and of patch
/// projections stay as they are and the change runs beside; what is no matrix, or no layer, comes merged.
#[derive(Clone)]
pub struct Adapted<'a> {
    base: &'a dyn Provider,
    adapters: Adapters,
}

impl<'a> Adapted<'a> {
    /// The layers of `base` with `adapters` beside them.
    pub fn new(base: &'a dyn Provider, adapters: Adapters) -> Adapted<'a> {
        Adapted { base, adapters }
    }

    fn of(&self, parameter: &str) -> &[Adapter] {
        self.adapters.0.get(parameter).map_or(&[], Vec::as_slice)
    }

    /// Values of `parameter`, flat, with its changes.
    fn merged(
        &self,
        leaves: &dyn Provider,
        parameter: &str,
        (values, shape): (Tensor<1>, &[usize]),
    ) -> Result<Tensor<1>> {
        let outputs = shape.first().copied().unwrap_or(1);
        let sizes = [outputs, shape.iter().skip(1).product()];
        let change = |adapter: &Adapter| adapter.change(leaves, sizes).map(Change::LowRank);
        let changes = self.of(parameter).iter().map(change).collect::<Result<Vec<_>>>()?;
        Ok(match changes.is_empty() {
            true => values,
            false => changed(&Parameter { values, shape: shape.to_vec() }, &changes).values,
        })
    }

    /// The same for a weight of a layer.
    fn weight<const D: usize>(
        &self,
        leaves: &dyn Provider,
        layer: &str,
        weight: Tensor<D>,
    ) -> Result<Tensor<D>> {
        let (shape, elements) = (weight.dims(), weight.shape().num_elements());
        let values = (weight.reshape([elements]), &shape[..]);
        Ok(self.merged(leaves, &format!("{layer}.weight"), values)?.reshape(shape))
    }
}

impl Provider for Adapted<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.base.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        self.base.has(name)
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(self.base)
    }

    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        [inputs, outputs]: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> Result<Linear> {
        let base = self.base.linear(leaves, name, [inputs, outputs], bias, part)?;
        self.adapters.beside(leaves, name, [outputs, inputs], base, part)
    }

    fn patch_projection(
        &self,
        leaves: &dyn Provider,
        name: &str,
        shape: &[usize],
        bias: Bias,
    ) -> Result<Linear> {
        let base = self.base.patch_projection(leaves, name, shape, bias)?;
        let sizes = [shape[0], shape[1..].iter().product()];
        self.adapters.beside(leaves, name, sizes, base, &Part::WHOLE)
    }

    fn convolution(
        &self,
        leaves: &dyn Provider,
        name: &str,
        shape: [usize; 4],
    ) -> Result<Convolution2d> {
        let Convolution2d { weight, bias, strip } = self.base.convolution(leaves, name, shape)?;
        Ok(Convolution2d { weight: self.weight(leaves, name, weight)?, bias, strip })
    }

    fn convolution3d(
        &self,
        leaves: &dyn Provider,
        name: &str,
        shape: [usize; 5],
    ) -> Result<Convolution3d> {
        let Convolution3d { weight, bias, strip } = self.base.convolution3d(leaves, name, shape)?;
        Ok(Convolution3d { weight: self.weight(leaves, name, weight)?, bias, strip })
    }

    fn embedding(&self, leaves: &dyn Provider, name: &str, sizes: [usize; 2]) -> Result<Embedding> {
        let Embedding { table } = self.base.embedding(leaves, name, sizes)?;
        Ok(Embedding { table: self.weight(leaves, name, table)? })
    }

    fn tensor(&self, leaves: &dyn Provider, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        let values = self.base.tensor(leaves, name, shape)?;
        self.merged(leaves, name, (values, shape))
    }
}

/// A layer and one change of it.
struct Beside {
    base: Linear,
    change: LowRank,
    dropout: Option<Dropout>,
}

impl Project for Beside {
    fn project(&self, x: Tensor<2>, activation: Activation) -> Result<Tensor<2>> {
        let seen = match &self.dropout {
            Some(dropout) => dropout(x.clone()),
            None => x.clone(),
        };
        Ok(activation.apply(self.base.apply(x)? + self.change.project(seen)))
    }
}
