//! adaLN-single: one modulation for all blocks, to which each block adds a table of its own.

use burn::tensor::{Int, Tensor};
use kernels::{Modulation, gated_residual};

use crate::layers::LayerNorm;

/// Row `i` of a table `[R, D]` added to part `i` of what all blocks share, `[B, K, R D]`.
pub fn table_rows<const R: usize>(table: &Tensor<2>, shared: &Tensor<3>) -> [Tensor<3>; R] {
    let [_, width] = table.dims();
    let sum = table.clone().reshape([1, 1, R * width]) + shared.clone();
    std::array::from_fn(|row| sum.clone().narrow(2, row * width, width))
}

/// What adaLN does around one part of a block: it scales and shifts before, and gates after. All are
/// `[B, K, D]`, and `index` `[B, T]` says which of the `K` levels a token has.
pub struct AdaLn {
    scale: Tensor<3>,
    shift: Tensor<3>,
    gate: Tensor<3>,
    index: Option<Tensor<2, Int>>,
}

impl AdaLn {
    /// Around the two parts of a block, of six rows: shift, scale and gate of each.
    pub fn pair(
        table: &Tensor<2>,
        shared: &Tensor<3>,
        index: Option<&Tensor<2, Int>>,
    ) -> [AdaLn; 2] {
        let mut rows = table_rows::<6>(table, shared).into_iter();
        let mut next = || rows.next().expect("there are six rows");
        std::array::from_fn(|_| {
            let (shift, scale, gate) = (next(), next(), next());
            AdaLn { scale, shift, gate, index: index.cloned() }
        })
    }

    /// `x` `[B, T, D]`, normalised, scaled and shifted.
    pub fn before(&self, norm: &LayerNorm, x: Tensor<3>) -> Tensor<3> {
        let (scale, shift) = (self.scale.clone(), self.shift.clone());
        norm.apply(x, Some(&Modulation { scale, shift, index: self.index.clone() }))
    }

    /// `x` and, gated, what the part made of it, all `[B, T, D]`.
    pub fn after(self, x: Tensor<3>, part: Tensor<3>) -> Tensor<3> {
        gated_residual(x, part, self.gate, self.index)
    }
}
