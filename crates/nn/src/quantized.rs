//! Matrices of linear layers that are held in fewer bits than a float.

use std::collections::BTreeSet;
use std::ops::Range;

use burn::tensor::{Device, Tensor};
use kernels::{Activation, BlockMatrix, Int8Matrix};

use crate::lora::{Change, changed};
use crate::store::{Parameter, Quantization, Store};

/// A matrix `[outputs, inputs]`. Clones share it. It never learns.
#[derive(Clone, Debug)]
pub enum QuantizedMatrix {
    /// Bytes with one scale per output; its input is rounded to bytes too.
    Int8(Int8Matrix),
    /// Blocks as a file has them; its input is not rounded.
    Blocks(BlockMatrix),
}

impl QuantizedMatrix {
    /// `[outputs, inputs]`.
    pub fn shape(&self) -> [usize; 2] {
        match self {
            QuantizedMatrix::Int8(own) => own.shape(),
            QuantizedMatrix::Blocks(own) => own.shape(),
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        match self {
            QuantizedMatrix::Int8(own) => own.bytes(),
            QuantizedMatrix::Blocks(own) => own.bytes(),
        }
    }

    /// What it stands for, in f32.
    pub fn widened(&self, device: &Device) -> Tensor<2> {
        match self {
            QuantizedMatrix::Int8(own) => own.widened(device),
            QuantizedMatrix::Blocks(own) => own.widened(device),
        }
    }

    /// Some of its outputs and some of its inputs.
    pub(crate) fn part(&self, outputs: Range<usize>, inputs: Range<usize>) -> QuantizedMatrix {
        match self {
            QuantizedMatrix::Int8(own) => QuantizedMatrix::Int8(own.part(outputs, inputs)),
            QuantizedMatrix::Blocks(own) => QuantizedMatrix::Blocks(own.part(outputs, inputs)),
        }
    }

    /// `activation(x W^T + b)`.
    pub(crate) fn linear(
        &self,
        x: Tensor<2>,
        bias: Option<Tensor<1>>,
        activation: Activation,
    ) -> Tensor<2> {
        match self {
            QuantizedMatrix::Int8(own) => kernels::linear_int8(x, own, bias, activation),
            QuantizedMatrix::Blocks(own) => kernels::linear_blocks(x, own, bias, activation),
        }
    }
}

impl Store {
    /// Holds those of the named parameters that are matrices as `quantization` says, one after the other:
    /// none but the last is held as it was any more. They are then found by [`Store::quantized`] alone.
    pub fn quantize<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
        quantization: Quantization,
    ) {
        let Quantization::Int8 = quantization;
        for name in names {
            let matrix: Option<Tensor<2>> = match (self.get(name), self.quantized.get(name)) {
                (Some(own), _) if own.shape.len() == 2 => self.remove(name).map(|own| own.tensor()),
                (None, Some(QuantizedMatrix::Blocks(own))) => Some(own.widened(&Device::flex())),
                _ => None,
            };
            if let Some(matrix) = matrix {
                let matrix = QuantizedMatrix::Int8(Int8Matrix::nearest(matrix));
                self.quantized.insert(name.to_owned(), matrix);
            }
        }
    }

    /// A matrix that is held in fewer bits.
    pub fn quantized(&self, name: &str) -> Option<&QuantizedMatrix> {
        self.quantized.get(name)
    }

    /// All matrices that are held in fewer bits, in order of name.
    pub fn quantized_matrices(&self) -> impl Iterator<Item = (&str, &QuantizedMatrix)> {
        self.quantized.iter().map(|(name, own)| (name.as_str(), own))
    }

    /// Whether there is such a parameter, in whichever form.
    pub fn has_any(&self, name: &str) -> bool {
        self.get(name).is_some() || self.quantized.contains_key(name)
    }

    /// The names of all parameters, in whichever form, in their order.
    pub fn names(&self) -> BTreeSet<&str> {
        let floats = self.iter().map(|(name, _)| name);
        floats.chain(self.quantized.keys().map(String::as_str)).collect()
    }

    /// The shape of a parameter, in whichever form it is.
    pub fn shape(&self, name: &str) -> Option<Vec<usize>> {
        let quantized = || self.quantized.get(name).map(|own| own.shape().to_vec());
        self.get(name).map(|own| own.shape.clone()).or_else(quantized)
    }

    /// How many numbers all parameters are.
    pub fn numbers(&self) -> u64 {
        let floats = self.iter().map(|(_, own)| own.values.dims()[0]);
        let quantized = self.quantized.values().map(|own| own.shape().iter().product());
        floats.chain(quantized).map(|count: usize| count as u64).sum()
    }

    /// Bytes of the matrices that are held in fewer bits.
    pub fn quantized_bytes(&self) -> u64 {
        self.quantized.values().map(|own| own.bytes() as u64).sum()
    }

    /// Takes over the matrices of another store that are held in fewer bits, which they share.
    pub fn share_quantized(&mut self, other: &Store) {
        self.quantized.extend(other.quantized.clone());
        self.beside.extend(other.beside.clone());
    }

    /// Whether low-rank changes are beside a parameter.
    pub fn has_changes(&self, name: &str) -> bool {
        self.beside.has(name)
    }

    /// A parameter as floats, with the low-rank changes that are beside it: a matrix that is quantized in f32.
    pub fn as_floats(&self, name: &str) -> Option<Parameter> {
        let device = Device::flex();
        let widened = || self.quantized.get(name).map(|own| Parameter::new(own.widened(&device)));
        let own = self.get(name).cloned().or_else(widened)?;
        let changes: Vec<Change> =
            self.beside.held(name).into_iter().map(Change::LowRank).collect();
        Some(if changes.is_empty() { own } else { changed(&own, &changes) })
    }
}
