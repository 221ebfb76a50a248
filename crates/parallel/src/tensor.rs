//! Tensor parallelism: each rank holds a part of the matrices, as the family's table says by layer name.
//!
//! A layer that is split by columns computes some of the outputs from whole inputs, one that is split by
//! rows a part of the sum of whole outputs from some of the inputs. Between the two a rank works on its own
//! channels: its own heads, its own part of the feed-forward. A model cannot tell: it reads how many heads
//! there are off the tensor.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::{DType, Tensor};
use comm::{Group, share};
use kernels::Activation;
use nn::{Bias, Linear, Normalize, Part, Project, Provider, Result, RmsNorm, Split};

use crate::exchange;
use crate::sharded::Gradients;

/// Which layers are split how, by the ends of their names.
pub type Splits = &'static [(&'static str, Split)];

/// How a family's table splits a layer.
pub fn split_of(splits: Splits, layer: &str) -> Option<Split> {
    let ends = |end: &str| {
        layer.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    splits.iter().find(|(end, _)| ends(end)).map(|(_, split)| *split)
}

/// Who shares the matrices, and how.
#[derive(Clone, Debug)]
pub struct TensorSplit {
    /// The ranks.
    pub group: Group,
    /// The family's table.
    pub splits: Splits,
}

impl TensorSplit {
    /// The layers of `base`, of which this rank holds its part.
    pub(crate) fn of<'a>(&'a self, base: &'a dyn Provider) -> TensorParallel<'a> {
        TensorParallel { base, own: self, gradients: Gradients::Whole }
    }

    /// The same for a backward pass that ends with such gradients.
    pub(crate) fn learning<'a>(
        &'a self,
        base: &'a dyn Provider,
        gradients: Gradients,
    ) -> TensorParallel<'a> {
        TensorParallel { gradients, ..self.of(base) }
    }

    /// What this rank adds to a sum over all ranks: its parts, and of what every rank of the group finds whole the
    /// first one's.
    pub(crate) fn own_share(&self, gradients: &mut BTreeMap<String, Tensor<1>>) {
        if self.group.rank() > 0 {
            gradients.retain(|name, _| self.is_in_parts(name));
        }
    }

    /// How a layer is split.
    fn split(&self, layer: &str) -> Option<Split> {
        split_of(self.splits, layer)
    }

    /// Whether the gradient of a parameter is found in parts on the ranks, rather than whole on each.
    pub(crate) fn is_in_parts(&self, parameter: &str) -> bool {
        let Some((layer, kind)) = parameter.rsplit_once('.') else { return false };
        // A LoRA's matrices stand below the layer that they change.
        let (layer, kind) = match (layer.rsplit_once('.'), kind) {
            (Some((layer, matrix @ ("lora_A" | "lora_B"))), "weight") => (layer, matrix),
            _ => (layer, kind),
        };
        match self.split(layer) {
            None => false,
            // The narrow side of a LoRA is whole on every rank, which sees a part of what it leads to.
            Some(Split::Columns) => true,
            Some(Split::Rows) => kind != "bias",
            Some(Split::Channels) => true,
        }
    }
}

/// A provider of parts of layers.
pub(crate) struct TensorParallel<'a> {
    base: &'a dyn Provider,
    own: &'a TensorSplit,
    gradients: Gradients,
}

impl Provider for TensorParallel<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.base.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        self.base.has(name)
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(self.base)
    }

    fn found(
        &self,
        block: usize,
        mut gradients: BTreeMap<String, Tensor<1>>,
    ) -> Result<BTreeMap<String, Tensor<1>>> {
        if self.gradients == Gradients::Parts {
            self.own.own_share(&mut gradients);
        }
        self.base.found(block, gradients)
    }

    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        [inputs, outputs]: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> Result<Linear> {
        let group = &self.own.group;
        let range = |count| share(count, group.rank(), group.size());
        let sizes = [inputs, outputs];
        match self.own.split(name) {
            Some(Split::Columns) => {
                let part = Part { outputs: Some(range(outputs)), inputs: part.inputs.clone() };
                let inner = self.base.linear(leaves, name, sizes, bias, &part)?;
                let group = group.named(format!("the input of {name}"));
                Ok(Linear::of(Columns { inner, group }))
            }
            Some(Split::Rows) => {
                let part = Part { outputs: part.outputs.clone(), inputs: Some(range(inputs)) };
                let inner = self.base.linear(leaves, name, sizes, Bias::Without, &part)?;
                let bias = match bias {
                    Bias::With => {
                        let bias = leaves.values(&format!("{name}.bias"), &[outputs])?;
                        Some(part.of_outputs(bias).cast(DType::F32))
                    }
                    Bias::Without => None,
                };
                let group = group.named(format!("the output of {name}"));
                Ok(Linear::of(Rows { inner, bias, group }))
            }
            Some(Split::Channels) | None => self.base.linear(leaves, name, sizes, bias, part),
        }
    }

    fn own_outputs(&self, name: &str, outputs: usize) -> Range<usize> {
        match self.own.split(name) {
            Some(Split::Columns) => share(outputs, self.own.group.rank(), self.own.group.size()),
            _ => self.base.own_outputs(name, outputs),
        }
    }

    fn rms_norm(
        &self,
        leaves: &dyn Provider,
        name: &str,
        width: usize,
        epsilon: f32,
    ) -> Result<RmsNorm> {
        if self.own.split(name) != Some(Split::Channels) {
            return self.base.rms_norm(leaves, name, width, epsilon);
        }
        let group = &self.own.group;
        let range = share(width, group.rank(), group.size());
        let weight = leaves.values(&format!("{name}.weight"), &[width])?.cast(DType::F32);
        let weight = weight.narrow(0, range.start, range.len());
        let group = group.named(format!("the squares of {name}"));
        Ok(RmsNorm::of(Channels { weight, width, epsilon, group }))
    }
}

/// Some of the outputs of a layer.
struct Columns {
    inner: Linear,
    group: Group,
}

impl Project for Columns {
    fn project(&self, x: Tensor<2>, activation: Activation) -> Result<Tensor<2>> {
        self.inner.apply_with(exchange::fan_out(&self.group, x), activation)
    }
}

/// A layer of which each rank holds some of the inputs.
struct Rows {
    inner: Linear,
    bias: Option<Tensor<1>>,
    group: Group,
}

impl Project for Rows {
    fn project(&self, x: Tensor<2>, activation: Activation) -> Result<Tensor<2>> {
        let sum = exchange::sum_for_all(&self.group, self.inner.apply(x)?)?;
        let out = match &self.bias {
            Some(bias) => sum + bias.clone().unsqueeze(),
            None => sum,
        };
        Ok(activation.apply(out))
    }
}

/// A norm over a width of which each rank holds some channels.
struct Channels {
    weight: Tensor<1>,
    width: usize,
    epsilon: f32,
    group: Group,
}

impl Normalize for Channels {
    fn normalize(&self, x: Tensor<2>) -> Result<Tensor<2>> {
        let squares = (x.clone() * x.clone()).sum_dim(1);
        let mean = exchange::all_reduce(&self.group, squares)? / self.width as f64;
        let normed = x / (mean + f64::from(self.epsilon)).sqrt();
        Ok(normed * self.weight.clone().unsqueeze())
    }
}
