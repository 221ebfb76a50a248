//! Two kinds of network that no family of the table is yet: one whose second half looks back at its first,
//! as Hunyuan-DiT's does, and one whose text and tokens are one sequence, as in SD3 and FLUX. Layouts are
//! held to them too. Layers are named as Duet's, so that its table says how they split.
//!
//! Shape letters: `B` samples, `T` tokens, `L` words, `K` levels, `D` width.

use burn::tensor::Tensor;
use kernels::Activation;
use nn::{
    Bag, Conditioning, Dit, Entry, Forward, Inputs, LayerNorm, Linear, Packed, Prediction, Qkv,
    Reach, Result, Site, Sizes, TrackName, Weights, join_heads, split_heads,
};

/// Width of the embedded timestep.
const SINUSOID: usize = 8;

/// Added to the variance in every norm.
const EPSILON: f32 = 1e-6;

/// The widths of a network.
#[derive(Clone, Copy, Debug)]
pub struct Widths {
    /// Values per token.
    pub channels: usize,
    /// Values per word.
    pub text: usize,
    /// Heads of every attention.
    pub heads: usize,
    /// The width of one.
    pub head: usize,
}

impl Widths {
    fn inner(&self) -> usize {
        self.heads * self.head
    }

    fn conditions(&self, weights: &Weights<'_>) -> Result<[Linear; 3]> {
        let width = self.inner();
        Ok([
            weights.linear("level.first", SINUSOID, width)?,
            weights.linear("level.second", width, 6 * width)?,
            weights.linear("text", self.text, width)?,
        ])
    }

    fn ends(&self, weights: &Weights<'_>) -> Result<[Linear; 2]> {
        Ok([
            weights.linear("embed", self.channels, self.inner())?,
            weights.linear("head", self.inner(), self.channels)?,
        ])
    }

    fn conditioning(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Conditioning> {
        let [first, second, text] = self.conditions(weights)?;
        let video = inputs.video_alone()?;
        let level = nn::timestep_embedding(&video.levels.distinct, SINUSOID);
        let embedded = first.apply_with(level, Activation::Silu)?;
        Ok(Conditioning {
            modulation: second.apply(embedded.clone())?,
            embedded,
            index: video.levels.index.clone(),
            text: text.apply(video.context.tokens.clone())?,
            text_mask: video.context.text_mask(),
        })
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Tensor<3>> {
        let (video, [embed, _]) = (inputs.video_alone()?, self.ends(weights)?);
        let positions = video.positions.embedding(&[0, 1], self.inner(), 1.0);
        let tokens = embed.apply(video.tokens.clone())?;
        match tokens.device().is_autodiff() {
            true => Ok(tokens + Tensor::from_inner(positions)),
            false => Ok(tokens + positions),
        }
    }

    fn head(&self, weights: &Weights<'_>, x: Tensor<3>, own: &Conditioning) -> Result<Prediction> {
        let [_, head] = self.ends(weights)?;
        let table = weights.table("table", [2, self.inner()])?;
        let x = own.last_norm(&LayerNorm::plain(EPSILON), &table, x);
        head.apply(x).map(Prediction::video)
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.conditions(weights)?;
        weights.table("table", [2, self.inner()])?;
        self.ends(weights).map(drop)
    }
}

/// Projections into an attention.
struct QkvLayers {
    layers: [Linear; 3],
    head_width: usize,
}

impl QkvLayers {
    fn new(weights: &Weights<'_>, widths: &Widths) -> Result<QkvLayers> {
        let linear = |name| weights.linear(name, widths.inner(), widths.inner());
        let layers = [linear("to_q")?, linear("to_k")?, linear("to_v")?];
        Ok(QkvLayers { layers, head_width: widths.head })
    }

    /// Queries of `x` `[B, T, D]`, keys and values of `other` `[B, S, D]`.
    fn qkv(&self, x: Tensor<3>, other: Tensor<3>) -> Result<Qkv> {
        let [q, k, v] = &self.layers;
        let heads = |layer: &Linear, x| Ok(split_heads(layer.apply(x)?, self.head_width));
        Ok(Qkv { q: heads(q, x)?, k: heads(k, other.clone())?, v: heads(v, other)? })
    }
}

/// The projection out of an attention.
fn out(weights: &Weights<'_>, widths: &Widths) -> Result<Linear> {
    weights.linear("to_out", widths.inner(), widths.inner())
}

/// Projections around an attention.
struct Mixer {
    into: QkvLayers,
    out: Linear,
}

impl Mixer {
    fn new(weights: &Weights<'_>, widths: &Widths) -> Result<Mixer> {
        Ok(Mixer { into: QkvLayers::new(weights, widths)?, out: out(weights, widths)? })
    }

    fn qkv(&self, x: Tensor<3>, other: Tensor<3>) -> Result<Qkv> {
        self.into.qkv(x, other)
    }

    fn join(&self, x: Tensor<4>) -> Result<Tensor<3>> {
        self.out.apply(join_heads(x))
    }
}

/// The feed-forward of a block.
struct Feed {
    up: Linear,
    down: Linear,
}

impl Feed {
    fn new(weights: &Weights<'_>, width: usize) -> Result<Feed> {
        let up = weights.linear("up", width, 2 * width)?;
        Ok(Feed { up, down: weights.linear("down", 2 * width, width)? })
    }

    fn apply(&self, x: Tensor<3>) -> Result<Tensor<3>> {
        self.down.apply(self.up.apply_with(x, Activation::Silu)?)
    }
}

/// Five blocks, of which the last two see what the first two made, the nearest first.
#[derive(Clone, Copy, Debug)]
pub struct UShaped(pub Widths);

/// Tokens `[B, T, D]`, and what the blocks of the first half made of them for those of the second.
#[derive(Clone, Debug)]
pub struct Skipping {
    x: Tensor<3>,
    skips: [Option<Tensor<3>>; 2],
}

impl Bag for Skipping {
    fn pack(self) -> Packed {
        let [first, second] = self.skips.map(|skip| Entry::optional(skip.map(Entry::tensor)));
        Packed::of([("tokens", Entry::tensor(self.x)), ("first", first), ("second", second)])
    }

    fn unpack(mut packed: Packed) -> Result<Skipping> {
        let skips =
            [packed.optional("first", Packed::tensor)?, packed.optional("second", Packed::tensor)?];
        let x = packed.tensor("tokens")?;
        packed.finish().map(|()| Skipping { x, skips })
    }
}

/// What a block of [`UShaped`] is made of.
struct UBlock {
    table: Tensor<2>,
    own: Mixer,
    words: Mixer,
    feed: Feed,
    /// Of the second half: what it sees and what it is given as one.
    merge: Option<Linear>,
}

impl UShaped {
    const DEPTH: usize = 5;

    fn build(&self, index: usize, weights: &Weights<'_>) -> Result<UBlock> {
        let (weights, width) = (weights.at(format!("blocks.{index}")), self.0.inner());
        let merges = UShaped::looks_back(index).is_some();
        let merge = merges.then(|| weights.linear("merge", 2 * width, width)).transpose()?;
        Ok(UBlock {
            table: weights.table("table", [6, width])?,
            own: Mixer::new(&weights.at("own"), &self.0)?,
            words: Mixer::new(&weights.at("words"), &self.0)?,
            feed: Feed::new(&weights, width)?,
            merge,
        })
    }

    /// The block of the first half whose tokens a block of the second half sees.
    fn looks_back(index: usize) -> Option<usize> {
        (index > UShaped::DEPTH / 2).then(|| UShaped::DEPTH - 1 - index)
    }
}

impl Dit for UShaped {
    type Shared = Conditioning;
    type Stream = Skipping;

    fn sizes(&self) -> Sizes {
        Sizes { depth: UShaped::DEPTH, heads: self.0.heads }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.0.declare(weights)?;
        (0..UShaped::DEPTH).try_for_each(|index| self.build(index, weights).map(drop))
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Conditioning> {
        self.0.conditioning(weights, inputs)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, _: &Conditioning) -> Result<Skipping> {
        Ok(Skipping { x: self.0.embed(weights, inputs)?, skips: [None, None] })
    }

    fn block(
        &self,
        index: usize,
        stream: Skipping,
        pass: Forward<'_, Conditioning>,
    ) -> Result<Skipping> {
        let Skipping { mut x, mut skips } = stream;
        let Forward { weights, shared, attention } = pass;
        let block = self.build(index, weights)?;
        if let Some((back, merge)) = UShaped::looks_back(index).zip(block.merge) {
            let skip = skips[back].take().expect("a block of the first half leaves its tokens");
            x = merge.apply(Tensor::cat(vec![x, skip], 2))?;
        }
        let norm = LayerNorm::plain(EPSILON);
        let [own, feed] = shared.around(&block.table);
        let normed = own.before(&norm, x.clone());
        let site = Site { layer: index, name: "own", track: TrackName::Video };
        let qkv = block.own.qkv(normed.clone(), normed)?;
        let mixed = attention.attend(site, qkv, Reach::Own, None)?;
        x = own.after(x, block.own.join(mixed)?);
        let qkv = block.words.qkv(x.clone(), shared.text.clone())?;
        let site = Site { layer: index, name: "words", track: TrackName::Video };
        let read = attention.attend(site, qkv, Reach::Replicated, shared.mask().as_ref())?;
        x = x + block.words.join(read)?;
        let fed = block.feed.apply(feed.before(&norm, x.clone()))?;
        x = feed.after(x, fed);
        if index < UShaped::DEPTH / 2 {
            skips[index] = Some(x.clone());
        }
        Ok(Skipping { x, skips })
    }

    fn head(&self, weights: &Weights<'_>, own: Skipping, by: &Conditioning) -> Result<Prediction> {
        self.0.head(weights, own.x, by)
    }
}

/// Three blocks in which text and tokens mix as one sequence, and both go on.
#[derive(Clone, Copy, Debug)]
pub struct Joint(pub Widths);

/// The text `[B, L, D]` and the tokens `[B, T, D]`.
#[derive(Clone, Debug)]
pub struct TextAndTokens {
    text: Tensor<3>,
    tokens: Tensor<3>,
}

impl Bag for TextAndTokens {
    fn pack(self) -> Packed {
        Packed::of([("text", Entry::tensor(self.text)), ("tokens", Entry::tensor(self.tokens))])
    }

    fn unpack(mut packed: Packed) -> Result<TextAndTokens> {
        let (text, tokens) = (packed.tensor("text")?, packed.tensor("tokens")?);
        packed.finish().map(|()| TextAndTokens { text, tokens })
    }
}

/// What a block of [`Joint`] is made of.
struct JointBlock {
    table: Tensor<2>,
    text: QkvLayers,
    /// Nobody looks at the text after the last block.
    text_out: Option<Linear>,
    own: Mixer,
    feed: Feed,
}

impl Joint {
    const DEPTH: usize = 3;

    fn build(&self, index: usize, weights: &Weights<'_>) -> Result<JointBlock> {
        let (weights, width) = (weights.at(format!("blocks.{index}")), self.0.inner());
        let (words, last) = (weights.at("words"), index + 1 == Joint::DEPTH);
        Ok(JointBlock {
            table: weights.table("table", [6, width])?,
            text: QkvLayers::new(&words, &self.0)?,
            text_out: (!last).then(|| out(&words, &self.0)).transpose()?,
            own: Mixer::new(&weights.at("own"), &self.0)?,
            feed: Feed::new(&weights, width)?,
        })
    }
}

impl Dit for Joint {
    type Shared = Conditioning;
    type Stream = TextAndTokens;

    fn sizes(&self) -> Sizes {
        Sizes { depth: Joint::DEPTH, heads: self.0.heads }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.0.declare(weights)?;
        (0..Joint::DEPTH).try_for_each(|index| self.build(index, weights).map(drop))
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Conditioning> {
        self.0.conditioning(weights, inputs)
    }

    fn embed(
        &self,
        weights: &Weights<'_>,
        inputs: &Inputs,
        shared: &Conditioning,
    ) -> Result<TextAndTokens> {
        let tokens = self.0.embed(weights, inputs)?;
        Ok(TextAndTokens { text: shared.text.clone(), tokens })
    }

    fn block(
        &self,
        index: usize,
        stream: TextAndTokens,
        pass: Forward<'_, Conditioning>,
    ) -> Result<TextAndTokens> {
        let (TextAndTokens { text, tokens }, norm) = (stream, LayerNorm::plain(EPSILON));
        let Forward { weights, shared, attention } = pass;
        let block = self.build(index, weights)?;
        let [own, feed] = shared.around(&block.table);
        let words = text.dims()[1];
        let seen = norm.apply(text.clone(), None);
        let led = block.text.qkv(seen.clone(), seen)?;
        let normed = own.before(&norm, tokens.clone());
        let rest = block.own.qkv(normed.clone(), normed)?;
        let one = |lead, rest| Tensor::cat(vec![lead, rest], 1);
        let qkv = Qkv { q: one(led.q, rest.q), k: one(led.k, rest.k), v: one(led.v, rest.v) };
        let site = Site { layer: index, name: "joint", track: TrackName::Video };
        let mixed = attention.attend(site, qkv, Reach::Joint { text: words }, None)?;
        let all = mixed.dims()[1];
        let text = match block.text_out {
            Some(out) => text + out.apply(join_heads(mixed.clone().slice_dim(1, 0..words)))?,
            None => text,
        };
        let tokens = own.after(tokens, block.own.join(mixed.slice_dim(1, words..all))?);
        let fed = block.feed.apply(feed.before(&norm, tokens.clone()))?;
        Ok(TextAndTokens { text, tokens: feed.after(tokens, fed) })
    }

    fn head(
        &self,
        weights: &Weights<'_>,
        own: TextAndTokens,
        by: &Conditioning,
    ) -> Result<Prediction> {
        self.0.head(weights, own.tokens, by)
    }
}
