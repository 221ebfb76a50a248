//! What Wan is told: the noise level, the text and a picture, each through its own small network.

use burn::tensor::Tensor;
use kernels::Activation;
use nn::{LayerNorm, Levels, Linear, Result, Weights};

use super::{PictureConfig, WanConfig};

/// Added to the variance in the norms around a picture's tokens, whatever the config says.
const PICTURE_EPSILON: f32 = 1e-5;

/// All of them, below `condition_embedder`.
pub(super) struct Conditions {
    pub(super) level: LevelEmbedder,
    pub(super) text: TextEmbedder,
    pub(super) picture: Option<PictureEmbedder>,
}

impl Conditions {
    pub(super) fn new(weights: &Weights<'_>, config: &WanConfig) -> Result<Conditions> {
        let weights = weights.at("condition_embedder");
        let picture = config.picture.as_ref();
        let picture = picture.map(|picture| {
            PictureEmbedder::new(&weights.at("image_embedder"), picture, config.width())
        });
        Ok(Conditions {
            level: LevelEmbedder::new(&weights, config)?,
            text: TextEmbedder::new(&weights.at("text_embedder"), config)?,
            picture: picture.transpose()?,
        })
    }
}

/// A noise level to one modulation for all blocks.
pub(super) struct LevelEmbedder {
    first: Linear,
    second: Linear,
    projection: Linear,
    sinusoid: usize,
}

impl LevelEmbedder {
    fn new(weights: &Weights<'_>, config: &WanConfig) -> Result<LevelEmbedder> {
        let (width, sinusoid) = (config.width(), config.timestep_width);
        Ok(LevelEmbedder {
            first: weights.linear("time_embedder.linear_1", sinusoid, width)?,
            second: weights.linear("time_embedder.linear_2", width, width)?,
            projection: weights.linear("time_proj", width, 6 * width)?,
            sinusoid,
        })
    }

    /// The embedded levels `[B, K, D]` and the modulation `[B, K, 6 D]`.
    pub(super) fn apply(&self, levels: &Levels) -> Result<(Tensor<3>, Tensor<3>)> {
        let x = nn::timestep_embedding(&levels.distinct, self.sinusoid);
        let embedded = self.second.apply(self.first.apply_with(x, Activation::Silu)?)?;
        let modulation = self.projection.apply(kernels::silu(embedded.clone()))?;
        Ok((embedded, modulation))
    }
}

/// The text encoder's output into the width of the stream.
pub(super) struct TextEmbedder {
    first: Linear,
    second: Linear,
}

impl TextEmbedder {
    fn new(weights: &Weights<'_>, config: &WanConfig) -> Result<TextEmbedder> {
        let width = config.width();
        let first = weights.linear("linear_1", config.text_width, width)?;
        Ok(TextEmbedder { first, second: weights.linear("linear_2", width, width)? })
    }

    /// `[B, L, text width]` to `[B, L, D]`.
    pub(super) fn apply(&self, text: Tensor<3>) -> Result<Tensor<3>> {
        self.second.apply(self.first.apply_with(text, Activation::GeluTanh)?)
    }
}

/// The image encoder's output into the width of the stream.
pub(super) struct PictureEmbedder {
    places: Option<Tensor<3>>,
    before: LayerNorm,
    first: Linear,
    second: Linear,
    after: LayerNorm,
}

impl PictureEmbedder {
    fn new(weights: &Weights<'_>, picture: &PictureConfig, width: usize) -> Result<Self> {
        let inputs = picture.width;
        let places = picture.tokens.map(|tokens| weights.table("pos_embed", [1, tokens, inputs]));
        Ok(PictureEmbedder {
            places: places.transpose()?,
            before: weights.layer_norm("norm1", inputs, PICTURE_EPSILON)?,
            first: weights.linear("ff.net.0.proj", inputs, inputs)?,
            second: weights.linear("ff.net.2", inputs, width)?,
            after: weights.layer_norm("norm2", width, PICTURE_EPSILON)?,
        })
    }

    /// `[B, P, picture width]` to `[B, P, D]`.
    pub(super) fn apply(&self, mut x: Tensor<3>) -> Result<Tensor<3>> {
        if let Some(places) = &self.places {
            if places.device().is_autodiff() {
                x = Tensor::from_inner(x);
            }
            x = x + places.clone();
        }
        let x = self.first.apply_with(self.before.apply(x, None), Activation::GeluErf)?;
        Ok(self.after.apply(self.second.apply(x)?, None))
    }
}
