//! Parametrised layers, as handles on their tensors.

use burn::tensor::{DType, Int, Tensor};
use kernels::{Activation, Modulation};

use crate::error::Result;
use crate::quantized::QuantizedMatrix;

/// A linear layer; what is behind it may be dense, sharded or adapted.
pub struct Linear(Box<dyn Project>);

/// The map behind a [`Linear`].
pub trait Project {
    /// `activation(x W^T + b)` of `[rows, inputs]`.
    ///
    /// # Errors
    /// What is behind it cannot be reached.
    fn project(&self, x: Tensor<2>, activation: Activation) -> Result<Tensor<2>>;
}

impl Linear {
    /// A layer with its whole matrix `[outputs, inputs]`.
    pub fn dense(weight: Tensor<2>, bias: Option<Tensor<1>>) -> Linear {
        Linear(Box::new(Dense { weight, bias }))
    }

    /// The same, but if the matrix is bf16, so is what it is multiplied with.
    pub(crate) fn rounding(weight: Tensor<2>, bias: Option<Tensor<1>>) -> Linear {
        Linear(Box::new(Rounding(Dense { weight, bias })))
    }

    /// The same, but every product is of operands rounded to bf16.
    pub(crate) fn mixed(weight: Tensor<2>, bias: Option<Tensor<1>>) -> Linear {
        Linear(Box::new(Mixed(Dense { weight, bias })))
    }

    /// The same with a matrix that is held in fewer bits.
    pub(crate) fn quantized(weight: QuantizedMatrix, bias: Option<Tensor<1>>) -> Linear {
        Linear(Box::new(Quantized { weight, bias }))
    }

    /// A layer with a map of the caller's.
    pub fn of(project: impl Project + 'static) -> Linear {
        Linear(Box::new(project))
    }

    /// `[.., inputs]` to `[.., outputs]`.
    ///
    /// # Errors
    /// What is behind the layer cannot be reached.
    pub fn apply<const D: usize>(&self, x: Tensor<D>) -> Result<Tensor<D>> {
        self.apply_with(x, Activation::Identity)
    }

    /// The same followed by an activation, fused where that is possible.
    ///
    /// # Errors
    /// As [`Linear::apply`].
    pub fn apply_with<const D: usize>(
        &self,
        x: Tensor<D>,
        activation: Activation,
    ) -> Result<Tensor<D>> {
        let mut dims = x.dims();
        let inputs = dims[D - 1];
        let rows = dims[..D - 1].iter().product::<usize>();
        let out = self.0.project(x.reshape([rows, inputs]), activation)?;
        dims[D - 1] = out.dims()[1];
        Ok(out.reshape(dims))
    }
}

struct Dense {
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
}

impl Project for Dense {
    fn project(&self, x: Tensor<2>, activation: Activation) -> Result<Tensor<2>> {
        Ok(kernels::linear(x, self.weight.clone(), self.bias.clone(), activation))
    }
}

/// Rounds its input where the matrix is rounded; a graph keeps what it has.
struct Rounding(Dense);

impl Project for Rounding {
    fn project(&self, x: Tensor<2>, activation: Activation) -> Result<Tensor<2>> {
        let narrow = self.0.weight.dtype() == DType::BF16 && !x.device().is_autodiff();
        self.0.project(if narrow { kernels::to_bf16(x) } else { x }, activation)
    }
}

/// Multiplies in bf16, in a graph too.
struct Mixed(Dense);

impl Project for Mixed {
    fn project(&self, x: Tensor<2>, activation: Activation) -> Result<Tensor<2>> {
        let Dense { weight, bias } = &self.0;
        Ok(kernels::linear_mixed(x, weight.clone(), bias.clone(), activation))
    }
}

struct Quantized {
    weight: QuantizedMatrix,
    bias: Option<Tensor<1>>,
}

impl Project for Quantized {
    fn project(&self, x: Tensor<2>, activation: Activation) -> Result<Tensor<2>> {
        Ok(self.weight.linear(x, self.bias.clone(), activation))
    }
}

/// Layer norm over the last dim.
pub struct LayerNorm {
    /// Weight and bias, if it has them.
    pub affine: Option<(Tensor<1>, Tensor<1>)>,
    /// Added to the variance.
    pub epsilon: f32,
}

impl LayerNorm {
    /// A norm without parameters.
    pub fn plain(epsilon: f32) -> LayerNorm {
        LayerNorm { affine: None, epsilon }
    }

    /// `[B, T, D]`, normalised, then scaled and shifted if modulated.
    pub fn apply(&self, x: Tensor<3>, modulation: Option<&Modulation>) -> Tensor<3> {
        kernels::layer_norm(x, self.affine.clone(), modulation, self.epsilon)
    }
}

/// RMS norm over the last dim; a layout that spreads that dim over ranks puts its own map behind it.
pub struct RmsNorm(Box<dyn Normalize>);

/// The map behind an [`RmsNorm`].
pub trait Normalize {
    /// `[rows, width]`, normalised row by row and scaled.
    ///
    /// # Errors
    /// What is behind it cannot be reached.
    fn normalize(&self, x: Tensor<2>) -> Result<Tensor<2>>;
}

impl RmsNorm {
    /// A norm with its whole weight `[width]`; `epsilon` is added to the mean square.
    pub fn dense(weight: Tensor<1>, epsilon: f32) -> RmsNorm {
        RmsNorm(Box::new(Whole { weight, epsilon }))
    }

    /// A norm with a map of the caller's.
    pub fn of(normalize: impl Normalize + 'static) -> RmsNorm {
        RmsNorm(Box::new(normalize))
    }

    /// `[.., width]`, normalised.
    ///
    /// # Errors
    /// What is behind the norm cannot be reached.
    pub fn apply<const D: usize>(&self, x: Tensor<D>) -> Result<Tensor<D>> {
        let dims = x.dims();
        let rows = dims[..D - 1].iter().product::<usize>();
        Ok(self.0.normalize(x.reshape([rows, dims[D - 1]]))?.reshape(dims))
    }
}

struct Whole {
    weight: Tensor<1>,
    epsilon: f32,
}

impl Normalize for Whole {
    fn normalize(&self, x: Tensor<2>) -> Result<Tensor<2>> {
        Ok(kernels::rms_norm(x, Some(self.weight.clone()), self.epsilon))
    }
}

/// Rows of a table by index.
pub struct Embedding {
    /// `[rows, width]`.
    pub table: Tensor<2>,
}

impl Embedding {
    /// `[B, T]` indices to `[B, T, width]` in f32.
    pub fn apply(&self, index: Tensor<2, Int>) -> Tensor<3> {
        let [batch, tokens] = index.dims();
        let width = self.table.dims()[1];
        let rows = self.table.clone().select(0, index.reshape([batch * tokens]));
        rows.cast(DType::F32).reshape([batch, tokens, width])
    }
}
