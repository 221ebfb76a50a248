//! Where parameters come from, and how layers are made of them.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::{DType, Tensor};

use crate::error::Result;
use crate::image::{Convolution2d, Convolution3d, GroupNorm, Strip};
use crate::layers::{Embedding, LayerNorm, Linear, RmsNorm};
use crate::part::Part;
use crate::quantized::QuantizedMatrix;

/// Whether a layer adds a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It does.
    With,
    /// It does not.
    Without,
}

/// In which types the matrices of linear layers are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// As they are, with inputs of f32.
    Stored,
    /// Those that are bf16 with inputs that are rounded to bf16, outside any graph.
    Rounded,
    /// All of them and their inputs rounded to bf16, and so are the products of a backward pass.
    Mixed,
}

/// Makes tensors `[B, L, D]` of a context.
pub type Make<'a> = &'a dyn Fn() -> Result<Vec<Tensor<3>>>;

/// Where parameters come from. This is what a layout or a training method implements.
///
/// Parameters have values; of these, layers are made. Each kind of layer has one method, which a layout
/// overrides to spread the layer or an adapter to change it. It is given `leaves`, the outermost provider:
/// whatever the layer is made of comes from there, so that a graph around this provider hands out its own
/// leaves. One that changes some kinds only names the provider it stands around as [`Provider::inner`]; the
/// others are then made there.
pub trait Provider {
    /// The values of parameter `name`, flat, which the model wants in `shape`.
    ///
    /// # Errors
    /// The parameter is missing or has another shape.
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>>;

    /// Whether there is such a parameter.
    fn has(&self, name: &str) -> bool;

    /// The provider that makes the kinds of layers this one does not.
    fn inner(&self) -> Option<&dyn Provider> {
        None
    }

    /// What layers that look at neighbouring pixels see of an image, where ranks share images.
    fn strip(&self) -> Strip {
        self.inner().and_then(Provider::strip)
    }

    /// The matrix `name` of a linear layer, if it is held in fewer bits than a float; the model wants it in `shape`.
    ///
    /// # Errors
    /// It has another shape.
    fn quantized(&self, name: &str, shape: [usize; 2]) -> Result<Option<QuantizedMatrix>> {
        self.inner().map_or(Ok(None), |inner| inner.quantized(name, shape))
    }

    /// In which types matrices are multiplied. Asked of the outermost provider.
    fn products(&self) -> Products {
        Products::Stored
    }

    /// Takes over the gradients of a block's parameters as soon as they are found, and returns those that it does not
    /// want: a provider of what other ranks hold adds them up over the ranks.
    ///
    /// # Errors
    /// They could not be exchanged.
    fn found(
        &self,
        block: usize,
        gradients: BTreeMap<String, Tensor<1>>,
    ) -> Result<BTreeMap<String, Tensor<1>>> {
        match self.inner() {
            Some(inner) => inner.found(block, gradients),
            None => Ok(gradients),
        }
    }

    /// Which of the `outputs` of the linear layer `name` are computed here.
    fn own_outputs(&self, name: &str, outputs: usize) -> Range<usize> {
        self.inner().map_or(0..outputs, |inner| inner.own_outputs(name, outputs))
    }

    /// What a network makes of a context that no step changes. Whoever runs several passes over one context may
    /// hand out what `make` gave the first time, by `name`, branch and network; a graph never does.
    ///
    /// # Errors
    /// Whatever `make` reports.
    fn remembered(&self, name: &str, make: Make<'_>) -> Result<Vec<Tensor<3>>> {
        match self.inner() {
            Some(inner) => inner.remembered(name, make),
            None => make(),
        }
    }

    /// `x W^T + b`, `W` being `part` of `[outputs, inputs]`, and `b` the same of `[outputs]`.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        [inputs, outputs]: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> Result<Linear> {
        match self.inner() {
            Some(inner) => inner.linear(leaves, name, [inputs, outputs], bias, part),
            None => matrix(leaves, name, &[outputs, inputs], bias, part),
        }
    }

    /// A convolution that is a matrix: kernel and stride equal, over a patch given as one row. `shape` is
    /// `[outputs, inputs, ..kernel]`.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn patch_projection(
        &self,
        leaves: &dyn Provider,
        name: &str,
        shape: &[usize],
        bias: Bias,
    ) -> Result<Linear> {
        match self.inner() {
            Some(inner) => inner.patch_projection(leaves, name, shape, bias),
            None => matrix(leaves, name, shape, bias, &Part::WHOLE),
        }
    }

    /// A 2-D convolution `[outputs, inputs, height, width]` with bias.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn convolution(
        &self,
        leaves: &dyn Provider,
        name: &str,
        shape: [usize; 4],
    ) -> Result<Convolution2d> {
        match self.inner() {
            Some(inner) => inner.convolution(leaves, name, shape),
            None => Ok(Convolution2d {
                weight: stored(leaves, name, "weight", shape)?,
                bias: table(leaves, name, "bias", [shape[0]])?,
                strip: leaves.strip(),
            }),
        }
    }

    /// A causal convolution `[outputs, inputs, time, height, width]` with bias.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn convolution3d(
        &self,
        leaves: &dyn Provider,
        name: &str,
        shape: [usize; 5],
    ) -> Result<Convolution3d> {
        match self.inner() {
            Some(inner) => inner.convolution3d(leaves, name, shape),
            None => Ok(Convolution3d {
                weight: stored(leaves, name, "weight", shape)?,
                bias: table(leaves, name, "bias", [shape[0]])?,
                strip: leaves.strip(),
            }),
        }
    }

    /// Layer norm with weight and bias `[width]`.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn layer_norm(
        &self,
        leaves: &dyn Provider,
        name: &str,
        width: usize,
        epsilon: f32,
    ) -> Result<LayerNorm> {
        match self.inner() {
            Some(inner) => inner.layer_norm(leaves, name, width, epsilon),
            None => {
                let weight = table(leaves, name, "weight", [width])?;
                let affine = Some((weight, table(leaves, name, "bias", [width])?));
                Ok(LayerNorm { affine, epsilon })
            }
        }
    }

    /// Group norm with weight and bias `[width]`.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn group_norm(
        &self,
        leaves: &dyn Provider,
        name: &str,
        [width, groups]: [usize; 2],
        epsilon: f32,
    ) -> Result<GroupNorm> {
        match self.inner() {
            Some(inner) => inner.group_norm(leaves, name, [width, groups], epsilon),
            None => {
                let weight = table(leaves, name, "weight", [width])?;
                let affine = (weight, table(leaves, name, "bias", [width])?);
                Ok(GroupNorm { groups, affine, epsilon, strip: leaves.strip() })
            }
        }
    }

    /// RMS norm with weight `[width]`.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn rms_norm(
        &self,
        leaves: &dyn Provider,
        name: &str,
        width: usize,
        epsilon: f32,
    ) -> Result<RmsNorm> {
        match self.inner() {
            Some(inner) => inner.rms_norm(leaves, name, width, epsilon),
            None => Ok(RmsNorm::dense(table(leaves, name, "weight", [width])?, epsilon)),
        }
    }

    /// Rows of a table `[rows, width]` by index.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn embedding(
        &self,
        leaves: &dyn Provider,
        name: &str,
        [rows, width]: [usize; 2],
    ) -> Result<Embedding> {
        match self.inner() {
            Some(inner) => inner.embedding(leaves, name, [rows, width]),
            None => Ok(Embedding { table: stored(leaves, name, "weight", [rows, width])? }),
        }
    }

    /// A bare tensor, flat and in the type it is stored in, which is no part of a layer.
    ///
    /// # Errors
    /// As [`Provider::values`].
    fn tensor(&self, leaves: &dyn Provider, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        match self.inner() {
            Some(inner) => inner.tensor(leaves, name, shape),
            None => leaves.values(name, shape),
        }
    }
}

impl<P: Provider> Provider for &P {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        (*self).values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        (*self).has(name)
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(*self)
    }
}

/// A layer with a part of its matrix, which the checkpoint has in `shape`: `[outputs, ..inputs]`.
pub(crate) fn matrix(
    leaves: &dyn Provider,
    name: &str,
    shape: &[usize],
    bias: Bias,
    part: &Part,
) -> Result<Linear> {
    let bias = match bias {
        Bias::With => Some(leaves.values(&format!("{name}.bias"), &shape[..1])?),
        Bias::Without => None,
    };
    let name = format!("{name}.weight");
    let inputs = shape[1..].iter().product();
    if let Some(weight) = leaves.quantized(&name, [shape[0], inputs])? {
        let bias = bias.map(|bias| part.of_outputs(bias));
        return Ok(Linear::quantized(part.of_quantized(weight), bias));
    }
    let weight = leaves.values(&name, shape)?;
    let weight = part.of(weight.reshape([shape[0], inputs]));
    let bias = bias.map(|bias| part.of_outputs(bias));
    Ok(match leaves.products() {
        Products::Rounded => Linear::rounding(weight, bias),
        Products::Mixed => Linear::mixed(weight, bias),
        Products::Stored => Linear::dense(weight, bias),
    })
}

/// A part of a layer in the type it is stored in.
fn stored<const D: usize>(
    leaves: &dyn Provider,
    layer: &str,
    part: &str,
    shape: [usize; D],
) -> Result<Tensor<D>> {
    Ok(leaves.values(&format!("{layer}.{part}"), &shape)?.reshape(shape))
}

/// A part of a layer in f32.
fn table<const D: usize>(
    leaves: &dyn Provider,
    layer: &str,
    part: &str,
    shape: [usize; D],
) -> Result<Tensor<D>> {
    Ok(stored(leaves, layer, part, shape)?.cast(DType::F32))
}
