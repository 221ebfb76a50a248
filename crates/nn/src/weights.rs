//! The first seam: how parameters come to be.
//!
//! A model asks a [`Weights`] cursor for layers by name and cannot tell where they come from: a
//! mapped checkpoint, random numbers, a graph that wants their gradients, a shard. Layers are
//! handles, so a block can be built just before it runs and dropped after.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor};

use crate::error::{Error, Result, most_similar};
use crate::gguf::merges;
use crate::image::{Convolution2d, Convolution3d, GroupNorm, PixelAttention};
use crate::layers::{Embedding, LayerNorm, Linear, RmsNorm};
use crate::part::Part;
use crate::provider::{Bias, Provider, matrix};
use crate::quantized::QuantizedMatrix;
use crate::store::Store;

/// A cursor over a [`Provider`]: hands out layers below a prefix.
#[derive(Clone)]
pub struct Weights<'a> {
    provider: &'a dyn Provider,
    prefix: String,
}

impl<'a> Weights<'a> {
    /// The root.
    pub fn new(provider: &'a dyn Provider) -> Weights<'a> {
        Weights { provider, prefix: String::new() }
    }

    /// The cursor below `name`.
    pub fn at(&self, name: impl std::fmt::Display) -> Weights<'a> {
        Weights { provider: self.provider, prefix: self.name(name) }
    }

    /// Where the layers come from.
    pub(crate) fn provider(&self) -> &'a dyn Provider {
        self.provider
    }

    /// The same cursor over another provider.
    pub(crate) fn over<'b>(&self, provider: &'b dyn Provider) -> Weights<'b> {
        Weights { provider, prefix: self.prefix.clone() }
    }

    fn name(&self, name: impl std::fmt::Display) -> String {
        match self.prefix.as_str() {
            "" => name.to_string(),
            prefix => format!("{prefix}.{name}"),
        }
    }

    /// Whether parameter `name` exists here.
    pub fn has(&self, name: &str) -> bool {
        self.provider.has(&self.name(name))
    }

    /// What `make` gives, `[B, L, D]` each, of a context alone: text, a picture, nothing that a step or a token
    /// changes. A layout that passes over one context many times has it made once.
    ///
    /// # Errors
    /// Whatever `make` reports.
    ///
    /// # Panics
    /// Panics if something else was made under this name before.
    pub fn remembered<const N: usize>(
        &self,
        name: &str,
        make: impl Fn() -> Result<[Tensor<3>; N]>,
    ) -> Result<[Tensor<3>; N]> {
        let made = self.provider.remembered(&self.name(name), &|| make().map(Vec::from))?;
        Ok(made.try_into().expect("one name stands for one thing"))
    }

    /// `x W^T + b`, `W` being `[outputs, inputs]`.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn linear(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        self.provider.linear(
            self.provider,
            &self.name(name),
            [inputs, outputs],
            Bias::With,
            &Part::WHOLE,
        )
    }

    /// Which of the `outputs` of the linear layer `name` are computed here: some, where ranks share it. A
    /// model whose heads are not alike asks which it is given.
    pub fn own_outputs(&self, name: &str, outputs: usize) -> Range<usize> {
        self.provider.own_outputs(&self.name(name), outputs)
    }

    /// `x W^T`.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn linear_without_bias(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear> {
        self.provider.linear(
            self.provider,
            &self.name(name),
            [inputs, outputs],
            Bias::Without,
            &Part::WHOLE,
        )
    }

    /// A convolution that is a matrix: kernel and stride equal, over a patch given as one row.
    ///
    /// `shape` is `[outputs, inputs, ..kernel]` as the checkpoint has it; the row holds the patch in
    /// the order (input channel, ..kernel).
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn patch_projection(&self, name: &str, shape: &[usize]) -> Result<Linear> {
        self.provider.patch_projection(self.provider, &self.name(name), shape, Bias::With)
    }

    /// [`Weights::patch_projection`] that adds nothing.
    ///
    /// # Errors
    /// The parameter is missing or misshapen.
    pub fn patch_projection_without_bias(&self, name: &str, shape: &[usize]) -> Result<Linear> {
        self.provider.patch_projection(self.provider, &self.name(name), shape, Bias::Without)
    }

    /// A 2-D convolution `[outputs, inputs, kernel, kernel]` with bias.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn convolution(
        &self,
        name: &str,
        [inputs, outputs]: [usize; 2],
        kernel: usize,
    ) -> Result<Convolution2d> {
        let shape = [outputs, inputs, kernel, kernel];
        self.provider.convolution(self.provider, &self.name(name), shape)
    }

    /// A causal convolution `[outputs, inputs, ..kernel]` with bias; the kernel is time, height and
    /// width.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn convolution3d(
        &self,
        name: &str,
        [inputs, outputs]: [usize; 2],
        [time, tall, wide]: [usize; 3],
    ) -> Result<Convolution3d> {
        let shape = [outputs, inputs, time, tall, wide];
        self.provider.convolution3d(self.provider, &self.name(name), shape)
    }

    /// Group norm over images, with weight and bias.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn group_norm(
        &self,
        name: &str,
        [width, groups]: [usize; 2],
        epsilon: f32,
    ) -> Result<GroupNorm> {
        self.provider.group_norm(self.provider, &self.name(name), [width, groups], epsilon)
    }

    /// Self-attention over the pixels of an image.
    pub fn pixel_attention(&self) -> PixelAttention {
        PixelAttention { strip: self.provider.strip() }
    }

    /// Layer norm with weight and bias.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn layer_norm(&self, name: &str, width: usize, epsilon: f32) -> Result<LayerNorm> {
        self.provider.layer_norm(self.provider, &self.name(name), width, epsilon)
    }

    /// RMS norm with weight.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn rms_norm(&self, name: &str, width: usize, epsilon: f32) -> Result<RmsNorm> {
        self.provider.rms_norm(self.provider, &self.name(name), width, epsilon)
    }

    /// Rows of a table by index.
    ///
    /// # Errors
    /// The table is missing or misshapen.
    pub fn embedding(&self, name: &str, rows: usize, width: usize) -> Result<Embedding> {
        self.provider.embedding(self.provider, &self.name(name), [rows, width])
    }

    /// A bare tensor in f32, for what is added or multiplied rather than projected with.
    ///
    /// # Errors
    /// It is missing or misshapen.
    pub fn table<const D: usize>(&self, name: &str, shape: [usize; D]) -> Result<Tensor<D>> {
        Ok(self.stored(name, shape)?.cast(DType::F32))
    }

    /// One number, which the checkpoint holds in a tensor without dims, in f32.
    ///
    /// # Errors
    /// It is missing or misshapen.
    pub fn scalar(&self, name: &str) -> Result<Tensor<1>> {
        let value = self.provider.tensor(self.provider, &self.name(name), &[])?;
        Ok(value.cast(DType::F32))
    }

    /// A bare tensor in the type it is stored in.
    ///
    /// # Errors
    /// It is missing or misshapen.
    pub fn stored<const D: usize>(&self, name: &str, shape: [usize; D]) -> Result<Tensor<D>> {
        let values = self.provider.tensor(self.provider, &self.name(name), &shape)?;
        Ok(values.reshape(shape))
    }
}

impl Provider for Store {
    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        [inputs, outputs]: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> Result<Linear> {
        let base = matrix(leaves, name, &[outputs, inputs], bias, part)?;
        self.beside.beside(leaves, name, [outputs, inputs], base, part)
    }

    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        let Some(parameter) = self.get(name) else {
            if let Some(matrix) = Provider::quantized(self, name, matrix_of(shape))? {
                // Whoever wants its values is no linear layer.
                return Ok(matrix.widened(&Device::flex()).flatten(0, 1));
            }
            return Err(Error::Missing {
                name: name.to_owned(),
                origin: self.origin().to_owned(),
                near: most_similar(name, self.names().into_iter()),
            });
        };
        if parameter.shape != shape && !(self.merges_dims && merges(&parameter.shape, shape)) {
            return Err(Error::Misshapen {
                name: name.to_owned(),
                origin: self.origin().to_owned(),
                got: parameter.shape.clone(),
                want: shape.to_vec(),
            });
        }
        Ok(parameter.values.clone())
    }

    fn has(&self, name: &str) -> bool {
        self.has_any(name)
    }

    fn quantized(&self, name: &str, shape: [usize; 2]) -> Result<Option<QuantizedMatrix>> {
        let Some(matrix) = Store::quantized(self, name) else { return Ok(None) };
        match matrix.shape() == shape {
            true => Ok(Some(matrix.clone())),
            false => Err(Error::Misshapen {
                name: name.to_owned(),
                origin: self.origin().to_owned(),
                got: matrix.shape().to_vec(),
                want: shape.to_vec(),
            }),
        }
    }
}

/// A shape as that of a matrix.
fn matrix_of(shape: &[usize]) -> [usize; 2] {
    [shape.first().copied().unwrap_or(1), shape.iter().skip(1).product()]
}
