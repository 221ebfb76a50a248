//! The second seam: how tokens mix.

use std::fmt;

use burn::tensor::Tensor;
use kernels::AttentionInputs;

use crate::error::{Error, Result};
use crate::mask::Mask;
use crate::tracks::TrackName;

/// Which attention of a model is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The block.
    pub layer: usize,
    /// The attention within it.
    pub name: &'static str,
    /// Whose tokens ask: two streams may have equally many.
    pub track: TrackName,
}

impl Site {
    /// Whose tokens answer, where they are a stream's.
    pub fn keys(&self, reach: Reach) -> TrackName {
        match reach {
            Reach::Sharded => self.track.other(),
            Reach::Own | Reach::Replicated | Reach::Joint { .. } | Reach::Within { .. } => {
                self.track
            }
        }
    }
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

/// `[B, T, N H]` to `[B, T, N, H]`. How many heads there are is read off the tensor: a rank may hold some
/// of them only.
pub fn split_heads(x: Tensor<3>, head_width: usize) -> Tensor<4> {
    let [batch, tokens, width] = x.dims();
    x.reshape([batch, tokens, width / head_width, head_width])
}

/// `[B, T, N, H]` to `[B, T, N H]`.
pub fn join_heads(x: Tensor<4>) -> Tensor<3> {
    let [batch, tokens, heads, head_width] = x.dims();
    x.reshape([batch, tokens, heads * head_width])
}

/// What queries and keys are. A layout that spreads tokens over ranks knows from it which of them a rank
/// holds; the answer belongs to the queries and is spread as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Self-attention: queries and keys are the same tokens of one stream, in the same order, spread
    /// alike. Never another stream's tokens, even if there are as many.
    Own,
    /// Queries of one stream, keys of another, each spread as its own stream is: one voice listens to
    /// another.
    Sharded,
    /// Queries are spread as their stream is; every rank holds all keys, the same ones: text, an image.
    Replicated,
    /// Text and one stream in one sequence: the first `text` queries and the first `text` keys are
    /// replicated text, the rest of both is the stream's own, spread alike. Every query sees all text,
    /// counted once however many ranks hold it, and the whole stream. The answer to the text is
    /// replicated too.
    Joint {
        /// How many tokens lead.
        text: usize,
    },
    /// [`Reach::Own`], of which only tokens that share the coordinate on this axis of `positions` see
    /// each other.
    Within {
        /// The axis.
        axis: usize,
    },
}

/// How tokens mix: the plain kernel, or a layout around one.
///
/// The contract between who asks and who answers:
///
/// - Within one forward pass a site is entered once, so that what is kept can be kept by site. A whole
///   block may be run again, to go back through it; its sites are then entered again with the same
///   values, and must answer the same bits.
/// - Every rank enters the same sites in the same order, with the same reach and mask.
/// - Queries and keys are what [`Reach`] says. A reach, a mask or a number of heads that an
///   implementation cannot serve is refused by name, and by every rank alike.
/// - Masks are addressed by the global index of the token, whatever part of the tokens a rank holds.
pub trait Attention {
    /// Attends and returns `[B, T, N, H]`. The scale is `1 / sqrt(H)`.
    ///
    /// # Errors
    /// This implementation cannot do that here, or its exchange failed.
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>>;
}

impl Qkv {
    /// Checks that queries, keys and values fit each other and what `reach` says of them.
    ///
    /// # Errors
    /// What does not fit, as a refusal of `layout`.
    pub fn check(&self, layout: &'static str, site: Site, reach: Reach) -> Result<()> {
        let [batch, queries, heads, width] = self.q.dims();
        let [_, keys, _, _] = self.k.dims();
        let fault =
            if self.k.dims() != [batch, keys, heads, width] || self.v.dims() != self.k.dims() {
                let dims = [self.q.dims(), self.k.dims(), self.v.dims()];
                Some(format!("queries, keys and values of shapes {dims:?} do not fit each other"))
            } else {
                match reach {
                    Reach::Own | Reach::Within { .. } if queries != keys => Some(format!(
                        "{queries} queries and {keys} keys are not the same tokens; \
                     say `Sharded` for another stream's and `Replicated` for text"
                    )),
                    Reach::Joint { text } if queries != keys || text > keys => Some(format!(
                        "{queries} queries and {keys} keys are not {text} of text and one stream"
                    )),
                    _ => None,
                }
            };
        match fault {
            None => Ok(()),
            Some(reason) => Err(Error::Attention { layout, site: site.to_string(), reason }),
        }
    }
}

/// One device that holds every token.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

/// What it is called when it refuses.
const PLAIN: &str = "the plain kernel";

impl Attention for Plain {
    fn attend(
        &mut self,
        site: Site,
        qkv: Qkv,
        reach: Reach,
        mask: Option<&Mask>,
    ) -> Result<Tensor<4>> {
        let refuse =
            |reason: String| Error::Attention { layout: PLAIN, site: site.to_string(), reason };
        qkv.check(PLAIN, site, reach)?;
        if let Reach::Within { axis } = reach {
            let reason = format!("attention within axis {axis} has no family that needs it yet");
            return Err(refuse(reason));
        }
        match mask {
            None => Ok(kernel(qkv, None)),
            Some(mask) => {
                mask.check(&qkv, reach).map_err(refuse)?;
                Ok(mask.attend(qkv))
            }
        }
    }
}

/// All queries see all keys, but for a dense mask that is added to the scores.
pub(crate) fn kernel(Qkv { q, k, v }: Qkv, mask: Option<Tensor<4>>) -> Tensor<4> {
    let scale = 1.0 / (q.dims()[3] as f32).sqrt();
    kernels::attention(AttentionInputs { q, k, v, mask, scale })
}
