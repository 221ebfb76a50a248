//! The encoder as a fold over its blocks.
//!
//! Dims: B pictures, T tokens (the whole picture's, then the patches' row by row), D width, N heads,
//! H head width.

use burn::tensor::{DType, Tensor};
use kernels::{Activation, AttentionInputs};
use nn::{Error, LayerNorm, Linear, Result, Weights};

use super::config::ClipVisionConfig;

/// A CLIP vision encoder; its parameters are wherever [`Weights`] gets them from.
#[derive(Clone, Debug)]
pub struct ClipVision {
    /// Its sizes.
    pub config: ClipVisionConfig,
}

impl ClipVision {
    /// An encoder of these sizes.
    pub fn new(config: ClipVisionConfig) -> ClipVision {
        ClipVision { config }
    }

    /// Asks for every layer once, those behind the states that Wan reads included.
    ///
    /// # Errors
    /// A parameter is missing or misshapen.
    pub fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        let config = &self.config;
        let weights = root(weights);
        Embeddings::new(config, &weights)?;
        for index in 0..config.depth {
            Block::new(config, &block_weights(&weights, index))?;
        }
        weights.layer_norm("post_layernorm", config.width, config.epsilon)?;
        Ok(())
    }

    /// Pictures `[B, 3, size, size]`, normalised as CLIP was trained, to the states before the last
    /// block, `[B, T, D]` in f32: what diffusers reads as `hidden_states[-2]`.
    ///
    /// # Errors
    /// A parameter is missing or misshapen, or the pictures have another size.
    pub fn encode(&self, weights: &Weights<'_>, pixels: Tensor<4>) -> Result<Tensor<3>> {
        let config = &self.config;
        let [_, channels, height, width] = pixels.dims();
        let size = config.image_size;
        if [channels, height, width] != [config.channels, size, size] {
            return Err(Error::Shape {
                what: "the shape of the pictures",
                got: format!("{:?}", pixels.dims()),
                want: format!("the image encoder takes [B, {}, {size}, {size}]", config.channels),
            });
        }
        let weights = root(weights);
        let mut x = Embeddings::new(config, &weights)?.apply(config, pixels.cast(DType::F32))?;
        for index in 0..config.depth - 1 {
            // A block lives for one turn, so that a provider may load it now and free it after.
            x = Block::new(config, &block_weights(&weights, index))?.apply(x)?;
        }
        Ok(x)
    }
}

/// Published files have every name below `vision_model`; newer transformers saves without it.
fn root<'a>(weights: &Weights<'a>) -> Weights<'a> {
    match weights.has("vision_model.embeddings.class_embedding") {
        true => weights.at("vision_model"),
        false => weights.clone(),
    }
}

fn block_weights<'a>(weights: &Weights<'a>, index: usize) -> Weights<'a> {
    weights.at("encoder.layers").at(index)
}

/// Patches to tokens, with the token of the whole picture before them.
struct Embeddings {
    patches: Linear,
    /// `[1, 1, D]`.
    whole: Tensor<3>,
    /// `[1, T, D]`.
    positions: Tensor<3>,
    norm: LayerNorm,
}

impl Embeddings {
    fn new(config: &ClipVisionConfig, weights: &Weights<'_>) -> Result<Embeddings> {
        let at = weights.at("embeddings");
        let (width, tokens) = (config.width, config.tokens());
        let kernel = [width, config.channels, config.patch_size, config.patch_size];
        let whole = at.table("class_embedding", [width])?;
        let positions = at.table("position_embedding.weight", [tokens, width])?;
        Ok(Embeddings {
            patches: at.patch_projection_without_bias("patch_embedding", &kernel)?,
            whole: whole.reshape([1, 1, width]),
            positions: positions.reshape([1, tokens, width]),
            // So spelt in every checkpoint.
            norm: weights.layer_norm("pre_layrnorm", width, config.epsilon)?,
        })
    }

    /// `[B, 3, size, size]` to `[B, T, D]`.
    fn apply(&self, config: &ClipVisionConfig, pixels: Tensor<4>) -> Result<Tensor<3>> {
        let batch = pixels.dims()[0];
        // As a convolution does, leave out the pixels that fill no whole patch.
        let covered = config.grid() * config.patch_size;
        let pixels = pixels.narrow(2, 0, covered).narrow(3, 0, covered).unsqueeze_dim::<5>(2);
        let patches = nn::patchify(pixels, [1, config.patch_size, config.patch_size]);
        let whole = self.whole.clone().repeat_dim(0, batch);
        let tokens = Tensor::cat(vec![whole, self.patches.apply(patches)?], 1);
        Ok(self.norm.apply(tokens + self.positions.clone(), None))
    }
}

struct Block {
    attention_norm: LayerNorm,
    attention: SelfAttention,
    feed_forward_norm: LayerNorm,
    inner: Linear,
    out: Linear,
    activation: Activation,
}

impl Block {
    fn new(config: &ClipVisionConfig, weights: &Weights<'_>) -> Result<Block> {
        let (width, inner) = (config.width, config.feed_forward_width);
        let norm = |name| weights.layer_norm(name, width, config.epsilon);
        Ok(Block {
            attention_norm: norm("layer_norm1")?,
            attention: SelfAttention::new(config, &weights.at("self_attn"))?,
            feed_forward_norm: norm("layer_norm2")?,
            inner: weights.linear("mlp.fc1", width, inner)?,
            out: weights.linear("mlp.fc2", inner, width)?,
            activation: config.activation,
        })
    }

    /// `[B, T, D]` to the same.
    fn apply(&self, x: Tensor<3>) -> Result<Tensor<3>> {
        let mixed = self.attention.apply(self.attention_norm.apply(x.clone(), None))?;
        let x = x + mixed;
        let normed = self.feed_forward_norm.apply(x.clone(), None);
        Ok(x + self.out.apply(self.inner.apply_with(normed, self.activation)?)?)
    }
}

struct SelfAttention {
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    head_width: usize,
}

impl SelfAttention {
    fn new(config: &ClipVisionConfig, weights: &Weights<'_>) -> Result<SelfAttention> {
        let width = config.width;
        Ok(SelfAttention {
            q: weights.linear("q_proj", width, width)?,
            k: weights.linear("k_proj", width, width)?,
            v: weights.linear("v_proj", width, width)?,
            out: weights.linear("out_proj", width, width)?,
            head_width: width / config.heads,
        })
    }

    fn apply(&self, x: Tensor<3>) -> Result<Tensor<3>> {
        let heads = |layer: &Linear| Ok(nn::split_heads(layer.apply(x.clone())?, self.head_width));
        let (q, k, v) = (heads(&self.q)?, heads(&self.k)?, heads(&self.v)?);
        let scale = (self.head_width as f32).sqrt().recip();
        let mixed = kernels::attention(AttentionInputs { q, k, v, mask: None, scale });
        self.out.apply(nn::join_heads(mixed))
    }
}
