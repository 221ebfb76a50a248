//! The second seam: how tokens mix.

use std::fmt;

use burn::tensor::Tensor;
use kernels::AttentionInputs;

use crate::error::Result;

/// Which attention of a model is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// The block.
    pub layer: usize,
    /// The attention within it.
    pub name: &'static str,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of block {}", self.name, self.layer)
    }
}

/// Queries `[B, T, N, H]`, keys and values `[B, S, N, H]`.
#[derive(Clone, Debug)]
pub struct Qkv {
    /// Queries.
    pub q: Tensor<4>,
    /// Keys.
    pub k: Tensor<4>,
    /// Values.
    pub v: Tensor<4>,
}

/// What the keys are, seen from the queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The queries' own tokens, sharded as they are: self-attention.
    Own,
    /// Keys that every rank holds whole: text, an image.
    Replicated,
    /// The first `text` keys are replicated, the rest are the queries' own; counted once.
    Joint {
        /// How many keys lead.
        text: usize,
    },
    /// Only tokens that share the coordinate on this axis of `positions`.
    Within {
        /// The axis.
        axis: usize,
    },
}

/// How tokens mix: the plain kernel, or a layout around one.
pub trait Attention {
    /// Attends and returns `[B, T, N, H]`.
    ///
    /// The scale is `1 / sqrt(H)`. `mask` is added to the scores, `[B | 1, N | 1, T | 1, S]`,
    /// addressed by the global index of the token.
    ///
    /// # Errors
    /// This implementation cannot do that here, or its exchange failed.
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Tensor<4>>,
    ) -> Result<Tensor<4>>;
}

/// One device that holds every token.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Attention for Plain {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Tensor<4>>,
    ) -> Result<Tensor<4>> {
        if let Reach::Within { axis } = reach {
            return Err(crate::Error::Attention {
                layout: "the plain kernel",
                site: site.to_string(),
                reason: format!("attention within axis {axis} has no family that needs it yet"),
            });
        }
        let scale = 1.0 / (qkv.q.dims()[3] as f32).sqrt();
        let Qkv { q, k, v } = qkv;
        Ok(kernels::attention(AttentionInputs { q, k, v, mask: mask.cloned(), scale }))
    }
}
