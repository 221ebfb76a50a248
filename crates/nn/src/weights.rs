//! The first seam: how parameters come to be.
//!
//! A model asks a [`Weights`] cursor for layers by name and cannot tell where they come from: a
//! mapped checkpoint, random numbers, a graph that wants their gradients, a shard. Layers are
//! handles, so a block can be built just before it runs and dropped after.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use burn::tensor::{DType, Tensor};
use kernels::Int8Matrix;

use crate::error::{Error, Result, most_similar};
use crate::image::{Convolution2d, Convolution3d, GroupNorm, PixelAttention};
use crate::layers::{Embedding, LayerNorm, Linear, RmsNorm};
use crate::part::Part;
use crate::provider::{Bias, Provider};
use crate::store::{Parameter, Store};

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
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        let parameter = self.get(name).ok_or_else(|| Error::Missing {
            name: name.to_owned(),
            origin: self.origin().to_owned(),
            near: most_similar(name, self.iter().map(|(name, _)| name)),
        })?;
        if parameter.shape != shape {
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
        self.get(name).is_some() || Store::quantized(self, name).is_some()
    }

    fn quantized(&self, name: &str, shape: [usize; 2]) -> Result<Option<Int8Matrix>> {
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

/// A store that remembers what was asked of it.
struct Watched<'a> {
    store: &'a Store,
    used: RefCell<BTreeSet<String>>,
    /// The matrices of linear layers.
    linears: RefCell<BTreeSet<String>>,
}

impl Provider for Watched<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.used.borrow_mut().insert(name.to_owned());
        self.store.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        Provider::has(self.store, name)
    }

    fn linear(
        &self,
        leaves: &dyn Provider,
        name: &str,
        sizes: [usize; 2],
        bias: Bias,
        part: &Part,
    ) -> Result<Linear> {
        self.linears.borrow_mut().insert(format!("{name}.weight"));
        self.store.linear(leaves, name, sizes, bias, part)
    }
}

impl Store {
    /// Checks that a model and this store agree: `declare` asks for every layer of the model once,
    /// and whatever it does not ask for must not be here, except names that `ignored` accepts. Returns
    /// the names of the matrices of its linear layers.
    ///
    /// # Errors
    /// A parameter is missing, misshapen or unused.
    pub fn agree(
        &self,
        ignored: &[&str],
        declare: impl FnOnce(&Weights<'_>) -> Result<()>,
    ) -> Result<BTreeSet<String>> {
        let (used, linears) = (RefCell::default(), RefCell::default());
        let watched = Watched { store: self, used, linears };
        declare(&Weights::new(&watched))?;
        let used = watched.used.into_inner();
        let unused: Vec<&str> = self
            .iter()
            .map(|(name, _)| name)
            .filter(|name| !used.contains(*name) && !ignored.contains(name))
            .collect();
        match unused.first() {
            None => Ok(watched.linears.into_inner()),
            Some(name) => Err(Error::Unused {
                name: (*name).to_owned(),
                count: unused.len(),
                origin: self.origin().to_owned(),
                near: most_similar(name, used.iter().map(String::as_str)),
            }),
        }
    }

    /// The shape of every parameter a model declares, found by asking without a store.
    ///
    /// # Errors
    /// Whatever `declare` reports.
    pub fn declared(
        declare: impl FnOnce(&Weights<'_>) -> Result<()>,
        fill: impl Fn(&str, &[usize]) -> Tensor<1>,
    ) -> Result<Store> {
        let filling = Filling { fill, store: RefCell::new(Store::new("new parameters")) };
        declare(&Weights::new(&filling))?;
        Ok(filling.store.into_inner())
    }
}

/// Makes every parameter as it is asked for: random initialisation through the same constructors.
struct Filling<F> {
    fill: F,
    store: RefCell<Store>,
}

impl<F: Fn(&str, &[usize]) -> Tensor<1>> Provider for Filling<F> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        let values = (self.fill)(name, shape);
        let parameter = Parameter { values: values.clone(), shape: shape.to_vec() };
        self.store.borrow_mut().insert(name, parameter);
        Ok(values)
    }

    fn has(&self, _: &str) -> bool {
        true
    }
}
