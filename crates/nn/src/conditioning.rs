//! What a noise level and a prompt become before the blocks, for transformers with adaLN-single and
//! cross-attention to a text.

use burn::tensor::{Int, Tensor};

use crate::error::Result;
use crate::layers::LayerNorm;
use crate::mask::Mask;
use crate::modulation::{AdaLn, table_rows};
use crate::packed::{Bag, Entry, Packed};
use kernels::Modulation;

/// What every block sees of the noise level and the prompt.
#[derive(Clone, Debug)]
pub struct Conditioning {
    /// One modulation for all blocks, `[B, K, 6 D]`.
    pub modulation: Tensor<3>,
    /// The embedded noise level, `[B, K, D]`.
    pub embedded: Tensor<3>,
    /// The level of every token, `[B, T]`.
    pub index: Option<Tensor<2, Int>>,
    /// The text, `[B, L, D]`.
    pub text: Tensor<3>,
    /// Added to the scores of the text, `[B, 1, 1, L]`.
    pub text_mask: Option<Tensor<4>>,
}

impl Conditioning {
    /// adaLN around the two parts of a block, whose table is `[6, D]`.
    pub fn around(&self, table: &Tensor<2>) -> [AdaLn; 2] {
        AdaLn::pair(table, &self.modulation, self.index.as_ref())
    }

    /// The mask of an attention to the text.
    pub fn mask(&self) -> Option<Mask> {
        self.text_mask.clone().map(Mask::Dense)
    }

    /// The last norm of `x` `[B, T, D]`, shifted and scaled by the level with a table `[2, D]`.
    pub fn last_norm(&self, norm: &LayerNorm, table: &Tensor<2>, x: Tensor<3>) -> Tensor<3> {
        let [shift, scale] = table_rows(table, &self.embedded.clone().repeat_dim(2, 2));
        norm.apply(x, Some(&Modulation { scale, shift, index: self.index.clone() }))
    }
}

impl Bag for Conditioning {
    fn pack(self) -> Packed {
        Packed::of([
            ("modulation", Entry::tensor(self.modulation)),
            ("embedded", Entry::tensor(self.embedded)),
            ("index", Entry::optional(self.index.map(Entry::integers))),
            ("text", Entry::tensor(self.text)),
            ("text_mask", Entry::optional(self.text_mask.map(Entry::constant))),
        ])
    }

    fn unpack(mut packed: Packed) -> Result<Conditioning> {
        let conditioning = Conditioning {
            modulation: packed.tensor("modulation")?,
            embedded: packed.tensor("embedded")?,
            index: packed.optional("index", Packed::integers)?,
            text: packed.tensor("text")?,
            text_mask: packed.optional("text_mask", Packed::constant)?,
        };
        packed.finish().map(|()| conditioning)
    }
}
