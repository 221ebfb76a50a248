//! The encoder as a fold over its blocks.
//!
//! Dims: B captions, L tokens, D width, N heads, H head width.

use burn::tensor::{Device, Int, Tensor, TensorData};
use kernels::{Activation, AttentionInputs};
use nn::{Error, Linear, Result, RmsNorm, Weights};

use super::config::{FeedForward, PositionBias, T5Config};

/// What a padded key adds to its scores. It is finite, so that a caption of nothing but padding
/// attends evenly, as it does in transformers, and so large that a score beside it vanishes.
const HIDDEN: f32 = 1e30;

/// A T5 encoder; its parameters are wherever [`Weights`] gets them from.
#[derive(Clone, Debug)]
pub struct T5Encoder {
    /// Its sizes.
    pub config: T5Config,
}

impl T5Encoder {
    /// Names that checkpoints may hold and the encoder does not ask for: older files repeat the
    /// embedding table. (A file that has it under this name only is read from there.)
    pub const IGNORED: [&'static str; 1] = ["encoder.embed_tokens.weight"];

    /// An encoder of these sizes.
    pub fn new(config: T5Config) -> T5Encoder {
        T5Encoder { config }
    }

    /// Asks for every layer once.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        let config = &self.config;
        token_table(config, weights)?;
        for index in 0..config.depth {
            if index == 0 || config.position_bias == PositionBias::PerBlock {
                distance_table(config, weights, index)?;
            }
            Block::new(config, &block_weights(weights, index))?;
        }
        final_norm(config, weights)?;
        Ok(())
    }

    /// Token ids `[B, L]` and their mask `[B, L]` (1 for text, 0 for padding) to embeddings
    /// `[B, L, D]` in f32. Padded positions get values too; who reads them must apply the mask.
    ///
    /// # Errors
    /// A parameter is missing or misshapen, or tokens and mask do not fit each other or the model.
    pub fn encode(
        &self,
        weights: &Weights<'_>,
        tokens: Tensor<2, Int>,
        mask: Tensor<2>,
    ) -> Result<Tensor<3>> {
        self.check(&tokens, &mask)?;
        let config = &self.config;
        let positions = Positions::new(config, mask);
        let mut bias = positions.score_bias(&distance_table(config, weights, 0)?);
        let mut x = token_table(config, weights)?.apply(tokens);
        for index in 0..config.depth {
            if index > 0 && config.position_bias == PositionBias::PerBlock {
                bias = positions.score_bias(&distance_table(config, weights, index)?);
            }
            // A block lives for one turn, so that a provider may load it now and free it after.
            x = Block::new(config, &block_weights(weights, index))?.apply(x, &bias)?;
        }
        final_norm(config, weights)?.apply(x)
    }

    fn check(&self, tokens: &Tensor<2, Int>, mask: &Tensor<2>) -> Result<()> {
        let [batch, length] = tokens.dims();
        if batch == 0 || length == 0 {
            let (got, want) = (format!("{:?}", tokens.dims()), "must not be empty".to_owned());
            return Err(Error::Shape { what: "the shape of the token ids", got, want });
        }
        if mask.dims() != tokens.dims() {
            return Err(Error::Shape {
                what: "the shape of the text mask",
                got: format!("{:?}", mask.dims()),
                want: format!("the token ids have {:?}", tokens.dims()),
            });
        }
        let ids = tokens.to_data();
        let vocabulary = self.config.vocabulary as i64;
        match ids.iter::<i64>().find(|id| !(0..vocabulary).contains(id)) {
            None => Ok(()),
            Some(id) => Err(Error::Shape {
                what: "a token id",
                got: id.to_string(),
                want: format!(
                    "the text encoder knows {vocabulary} ids; does the tokenizer belong to it?"
                ),
            }),
        }
    }
}

/// What the scores of a caption depend on besides the tokens; the same in every block.
struct Positions {
    /// The bucket of every pair of query and key, `[1, L L]`.
    buckets: Tensor<2, Int>,
    /// What the mask adds to the scores of each key, `[B, 1, 1, L]`.
    hidden: Tensor<4>,
}

impl Positions {
    fn new(config: &T5Config, mask: Tensor<2>) -> Positions {
        let [batch, length] = mask.dims();
        let buckets = distance_buckets(config, length, &mask.device());
        let hidden = ((mask - 1.0) * HIDDEN).reshape([batch, 1, 1, length]);
        Positions { buckets, hidden }
    }

    /// What is added to the scores, `[B, N, L, L]`: the learnt bias of each distance, and the mask
    /// of each key.
    fn score_bias(&self, table: &nn::Embedding) -> Tensor<4> {
        let length = self.hidden.dims()[3];
        let position: Tensor<3> = table.apply(self.buckets.clone());
        let heads = position.dims()[2];
        let position = position.reshape([length, length, heads]).permute([2, 0, 1]);
        position.unsqueeze_dim::<4>(0) + self.hidden.clone()
    }
}

fn block_weights<'a>(weights: &Weights<'a>, index: usize) -> Weights<'a> {
    weights.at("encoder.block").at(index)
}

fn final_norm(config: &T5Config, weights: &Weights<'_>) -> Result<RmsNorm> {
    weights.rms_norm("encoder.final_layer_norm", config.width, config.epsilon)
}

/// The embedding of every token, under the one name or the other that files have it by.
fn token_table(config: &T5Config, weights: &Weights<'_>) -> Result<nn::Embedding> {
    let [own, repeated] = ["shared", "encoder.embed_tokens"];
    let has = |name: &str| weights.has(&format!("{name}.weight"));
    let name = if !has(own) && has(repeated) { repeated } else { own };
    weights.embedding(name, config.vocabulary, config.width)
}

/// The bias of every bucket for every head.
fn distance_table(config: &T5Config, weights: &Weights<'_>, index: usize) -> Result<nn::Embedding> {
    let attention = block_weights(weights, index).at("layer.0.SelfAttention");
    attention.embedding("relative_attention_bias", config.buckets, config.heads)
}

struct Block {
    attention_norm: RmsNorm,
    attention: SelfAttention,
    feed_forward_norm: RmsNorm,
    feed_forward: FeedForwardLayers,
}

impl Block {
    fn new(config: &T5Config, weights: &Weights<'_>) -> Result<Block> {
        let (attention, feed_forward) = (weights.at("layer.0"), weights.at("layer.1"));
        let norm = |at: &Weights<'_>| at.rms_norm("layer_norm", config.width, config.epsilon);
        Ok(Block {
            attention_norm: norm(&attention)?,
            attention: SelfAttention::new(config, &attention.at("SelfAttention"))?,
            feed_forward_norm: norm(&feed_forward)?,
            feed_forward: FeedForwardLayers::new(config, &feed_forward.at("DenseReluDense"))?,
        })
    }

    /// `[B, L, D]` to the same.
    fn apply(&self, x: Tensor<3>, bias: &Tensor<4>) -> Result<Tensor<3>> {
        let mixed = self.attention.apply(self.attention_norm.apply(x.clone())?, bias)?;
        let x = x + mixed;
        let deepened = self.feed_forward.apply(self.feed_forward_norm.apply(x.clone())?)?;
        Ok(x + deepened)
    }
}

struct SelfAttention {
    q: Linear,
    k: Linear,
    v: Linear,
    o: Linear,
    head_width: usize,
}

impl SelfAttention {
    fn new(config: &T5Config, weights: &Weights<'_>) -> Result<SelfAttention> {
        let inner = config.inner_width();
        Ok(SelfAttention {
            q: weights.linear_without_bias("q", config.width, inner)?,
            k: weights.linear_without_bias("k", config.width, inner)?,
            v: weights.linear_without_bias("v", config.width, inner)?,
            o: weights.linear_without_bias("o", inner, config.width)?,
            head_width: config.head_width,
        })
    }

    fn apply(&self, x: Tensor<3>, bias: &Tensor<4>) -> Result<Tensor<3>> {
        let heads = |layer: &Linear| Ok(nn::split_heads(layer.apply(x.clone())?, self.head_width));
        let (q, k, v) = (heads(&self.q)?, heads(&self.k)?, heads(&self.v)?);
        // T5 learns its weights to suit unscaled scores.
        let mixed =
            kernels::attention(AttentionInputs { q, k, v, mask: Some(bias.clone()), scale: 1.0 });
        self.o.apply(nn::join_heads(mixed))
    }
}

enum FeedForwardLayers {
    Relu { inner: Linear, out: Linear },
    GatedGelu { gate: Linear, inner: Linear, out: Linear },
}

impl FeedForwardLayers {
    fn new(config: &T5Config, weights: &Weights<'_>) -> Result<FeedForwardLayers> {
        let (width, inner_width) = (config.width, config.feed_forward_width);
        let inner = |name| weights.linear_without_bias(name, width, inner_width);
        let out = weights.linear_without_bias("wo", inner_width, width)?;
        Ok(match config.feed_forward {
            FeedForward::Relu => FeedForwardLayers::Relu { inner: inner("wi")?, out },
            FeedForward::GatedGelu => {
                FeedForwardLayers::GatedGelu { gate: inner("wi_0")?, inner: inner("wi_1")?, out }
            }
        })
    }

    fn apply(&self, x: Tensor<3>) -> Result<Tensor<3>> {
        match self {
            FeedForwardLayers::Relu { inner, out } => {
                out.apply(inner.apply_with(x, Activation::Relu)?)
            }
            FeedForwardLayers::GatedGelu { gate, inner, out } => {
                let gate = gate.apply_with(x.clone(), Activation::GeluTanh)?;
                out.apply(gate * inner.apply(x)?)
            }
        }
    }
}

/// The bucket of every pair of query and key, `[1, L L]`.
fn distance_buckets(config: &T5Config, length: usize, device: &Device) -> Tensor<2, Int> {
    let backward = (0..length).map(|distance| bucket(config, distance)).collect::<Vec<_>>();
    let pairs = (0..length).flat_map(|query| (0..length).map(move |key| (query, key)));
    let buckets = pairs.map(|(query, key)| {
        // Keys that follow have the second half of the buckets.
        let direction = if key > query { config.buckets / 2 } else { 0 };
        (direction + backward[key.abs_diff(query)]) as i64
    });
    let data = TensorData::new(buckets.collect::<Vec<_>>(), [1, length * length]);
    Tensor::from_data(data, device)
}

/// The bucket of a distance within its direction: one each for the short ones, then logarithmic.
///
/// In f32 and in this order of operations, since the borders fall where rounding puts them.
fn bucket(config: &T5Config, distance: usize) -> usize {
    let buckets = config.buckets / 2;
    let single = buckets / 2;
    if distance < single {
        return distance;
    }
    let range = libm::log(config.max_distance as f64 / single as f64) as f32;
    let part = libm::logf(distance as f32 / single as f32) / range;
    let grown = (part * (buckets - single) as f32) as usize;
    (single + grown).min(buckets - 1)
}
