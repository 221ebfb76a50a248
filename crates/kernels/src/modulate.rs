//! adaLN outside the norm: scale and shift alone, and the gate of a residual branch.
//!
//! Modulation is given per *level*: a sample has `K` distinct noise levels, and each of its tokens
//! says which one is its own, so that a table of `K` rows serves any number of tokens.

use burn::backend::flex::FlexTensor;
use burn::tensor::{Int, Tensor};

use crate::lanes::{map, update};
use crate::levels::Levels;
use crate::operation::{Operand, Operation, apply};
use crate::rows::update_rows;
use crate::{oracle, storage};

/// The scale and shift of an adaptive norm, per level.
#[derive(Clone, Debug)]
pub struct Modulation {
    /// `[B, K, D]`; a row is multiplied by `1 + scale`.
    pub scale: Tensor<3>,
    /// `[B, K, D]`.
    pub shift: Tensor<3>,
    /// `[B, T]`, the level of each token, below `K`. `None` where `K` is 1.
    pub index: Option<Tensor<2, Int>>,
}

impl Modulation {
    /// Which level each token of `x` `[B, T, D]` has.
    pub(crate) fn levels(&self, x: &Tensor<3>) -> Levels {
        assert_eq!(self.scale.dims(), self.shift.dims(), "scale and shift have one shape");
        levels(x, &self.scale, self.index.as_ref())
    }
}

/// `x * (1 + scale) + shift`, where `x` and the result are `[B, T, D]`.
///
/// # Panics
/// Panics if the modulation is not one of `x`: another batch or width, or a level not below `K`.
pub fn modulate(x: Tensor<3>, modulation: &Modulation) -> Tensor<3> {
    let operands =
        (Operand::new(&x), Operand::new(&modulation.scale), Operand::new(&modulation.shift));
    let (Some(values), Some(scale), Some(shift)) = operands else {
        return oracle::modulate(x, modulation);
    };
    apply(&Modulate(modulation.levels(&x)), [values, scale, shift])
}

/// `residual + gate * branch`, where `residual`, `branch` and the result are `[B, T, D]`, `gate` is
/// `[B, K, D]` and `index` `[B, T]` gives each token its level (`None` where `K` is 1).
///
/// # Panics
/// Panics if the shapes do not belong together or a level is not below `K`.
pub fn gated_residual(
    residual: Tensor<3>,
    branch: Tensor<3>,
    gate: Tensor<3>,
    index: Option<Tensor<2, Int>>,
) -> Tensor<3> {
    let operands = (Operand::new(&residual), Operand::new(&branch), Operand::new(&gate));
    let (Some(left), Some(right), Some(factor)) = operands else {
        return oracle::gated_residual(residual, branch, gate, index);
    };
    assert_eq!(residual.dims(), branch.dims(), "a residual and its branch have one shape");
    let levels = levels(&residual, &gate, index.as_ref());
    // The last handles of the caller's: the sum may take the place of the branch.
    drop((residual, branch));
    apply(&Gate(levels), [left, right, factor])
}

fn levels(x: &Tensor<3>, table: &Tensor<3>, index: Option<&Tensor<2, Int>>) -> Levels {
    let [batch, tokens, width] = x.dims();
    let [samples, count, columns] = table.dims();
    assert_eq!(width, columns, "modulation of width {columns} meets tokens of width {width}");
    Levels::new([batch, tokens], [samples, count], index)
}

#[derive(Clone, Debug)]
struct Modulate(Levels);

impl Operation<3> for Modulate {
    type Saved = [FlexTensor; 2];

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, [FlexTensor; 2]) {
        let [x, scale, shift] = inputs.map(storage::contiguous);
        let [values, scales, shifts] = [&x, &scale, &shift].map(storage::values);
        let (levels, shape) = (&self.0, storage::sizes(&x));
        let width = shape[2];
        let (out, _) = levels.write(
            width,
            0,
            #[inline(always)]
            |row, slots, _| {
                let (scale, shift) =
                    (levels.row(scales, width, row), levels.row(shifts, width, row));
                let inputs = [&values[row * width..][..width], scale, shift];
                map(slots, inputs, |[x, scale, shift]| x.mul_add(1.0 + scale, shift))
            },
        );
        (storage::tensor(out, shape), [x, scale])
    }

    fn backward(
        &self,
        [x, scale]: [FlexTensor; 2],
        gradient: FlexTensor,
        wanted: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let gradient = storage::contiguous(gradient);
        let [upstream, values, scales] = [&gradient, &x, &scale].map(storage::values);
        let (levels, shape) = (&self.0, storage::sizes(&x));
        let width = shape[2];
        let partial = if wanted[1] || wanted[2] { 2 * width } else { 0 };
        let (out, sums) = levels.write(
            width,
            partial,
            #[inline(always)]
            |row, slots, sums| {
                let gradient = &upstream[row * width..][..width];
                if let Some((scale, shift)) = sums.split_at_mut_checked(width) {
                    let x = &values[row * width..][..width];
                    update(scale, [gradient, x], |sum, [g, x]| g.mul_add(x, sum));
                    update(shift, [gradient], |sum, [g]| sum + g);
                }
                let inputs = [gradient, levels.row(scales, width, row)];
                map(slots, inputs, |[g, scale]| g * (1.0 + scale))
            },
        );
        let table = |part| storage::tensor(sums.per_level(part), storage::sizes(&scale));
        [
            wanted[0].then(|| storage::tensor(out, shape)),
            wanted[1].then(|| table(0..width)),
            wanted[2].then(|| table(width..2 * width)),
        ]
    }
}

#[derive(Clone, Debug)]
struct Gate(Levels);

impl Operation<3> for Gate {
    type Saved = [FlexTensor; 2];

    fn plain(&self, inputs: [FlexTensor; 3]) -> FlexTensor {
        let [residual, mut branch, gate] = inputs.map(storage::contiguous);
        let width = storage::sizes(&residual)[2];
        let (residuals, gates) = (storage::values(&residual), storage::values(&gate));
        let Some(branches) = storage::own(&mut branch) else {
            return self.forward([residual, branch, gate]).0;
        };
        update_rows(
            branches,
            width,
            #[inline(always)]
            |row, branch| {
                let residual = &residuals[row * width..][..width];
                let gate = self.0.row(gates, width, row);
                update(branch, [residual, gate], |branch, [residual, gate]| {
                    gate.mul_add(branch, residual)
                });
            },
        );
        branch
    }

    fn forward(&self, inputs: [FlexTensor; 3]) -> (FlexTensor, [FlexTensor; 2]) {
        let [residual, branch, gate] = inputs.map(storage::contiguous);
        let [residuals, branches, gates] = [&residual, &branch, &gate].map(storage::values);
        let (levels, shape) = (&self.0, storage::sizes(&residual));
        let width = shape[2];
        let (out, _) = levels.write(
            width,
            0,
            #[inline(always)]
            |row, slots, _| {
                let residual = &residuals[row * width..][..width];
                let branch = &branches[row * width..][..width];
                let gate = levels.row(gates, width, row);
                map(slots, [residual, branch, gate], |[residual, branch, gate]| {
                    gate.mul_add(branch, residual)
                })
            },
        );
        (storage::tensor(out, shape), [branch, gate])
    }

    fn backward(
        &self,
        [branch, gate]: [FlexTensor; 2],
        gradient: FlexTensor,
        wanted: [bool; 3],
    ) -> [Option<FlexTensor>; 3] {
        let gradient = storage::contiguous(gradient);
        let [upstream, branches, gates] = [&gradient, &branch, &gate].map(storage::values);
        let (levels, shape) = (&self.0, storage::sizes(&branch));
        let width = shape[2];
        let (out, sums) = levels.write(
            width,
            if wanted[2] { width } else { 0 },
            #[inline(always)]
            |row, slots, sums| {
                let gradient = &upstream[row * width..][..width];
                let branch = &branches[row * width..][..width];
                update(sums, [gradient, branch], |sum, [g, branch]| g.mul_add(branch, sum));
                let inputs = [gradient, levels.row(gates, width, row)];
                map(slots, inputs, |[g, gate]| g * gate)
            },
        );
        let gate =
            wanted[2].then(|| storage::tensor(sums.per_level(0..width), storage::sizes(&gate)));
        [wanted[0].then_some(gradient), wanted[1].then(|| storage::tensor(out, shape)), gate]
    }
}
