//! What a stream is told before its blocks: noise levels and text, each through its own small network.

use burn::tensor::Tensor;
use kernels::Activation;
use nn::{Linear, Result, Weights};

use super::Ltx2Config;

/// Noise levels to one modulation for all blocks.
pub(super) struct LevelEmbedder {
    first: Linear,
    second: Linear,
    projection: Linear,
}

impl LevelEmbedder {
    /// For a stream of width `width`, with `rows` rows of modulation.
    pub(super) fn new(weights: &Weights<'_>, width: usize, rows: usize) -> Result<LevelEmbedder> {
        let embedder = weights.at("emb.timestep_embedder");
        Ok(LevelEmbedder {
            first: embedder.linear("linear_1", Ltx2Config::SINUSOID, width)?,
            second: embedder.linear("linear_2", width, width)?,
            projection: weights.linear("linear", width, rows * width)?,
        })
    }

    /// The embedded timesteps `[B, K, D]` of timesteps `[B, K]`, and the modulation `[B, K, rows D]`.
    pub(super) fn apply(&self, timesteps: &Tensor<2>) -> Result<(Tensor<3>, Tensor<3>)> {
        let x = nn::timestep_embedding(timesteps, Ltx2Config::SINUSOID);
        let embedded = self.second.apply(self.first.apply_with(x, Activation::Silu)?)?;
        let modulation = self.projection.apply(kernels::silu(embedded.clone()))?;
        Ok((embedded, modulation))
    }

    /// The modulation alone.
    pub(super) fn modulation(&self, timesteps: &Tensor<2>) -> Result<Tensor<3>> {
        Ok(self.apply(timesteps)?.1)
    }
}

/// A caption into the width of a stream.
pub(super) struct CaptionProjection {
    first: Linear,
    second: Linear,
}

impl CaptionProjection {
    pub(super) fn new(weights: &Weights<'_>, captions: usize, width: usize) -> Result<Self> {
        let first = weights.linear("linear_1", captions, width)?;
        Ok(CaptionProjection { first, second: weights.linear("linear_2", width, width)? })
    }

    /// `[B, L, captions]` to `[B, L, D]`.
    pub(super) fn apply(&self, text: Tensor<3>) -> Result<Tensor<3>> {
        self.second.apply(self.first.apply_with(text, Activation::GeluTanh)?)
    }
}

/// All that tells one stream, by the names of its modules.
pub(super) struct Conditions {
    pub(super) level: LevelEmbedder,
    pub(super) prompt: Option<LevelEmbedder>,
    pub(super) captions: Option<CaptionProjection>,
    pub(super) cross: LevelEmbedder,
    pub(super) gate: LevelEmbedder,
}

impl Conditions {
    /// `prefix` stands before the names that both streams have, `cross` and `gate` are the stream's own.
    pub(super) fn new(
        weights: &Weights<'_>,
        config: &Ltx2Config,
        stream: &super::model::Stream<'_>,
    ) -> Result<Conditions> {
        let width = config.width(stream.config);
        let own = |name: &str| weights.at(format!("{}{name}", stream.prefix));
        let rows = if stream.config.modulated_text { 9 } else { 6 };
        let prompt = match config.modulated_prompt() {
            true => Some(LevelEmbedder::new(&own("prompt_adaln"), width, 2)?),
            false => None,
        };
        let captions = config
            .captions
            .map(|captions| CaptionProjection::new(&own("caption_projection"), captions, width));
        Ok(Conditions {
            level: LevelEmbedder::new(&own("time_embed"), width, rows)?,
            prompt,
            captions: captions.transpose()?,
            cross: LevelEmbedder::new(&weights.at(stream.cross), width, 4)?,
            gate: LevelEmbedder::new(&weights.at(stream.gate), width, 1)?,
        })
    }
}
