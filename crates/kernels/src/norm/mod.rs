//! Layer norm and RMS norm, fused with the scale and shift of adaLN.

mod row;

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;

use crate::levels::Levels;
use crate::modulate::Modulation;
use crate::operation::{Operand, Operation, apply};
use crate::{oracle, storage};
use row::{Parameters, Statistics};

/// Layer norm over the last dim of `x` `[B, T, D]`, then weight and bias `[D]` if given, then
/// `* (1 + scale) + shift` if given; the result is `[B, T, D]`. The variance is the biased one.
///
/// # Panics
/// Panics if the shapes do not belong together; models check shapes when they load.
pub fn layer_norm(
    x: Tensor<3>,
    affine: Option<(Tensor<1>, Tensor<1>)>,
    modulation: Option<&Modulation>,
    epsilon: f32,
) -> Tensor<3> {
    let (weight, bias) = affine.as_ref().map(|(weight, bias)| (weight, bias)).unzip();
    norm(&x, Kind::Layer, [weight, bias], modulation, epsilon)
        .unwrap_or_else(|| oracle::layer_norm(x, affine, modulation, epsilon))
}

/// RMS norm over the last dim of `x` `[.., D]`, then the weight `[D]` if given.
///
/// # Panics
/// Panics if the weight's size is not the last dim of `x`.
pub fn rms_norm<const D: usize>(
    x: Tensor<D>,
    weight: Option<Tensor<1>>,
    epsilon: f32,
) -> Tensor<D> {
    let shape = x.dims();
    let width = shape[D - 1];
    let rows = shape[..D - 1].iter().product();
    norm(&x.clone().reshape([1, rows, width]), Kind::Rms, [weight.as_ref(), None], None, epsilon)
        .map_or_else(|| oracle::rms_norm(x, weight, epsilon), |out| out.reshape(shape))
}

/// RMS norm of `x` `[B, T, D]`, then the weight `[D]` if given, then `* (1 + scale) + shift`.
///
/// # Panics
/// Panics if the shapes do not belong together.
pub fn modulated_rms_norm(
    x: Tensor<3>,
    weight: Option<Tensor<1>>,
    modulation: &Modulation,
    epsilon: f32,
) -> Tensor<3> {
    norm(&x, Kind::Rms, [weight.as_ref(), None], Some(modulation), epsilon)
        .unwrap_or_else(|| oracle::modulated_rms_norm(x, weight, modulation, epsilon))
}

/// `None` if a tensor lives on another backend.
fn norm(
    x: &Tensor<3>,
    kind: Kind,
    [weight, bias]: [Option<&Tensor<1>>; 2],
    modulation: Option<&Modulation>,
    epsilon: f32,
) -> Option<Tensor<3>> {
    let [batch, tokens, width] = x.dims();
    for parameter in [weight, bias].into_iter().flatten() {
        let [size] = parameter.dims();
        assert_eq!(size, width, "a norm's parameter of size {size} meets tokens of width {width}");
    }
    let inputs = [
        Operand::new(x)?,
        optional(weight)?,
        optional(bias)?,
        optional(modulation.map(|modulation| &modulation.scale))?,
        optional(modulation.map(|modulation| &modulation.shift))?,
    ];
    let levels = match modulation {
        Some(modulation) => modulation.levels(x),
        None => Levels::none(batch * tokens),
    };
    Some(apply(&Norm { kind, epsilon, levels }, inputs))
}

/// An absent parameter is a constant without elements.
fn optional<const D: usize>(tensor: Option<&Tensor<D>>) -> Option<Operand> {
    match tensor {
        Some(tensor) => Operand::new(tensor),
        None => Some(Operand::Plain(storage::tensor(Vec::new(), [0]))),
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    /// Subtracts the mean and divides by the standard deviation.
    Layer,
    /// Divides by the root of the mean square.
    Rms,
}

#[derive(Clone, Debug)]
struct Norm {
    kind: Kind,
    epsilon: f32,
    levels: Levels,
}

impl Operation<5> for Norm {
    type Saved = [FlexTensor; 5];

    fn forward(&self, inputs: [FlexTensor; 5]) -> (FlexTensor, [FlexTensor; 5]) {
        let inputs = inputs.map(storage::contiguous);
        let shape = storage::sizes(&inputs[0]);
        let width = shape[2];
        let values = inputs.each_ref().map(storage::values);
        let (out, _) = self.levels.write(
            width,
            0,
            #[inline(always)]
            |row, slots, _| {
                let x = &values[0][row * width..][..width];
                let statistics = Statistics::new(self.kind, x, self.epsilon);
                self.parameters(&values, width, row).forward(x, statistics, slots)
            },
        );
        (storage::tensor(out, shape), inputs)
    }

    fn backward(
        &self,
        inputs: [FlexTensor; 5],
        gradient: FlexTensor,
        wanted: [bool; 5],
    ) -> [Option<FlexTensor>; 5] {
        let gradient = storage::contiguous(gradient);
        let shape = storage::sizes(&inputs[0]);
        let width = shape[2];
        let values = inputs.each_ref().map(storage::values);
        let upstream = storage::values(&gradient);
        // Each of weight, bias, scale and shift has its part of the sums, wanted or not.
        let partial = if wanted[1..].contains(&true) { 4 * width } else { 0 };
        let (out, sums) = self.levels.write(
            width,
            partial,
            #[inline(always)]
            |row, slots, sums| {
                let x = &values[0][row * width..][..width];
                let gradient = &upstream[row * width..][..width];
                let parameters = self.parameters(&values, width, row);
                let statistics = Statistics::new(self.kind, x, self.epsilon);
                if !sums.is_empty() {
                    parameters.add_gradients(x, statistics, gradient, sums);
                }
                let out = parameters.backward(gradient, slots);
                statistics.backward(self.kind, x, out);
                out
            },
        );
        let vector = |part| storage::tensor(sums.total(part), [width]);
        let table = |part| storage::tensor(sums.per_level(part), storage::sizes(&inputs[3]));
        [
            wanted[0].then(|| storage::tensor(out, shape)),
            wanted[1].then(|| vector(0..width)),
            wanted[2].then(|| vector(width..2 * width)),
            wanted[3].then(|| table(2 * width..3 * width)),
            wanted[4].then(|| table(3 * width..4 * width)),
        ]
    }
}

impl Norm {
    /// The parameters of one row, out of the inputs' values.
    #[inline(always)]
    fn parameters<'a>(&self, inputs: &[&'a [f32]; 5], width: usize, row: usize) -> Parameters<'a> {
        let [_, weight, bias, scale, shift] = *inputs;
        let present = |values: &'a [f32]| Some(values).filter(|values| !values.is_empty());
        let of_row = |table: &'a [f32]| self.levels.row(table, width, row);
        Parameters {
            weight: present(weight),
            bias: present(bias),
            scale: present(scale).map(of_row),
            shift: present(shift).map(of_row),
        }
    }
}
