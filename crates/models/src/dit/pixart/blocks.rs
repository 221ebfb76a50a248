//! The parts of PixArt-alpha.

use burn::tensor::Tensor;
use kernels::Activation;
use nn::{
    Conditioning, Forward, LayerNorm, Levels, Linear, Qkv, Reach, Result, Site, SizeCondition,
    TrackName, Weights, join_heads, split_heads,
};

use super::PixartConfig;

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

/// Projections around an attention: queries, keys and values, and out of it.
struct Mixer {
    into: [Linear; 3],
    out: Linear,
    head_width: usize,
}

impl Mixer {
    fn new(weights: &Weights<'_>, config: &PixartConfig) -> Result<Mixer> {
        let linear = |name| weights.linear(name, config.width(), config.width());
        let into = [linear("to_q")?, linear("to_k")?, linear("to_v")?];
        Ok(Mixer { into, out: linear("to_out.0")?, head_width: config.head_width })
    }

    /// Keys and values of `x` `[B, S, D]`, the same shape each.
    fn keys(&self, x: &Tensor<3>) -> Result<[Tensor<3>; 2]> {
        let [_, k, v] = &self.into;
        Ok([k.apply(x.clone())?, v.apply(x.clone())?])
    }

    /// What `x` `[B, T, D]` finds among keys and values `[B, S, D]`, whose heads `attend` mixes.
    fn apply(
        &self,
        x: Tensor<3>,
        [k, v]: [Tensor<3>; 2],
        attend: impl FnOnce(Qkv) -> Result<Tensor<4>>,
    ) -> Result<Tensor<3>> {
        let q = self.into[0].apply(x)?;
        let [q, k, v] = [q, k, v].map(|x| split_heads(x, self.head_width));
        self.out.apply(join_heads(attend(Qkv { q, k, v })?))
    }
}

/// One block: self-attention, attention to the caption, feed-forward.
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
        Forward { weights, shared, attention }: Forward<'_, Conditioning>,
    ) -> Result<Tensor<3>> {
        let [own, feed] = shared.around(&self.table);

        let normed = own.before(&self.norm, x.clone());
        let site = self.site("attn1");
        let mix = |qkv| attention.attend(site, qkv, Reach::Own, None);
        let keys = self.own.keys(&normed)?;
        let x = own.after(x, self.own.apply(normed, keys, mix)?);

        let site = self.site("attn2");
        let read = |qkv| attention.attend(site, qkv, Reach::Replicated, shared.mask().as_ref());
        let name = format!("transformer_blocks.{}.keys and values", self.index);
        let keys = weights.remembered(&name, || self.text.keys(&shared.text))?;
        let x = x.clone() + self.text.apply(x, keys, read)?;

        let normed = feed.before(&self.norm, x.clone());
        let fed = self.down.apply(self.up.apply_with(normed, Activation::GeluTanh)?)?;
        Ok(feed.after(x, fed))
    }

    fn site(&self, name: &'static str) -> Site {
        Site { layer: self.index, name, track: TrackName::Video }
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
    pub(super) fn apply(&self, x: Tensor<3>, own: &Conditioning) -> Result<Tensor<3>> {
        let x = self.projection.apply(own.last_norm(&self.norm, &self.table, x))?;
        // The checkpoint orders a patch by (row, column, channel), latents by (channel, row, column).
        let [batch, tokens, outputs] = x.dims();
        let pixels = self.patch * self.patch;
        Ok(x.reshape([batch, tokens, pixels, outputs / pixels])
            .swap_dims(2, 3)
            .reshape([batch, tokens, outputs]))
    }
}
