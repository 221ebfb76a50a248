//! The blocks of Wan and its head.

use burn::tensor::Tensor;
use kernels::Activation;
use nn::{
    Attention, Conditioning, Forward, LayerNorm, Linear, Qkv, Reach, Result, RmsNorm, Rope, Site,
    TrackName, Weights, join_heads, split_heads,
};

use super::WanConfig;
use super::model::Shared;

/// A projection to keys with their norm, and one to values.
struct Keys {
    k: Linear,
    v: Linear,
    norm: RmsNorm,
    head_width: usize,
}

impl Keys {
    /// `[k, v, norm]` are the names of the three.
    fn new(weights: &Weights<'_>, [k, v, norm]: [&str; 3], config: &WanConfig) -> Result<Keys> {
        let width = config.width();
        Ok(Keys {
            k: weights.linear(k, width, width)?,
            v: weights.linear(v, width, width)?,
            norm: weights.rms_norm(norm, width, config.epsilon)?,
            head_width: config.head_width,
        })
    }

    /// Keys and values `[B, S, N, H]` of `x` `[B, S, D]`.
    fn apply(&self, x: Tensor<3>) -> Result<[Tensor<4>; 2]> {
        Ok(self.project(&x)?.map(|x| split_heads(x, self.head_width)))
    }

    /// Those of a context, which no step changes.
    fn of_context(&self, weights: &Weights<'_>, x: &Tensor<3>) -> Result<[Tensor<4>; 2]> {
        let made = weights.remembered("keys and values", || self.project(x))?;
        Ok(made.map(|x| split_heads(x, self.head_width)))
    }

    /// Keys and values `[B, S, D]`.
    fn project(&self, x: &Tensor<3>) -> Result<[Tensor<3>; 2]> {
        let k = self.norm.apply(self.k.apply(x.clone())?)?;
        Ok([k, self.v.apply(x.clone())?])
    }
}

/// Projections around an attention. Queries and keys are normalised over all heads together.
struct Mixer {
    q: Linear,
    norm: RmsNorm,
    keys: Keys,
    out: Linear,
}

impl Mixer {
    fn new(weights: &Weights<'_>, config: &WanConfig) -> Result<Mixer> {
        let width = config.width();
        Ok(Mixer {
            q: weights.linear("to_q", width, width)?,
            norm: weights.rms_norm("norm_q", width, config.epsilon)?,
            keys: Keys::new(weights, ["to_k", "to_v", "norm_k"], config)?,
            out: weights.linear("to_out.0", width, width)?,
        })
    }

    /// `[B, T, N, H]` of `x` `[B, T, D]`.
    fn queries(&self, x: Tensor<3>) -> Result<Tensor<4>> {
        Ok(split_heads(self.norm.apply(self.q.apply(x)?)?, self.keys.head_width))
    }

    /// `[B, T, N, H]` to `[B, T, D]`.
    fn join(&self, x: Tensor<4>) -> Result<Tensor<3>> {
        self.out.apply(join_heads(x))
    }
}

/// One block: self-attention under rope, attention to text and picture, feed-forward.
pub(super) struct Block {
    index: usize,
    table: Tensor<2>,
    norm: LayerNorm,
    own: Mixer,
    cross_norm: Option<LayerNorm>,
    cross: Mixer,
    picture: Option<Keys>,
    up: Linear,
    down: Linear,
}

impl Block {
    pub(super) fn new(index: usize, weights: &Weights<'_>, config: &WanConfig) -> Result<Block> {
        let (width, feed) = (config.width(), config.feed_width);
        let cross = weights.at("attn2");
        let cross_norm = match config.cross_norm {
            true => Some(weights.layer_norm("norm2", width, config.epsilon)?),
            false => None,
        };
        let picture = match config.picture {
            Some(_) => {
                Some(Keys::new(&cross, ["add_k_proj", "add_v_proj", "norm_added_k"], config)?)
            }
            None => None,
        };
        Ok(Block {
            index,
            table: weights.table("scale_shift_table", [1, 6, width])?.reshape([6, width]),
            norm: LayerNorm::plain(config.epsilon),
            own: Mixer::new(&weights.at("attn1"), config)?,
            cross_norm,
            cross: Mixer::new(&cross, config)?,
            picture,
            up: weights.linear("ffn.net.0.proj", width, feed)?,
            down: weights.linear("ffn.net.2", feed, width)?,
        })
    }

    /// `x` is `[B, T, D]`.
    pub(super) fn apply(&self, x: Tensor<3>, pass: Forward<'_, Shared>) -> Result<Tensor<3>> {
        let Forward { weights, shared, attention } = pass;
        let [own, feed] = shared.conditioning.around(&self.table);

        let normed = own.before(&self.norm, x.clone());
        let mixed = self.mix(normed, &shared.rope, attention)?;
        let x = own.after(x, mixed);

        let normed = match &self.cross_norm {
            Some(norm) => norm.apply(x.clone(), None),
            None => x.clone(),
        };
        let own = weights.at(format!("blocks.{}", self.index));
        let x = x + self.read(normed, Forward { weights: &own, shared, attention })?;

        let normed = feed.before(&self.norm, x.clone());
        let fed = self.down.apply(self.up.apply_with(normed, Activation::GeluTanh)?)?;
        Ok(feed.after(x, fed))
    }

    /// Self-attention of `[B, T, D]`.
    fn mix(&self, x: Tensor<3>, rope: &Rope, attention: &mut dyn Attention) -> Result<Tensor<3>> {
        let q = rope.rotate(self.own.queries(x.clone())?);
        let [k, v] = self.own.keys.apply(x)?;
        let qkv = Qkv { q, k: rope.rotate(k), v };
        self.own.join(attention.attend(self.site("own"), qkv, Reach::Own, None)?)
    }

    /// What `[B, T, D]` finds in the text, and in a picture beside it.
    fn read(&self, x: Tensor<3>, pass: Forward<'_, Shared>) -> Result<Tensor<3>> {
        let Forward { weights, shared, attention } = pass;
        let q = self.cross.queries(x)?;
        let text = &shared.conditioning.text;
        let [k, v] = self.cross.keys.of_context(&weights.at("text"), text)?;
        let (mask, qkv) = (shared.conditioning.mask(), Qkv { q: q.clone(), k, v });
        let site = self.site("text");
        let mut read = attention.attend(site, qkv, Reach::Replicated, mask.as_ref())?;
        if let (Some(keys), Some(picture)) = (&self.picture, &shared.picture) {
            let [k, v] = keys.of_context(&weights.at("picture"), picture)?;
            let qkv = Qkv { q, k, v };
            read = read + attention.attend(self.site("image"), qkv, Reach::Replicated, None)?;
        }
        self.cross.join(read)
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
    pixels: usize,
}

impl Head {
    pub(super) fn new(weights: &Weights<'_>, config: &WanConfig) -> Result<Head> {
        let (width, pixels) = (config.width(), config.pixels());
        Ok(Head {
            table: weights.table("scale_shift_table", [1, 2, width])?.reshape([2, width]),
            norm: LayerNorm::plain(config.epsilon),
            projection: weights.linear("proj_out", width, pixels * config.out_channels)?,
            pixels,
        })
    }

    /// `[B, T, D]` to `[B, T, C pt ph pw]`.
    pub(super) fn apply(&self, x: Tensor<3>, conditioning: &Conditioning) -> Result<Tensor<3>> {
        let x = conditioning.last_norm(&self.norm, &self.table, x);
        let x = self.projection.apply(x)?;
        // The checkpoint orders a patch by (frame, row, column, channel), latents have channels first.
        let [batch, tokens, outputs] = x.dims();
        Ok(x.reshape([batch, tokens, self.pixels, outputs / self.pixels])
            .swap_dims(2, 3)
            .reshape([batch, tokens, outputs]))
    }
}
