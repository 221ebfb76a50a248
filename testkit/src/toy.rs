//! The smallest family that uses every seam: modulation and text in `Shared`, a self-attention and
//! a cross-attention per block, a level per token, positions.
//!
//! Shape letters: `B` samples, `T` tokens, `L` words, `K` levels, `D` width, `N` heads, `H` head width.

use burn::tensor::{Device, Int, Tensor, TensorData};
use kernels::{Activation, Modulation, gated_residual};
use nn::{
    Attention, Bag, Context, Dit, Entry, Forward, Inputs, LayerNorm, Levels, Linear, Mask,
    Modality, Packed, Prediction, Qkv, Reach, Result, Site, Sizes, Store, TrackName, Weights,
    join_heads, split_heads,
};

use crate::numbers::{numbers, parameter, tensor};

/// The sizes of a toy.
#[derive(Clone, Copy, Debug)]
pub struct Toy {
    /// Values per token.
    pub channels: usize,
    /// Values per word.
    pub text_width: usize,
    /// Heads of every attention.
    pub heads: usize,
    /// The width of one.
    pub head_width: usize,
    /// Blocks.
    pub depth: usize,
}

/// What every block sees.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Shift, scale and gate, `[B, K, 3 D]`.
    modulation: Tensor<3>,
    /// `[B, L, D]`.
    text: Tensor<3>,
    /// Added to the scores of the text, `[B, 1, 1, L]`.
    text_mask: Option<Tensor<4>>,
    /// The level of every token, `[B, T]`.
    index: Option<Tensor<2, Int>>,
}

/// Width of the embedded timestep.
const SINUSOID: usize = 8;

/// Added to the variance in every norm.
const EPSILON: f32 = 1e-6;

impl Toy {
    /// Four heads of an awkward width.
    pub fn small() -> Toy {
        Toy { channels: 5, text_width: 7, heads: 4, head_width: 6, depth: 3 }
    }

    fn width(&self) -> usize {
        self.heads * self.head_width
    }

    /// Parameters that are a function of their names.
    pub fn store(&self) -> Store {
        let store = Store::declared(|weights| self.declare(weights), parameter);
        store.expect("a toy asks for every parameter with one shape")
    }

    /// Inputs with two noise levels per sample, a line of positions and an odd text of three words,
    /// the last of which is masked in every second sample.
    pub fn inputs(&self, batch: usize, tokens: usize) -> Inputs {
        let device = Device::flex();
        let levels: Vec<i64> =
            numbers("levels", batch * tokens).iter().map(|x| i64::from(*x > 0.2)).collect();
        let index = Tensor::from_data(TensorData::new(levels, [batch, tokens]), &device);
        let distinct = (tensor("distinct", [batch, 2]) + 1.0) * 400.0;
        let visible: Vec<f32> =
            (0..3 * batch).map(|at| if at % 6 == 5 { 0.0 } else { 1.0 }).collect();
        let mask = Tensor::from_data(TensorData::new(visible, [batch, 3]), &device);
        let video = Modality {
            tokens: tensor("tokens", [batch, tokens, self.channels]),
            sigma: distinct.clone().narrow(1, 0, 1).reshape([batch]) / 1000.0,
            levels: Levels { distinct, index: Some(index) },
            positions: nn::grid_positions([tokens, 1], [1.0, 1.0], batch, &device),
            context: Context::text(tensor("text", [batch, 3, self.text_width]), Some(mask)),
            size: None,
            enabled: true,
            skipped: Vec::new(),
        };
        Inputs::video(video)
    }

    fn conditions(&self, weights: &Weights<'_>) -> Result<[Linear; 3]> {
        let width = self.width();
        Ok([
            weights.linear("timestep.first", SINUSOID, width)?,
            weights.linear("timestep.second", width, 3 * width)?,
            weights.linear("text", self.text_width, width)?,
        ])
    }

    fn block_at(&self, index: usize, weights: &Weights<'_>) -> Result<Block> {
        let (weights, width) = (weights.at(format!("blocks.{index}")), self.width());
        Ok(Block {
            index,
            head_width: self.head_width,
            table: weights.table("table", [3, width])?,
            qkv: weights.linear("own.qkv", width, 3 * width)?,
            out: weights.linear("own.out", width, width)?,
            text_q: weights.linear("text.q", width, width)?,
            text_k: weights.linear("text.k", width, width)?,
            text_v: weights.linear("text.v", width, width)?,
            text_out: weights.linear("text.out", width, width)?,
        })
    }
}

impl Dit for Toy {
    type Shared = Shared;
    type Stream = Tensor<3>;

    fn sizes(&self) -> Sizes {
        Sizes { depth: self.depth, heads: self.heads }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.conditions(weights)?;
        weights.linear("embed", self.channels, self.width())?;
        for index in 0..self.depth {
            self.block_at(index, weights)?;
        }
        weights.linear("head", self.width(), self.channels).map(drop)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        let [first, second, text] = self.conditions(weights)?;
        let Modality { levels, context, .. } = inputs.video_alone()?;
        let embedded = nn::timestep_embedding(&levels.distinct, SINUSOID);
        let text_mask = context.mask.as_ref().map(|mask| {
            let [batch, words] = mask.dims();
            ((mask.clone() - 1.0) * 10_000.0).reshape([batch, 1, 1, words])
        });
        Ok(Shared {
            modulation: second.apply(first.apply_with(embedded, Activation::Silu)?)?,
            text: text.apply(context.tokens.clone())?,
            text_mask,
            index: levels.index.clone(),
        })
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, _: &Shared) -> Result<Tensor<3>> {
        let embed = weights.linear("embed", self.channels, self.width())?;
        let video = inputs.video_alone()?;
        let tokens = embed.apply(video.tokens.clone())?;
        let positions = video.positions.embedding(&[0], self.width(), 1.0);
        Ok(tokens + positions)
    }

    fn block(&self, index: usize, x: Tensor<3>, pass: Forward<'_, Shared>) -> Result<Tensor<3>> {
        self.block_at(index, pass.weights)?.apply(x, pass.shared, pass.attention)
    }

    fn head(
        &self,
        weights: &Weights<'_>,
        stream: Tensor<3>,
        shared: &Shared,
    ) -> Result<Prediction> {
        let [shift, scale, _] = thirds(shared.modulation.clone());
        let modulation = Modulation { scale, shift, index: shared.index.clone() };
        let normed = LayerNorm::plain(EPSILON).apply(stream, Some(&modulation));
        let video = weights.linear("head", self.width(), self.channels)?.apply(normed)?;
        Ok(Prediction::video(video))
    }
}

struct Block {
    index: usize,
    head_width: usize,
    table: Tensor<2>,
    qkv: Linear,
    out: Linear,
    text_q: Linear,
    text_k: Linear,
    text_v: Linear,
    text_out: Linear,
}

impl Block {
    /// `x` is `[B, T, D]`.
    fn apply(
        &self,
        x: Tensor<3>,
        shared: &Shared,
        attention: &mut dyn Attention,
    ) -> Result<Tensor<3>> {
        let [_, width] = self.table.dims();
        let table = self.table.clone().reshape([1, 1, 3 * width]);
        let [shift, scale, gate] = thirds(shared.modulation.clone() + table);
        let modulation = Modulation { scale, shift, index: shared.index.clone() };
        let normed = LayerNorm::plain(EPSILON).apply(x.clone(), Some(&modulation));

        let [q, k, v] = thirds(self.qkv.apply(normed)?).map(|x| split_heads(x, self.head_width));
        let site = Site { layer: self.index, name: "own", track: TrackName::Video };
        let mixed = attention.attend(site, Qkv { q, k, v }, Reach::Own, None)?;
        let x = gated_residual(x, self.out.apply(join_heads(mixed))?, gate, shared.index.clone());

        let qkv = Qkv {
            q: split_heads(self.text_q.apply(x.clone())?, self.head_width),
            k: split_heads(self.text_k.apply(shared.text.clone())?, self.head_width),
            v: split_heads(self.text_v.apply(shared.text.clone())?, self.head_width),
        };
        let site = Site { layer: self.index, name: "text", track: TrackName::Video };
        let mask = shared.text_mask.clone().map(Mask::Dense);
        let read = attention.attend(site, qkv, Reach::Replicated, mask.as_ref())?;
        Ok(x + self.text_out.apply(join_heads(read))?)
    }
}

/// `[.., .., 3 D]` to three of `[.., .., D]`.
fn thirds(x: Tensor<3>) -> [Tensor<3>; 3] {
    let width = x.dims()[2] / 3;
    [0, 1, 2].map(|part| x.clone().narrow(2, part * width, width))
}

impl Bag for Shared {
    fn pack(self) -> Packed {
        Packed::of([
            ("modulation", Entry::tensor(self.modulation)),
            ("text", Entry::tensor(self.text)),
            ("text_mask", Entry::optional(self.text_mask.map(Entry::constant))),
            ("index", Entry::optional(self.index.map(Entry::integers))),
        ])
    }

    fn unpack(mut packed: Packed) -> Result<Shared> {
        let shared = Shared {
            modulation: packed.tensor("modulation")?,
            text: packed.tensor("text")?,
            text_mask: packed.optional("text_mask", Packed::constant)?,
            index: packed.optional("index", Packed::integers)?,
        };
        packed.finish().map(|()| shared)
    }
}
