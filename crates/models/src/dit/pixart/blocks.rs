//! The parts of PixArt-alpha.

use burn::tensor::Tensor;
use kernels::{Activation, Modulation};
use nn::{
    AdaLn, Attention, LayerNorm, Levels, Linear, Mask, Qkv, Reach, Result, Site, SizeCondition,
    Weights, table_rows,
};

use super::PixartConfig;
use super::model::Shared;

/// Width of a sinusoidal embedding before its MLP.
const SINUSOID: usize = 256;

/// A sinusoidal embedding through two linears.
struct Embedder {
    first: Linear,
    second: Linear,
}

impl Embedder {
    fn new(weights: &Weights<'_>, width: usize) -> Result<Embedder> {
        let first = weights.linear("linear_1", SINUSOID, width)?;
        Ok(Embedder { first, second: weights.linear("linear_2", width, width)? })
    }

    /// `[B, K]` numbers to `[B, K, width]`.
    fn apply(&self, numbers: &Tensor<2>) -> Result<Tensor<3>> {
        let x = nn::timestep_embedding(numbers, SINUSOID);
        self.second.apply(self.first.apply_with(x, Activation::Silu)?)
    }
}

/// adaLN-single: noise level (and the picture's size) to one modulation for all blocks.
pub(super) struct Conditions {
    timestep: Embedder,
    size: Option<(Embedder, Embedder)>,
    linear: Linear,
}

impl Conditions {
    pub(super) fn new(weights: &Weights<'_>, config: &PixartConfig) -> Result<Conditions> {
        let width = config.width();
        let embedders = weights.at("emb");
        let size = match config.takes_size {
            true => Some((
                Embedder::new(&embedders.at("resolution_embedder"), width / 3)?,
                Embedder::new(&embedders.at("aspect_ratio_embedder"), width / 3)?,
            )),
            false => None,
        };
        Ok(Conditions {
            timestep: Embedder::new(&embedders.at("timestep_embedder"), width)?,
            size,
            linear: weights.linear("linear", width, 6 * width)?,
        })
    }

    /// The embedded level `[B, K, D]` and the modulation `[B, K, 6 D]`.
    pub(super) fn apply(
        &self,
        levels: &Levels,
        size: Option<&SizeCondition>,
    ) -> Result<(Tensor<3>, Tensor<3>)> {
        let mut embedded = self.timestep.apply(&levels.distinct)?;
        if let (Some((resolution, aspect_ratio)), Some(size)) = (&self.size, size) {
            let [batch, _, width] = embedded.dims();
            // Height and width are embedded alike and stand side by side.
            let resolution = resolution.apply(&size.resolution)?.reshape([batch, 1, width / 3 * 2]);
            let proportion = aspect_ratio.apply(&size.aspect_ratio)?;
            embedded = embedded + Tensor::cat(vec![resolution, proportion], 2);
        }
        let modulation = self.linear.apply(kernels::silu(embedded.clone()))?;
        Ok((embedded, modulation))
    }
}

/// The text encoder's output into the width of the stream.
pub(super) struct CaptionProjection {
    first: Linear,
    second: Linear,
}

impl CaptionProjection {
    pub(super) fn new(weights: &Weights<'_>, config: &PixartConfig) -> Result<CaptionProjection> {
        let width = config.width();
        let first = weights.linear("linear_1", config.caption_width, width)?;
        Ok(CaptionProjection { first, second: weights.linear("linear_2", width, width)? })
    }

    pub(super) fn apply(&self, caption: Tensor<3>) -> Result<Tensor<3>> {
        self.second.apply(self.first.apply_with(caption, Activation::GeluTanh)?)
    }
}

/// Projections around an attention.
struct Mixer {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    head_width: usize,
}

impl Mixer {
    fn new(weights: &Weights<'_>, config: &PixartConfig) -> Result<Mixer> {
        let width = config.width();
        Ok(Mixer {
            q: weights.linear("to_q", width, width)?,
            k: weights.linear("to_k", width, width)?,
            v: weights.linear("to_v", width, width)?,
            out: weights.linear("to_out.0", width, width)?,
            head_width: config.head_width,
        })
    }

    fn qkv(&self, queries: Tensor<3>, keys: Tensor<3>) -> Result<Qkv> {
        Ok(Qkv {
            q: self.heads(self.q.apply(queries)?),
            k: self.heads(self.k.apply(keys.clone())?),
            v: self.heads(self.v.apply(keys)?),
        })
    }

    /// `[B, T, N H]` to `[B, T, N, H]`. How many heads there are is read off the tensor: a rank may
    /// hold some of them only.
    fn heads(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, tokens, width] = x.dims();
        x.reshape([batch, tokens, width / self.head_width, self.head_width])
    }

    fn join(&self, x: Tensor<4>) -> Result<Tensor<3>> {
        let [batch, tokens, heads, head_width] = x.dims();
        self.out.apply(x.reshape([batch, tokens, heads * head_width]))
    }
}

/// One transformer block.
pub(super) struct Block {
    index: usize,
    table: Tensor<2>,
    norm: LayerNorm,
    own: Mixer,
    text: Mixer,
    up: Linear,
    down: Linear,
}

impl Block {
    pub(super) fn new(index: usize, weights: &Weights<'_>, config: &PixartConfig) -> Result<Block> {
        let width = config.width();
        Ok(Block {
            index,
            table: weights.table("scale_shift_table", [6, width])?,
            norm: LayerNorm::plain(config.epsilon),
            own: Mixer::new(&weights.at("attn1"), config)?,
            text: Mixer::new(&weights.at("attn2"), config)?,
            up: weights.linear("ff.net.0.proj", width, 4 * width)?,
            down: weights.linear("ff.net.2", 4 * width, width)?,
        })
    }

    /// `x` is `[B, T, D]`.
    pub(super) fn apply(
        &self,
        x: Tensor<3>,
        shared: &Shared,
        attention: &mut dyn Attention,
    ) -> Result<Tensor<3>> {
        let [own, feed] = AdaLn::pair(&self.table, &shared.modulation, shared.index.as_ref());

        let normed = own.before(&self.norm, x.clone());
        let site = Site { layer: self.index, name: "attn1" };
        let qkv = self.own.qkv(normed.clone(), normed)?;
        let mixed = self.own.join(attention.attend(site, qkv, Reach::Own, None)?)?;
        let x = own.after(x, mixed);

        let site = Site { layer: self.index, name: "attn2" };
        let qkv = self.text.qkv(x.clone(), shared.text.clone())?;
        let mask = shared.text_mask.clone().map(Mask::Dense);
        let read = attention.attend(site, qkv, Reach::Replicated, mask.as_ref())?;
        let x = x + self.text.join(read)?;

        let normed = feed.before(&self.norm, x.clone());
        let fed = self.down.apply(self.up.apply_with(normed, Activation::GeluTanh)?)?;
        Ok(feed.after(x, fed))
    }
}

/// The last norm and the projection to patches.
pub(super) struct Head {
    table: Tensor<2>,
    norm: LayerNorm,
    projection: Linear,
    patch: usize,
}

impl Head {
    pub(super) fn new(weights: &Weights<'_>, config: &PixartConfig) -> Result<Head> {
        let width = config.width();
        let outputs = config.patch * config.patch * config.out_channels;
        Ok(Head {
            table: weights.table("scale_shift_table", [2, width])?,
            norm: LayerNorm::plain(config.epsilon),
            projection: weights.linear("proj_out", width, outputs)?,
            patch: config.patch,
        })
    }

    /// `[B, T, D]` to `[B, T, C p p]`.
    pub(super) fn apply(&self, x: Tensor<3>, shared: &Shared) -> Result<Tensor<3>> {
        let [batch, levels, width] = shared.embedded.dims();
        let both = shared.embedded.clone().repeat_dim(2, 2).reshape([batch, levels, 2 * width]);
        let [shift, scale] = table_rows(&self.table, &both);
        let modulation = Modulation { scale, shift, index: shared.index.clone() };
        let x = self.projection.apply(self.norm.apply(x, Some(&modulation)))?;
        // The checkpoint orders a patch by (row, column, channel), latents by (channel, row, column).
        let [batch, tokens, outputs] = x.dims();
        let pixels = self.patch * self.patch;
        Ok(x.reshape([batch, tokens, pixels, outputs / pixels])
            .swap_dims(2, 3)
            .reshape([batch, tokens, outputs]))
    }
}
