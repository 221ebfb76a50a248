//! One voice: how its tokens enter, what a block does to them, how they leave.

use burn::tensor::Tensor;
use kernels::{Activation, Modulation, gated_residual};
use nn::{
    Attention, LayerNorm, Levels, Linear, Mask, Modality, Qkv, Reach, Result, RmsNorm, Site,
    TrackName, Weights, join_heads, split_heads,
};

use super::DuetConfig;
use super::model::VoiceShared;

/// What becomes of a noise level and a text before the blocks.
pub(super) struct Conditions {
    first: Linear,
    second: Linear,
    modulation: Linear,
    text: Linear,
}

impl Conditions {
    pub(super) fn new(weights: &Weights<'_>, config: &DuetConfig) -> Result<Conditions> {
        let width = config.width();
        Ok(Conditions {
            first: weights.linear("time.linear_1", DuetConfig::SINUSOID, width)?,
            second: weights.linear("time.linear_2", width, width)?,
            modulation: weights.linear("time.modulation", width, 8 * width)?,
            text: weights.linear("text", config.text_width, width)?,
        })
    }

    /// The modulation `[B, K, 8 D]`: six parts for every block, two for the head.
    pub(super) fn modulate(&self, levels: &Levels) -> Result<Tensor<3>> {
        let x = nn::timestep_embedding(&levels.distinct, DuetConfig::SINUSOID);
        let x = self.first.apply_with(x, Activation::Silu)?;
        self.modulation.apply(self.second.apply_with(x, Activation::Silu)?)
    }

    /// `[B, L, text width]` to `[B, L, D]`.
    pub(super) fn read(&self, text: Tensor<3>) -> Result<Tensor<3>> {
        self.text.apply(text)
    }
}

/// How the tokens of a voice enter and leave.
pub(super) struct Door {
    enter: Linear,
    place: [Linear; 2],
    norm: LayerNorm,
    leave: Linear,
}

impl Door {
    /// `channels` values per token, which lie on `axes` axes.
    pub(super) fn new(
        weights: &Weights<'_>,
        config: &DuetConfig,
        [channels, axes]: [usize; 2],
    ) -> Result<Door> {
        let width = config.width();
        Ok(Door {
            enter: weights.linear("enter", channels, width)?,
            place: [
                weights.linear("place.linear_1", axes * DuetConfig::SINUSOID, width)?,
                weights.linear("place.linear_2", width, width)?,
            ],
            norm: LayerNorm::plain(DuetConfig::EPSILON),
            leave: weights.linear("leave", width, channels)?,
        })
    }

    /// Tokens `[B, T, C]` with their places to `[B, T, D]`.
    pub(super) fn enter(&self, modality: &Modality, shared: &VoiceShared) -> Result<Tensor<3>> {
        let [first, second] = &self.place;
        let place = second.apply(first.apply_with(shared.places.clone(), Activation::Silu)?)?;
        Ok(self.enter.apply(modality.tokens.clone())? + place)
    }

    /// `[B, T, D]` to `[B, T, C]`.
    pub(super) fn leave(&self, x: Tensor<3>, shared: &VoiceShared) -> Result<Tensor<3>> {
        let [shift, scale] = [6, 7].map(|part| shared.part(part));
        let modulation = Modulation { scale, shift, index: shared.index.clone() };
        self.leave.apply(self.norm.apply(x, Some(&modulation)))
    }
}

/// Projections around an attention. Queries and keys are normalised head by head together.
struct Mixer {
    q: Linear,
    k: Linear,
    v: Linear,
    norms: [RmsNorm; 2],
    out: Linear,
    head_width: usize,
}

impl Mixer {
    fn new(weights: &Weights<'_>, config: &DuetConfig) -> Result<Mixer> {
        let width = config.width();
        let norm = |name| weights.rms_norm(name, width, DuetConfig::EPSILON);
        Ok(Mixer {
            q: weights.linear("to_q", width, width)?,
            k: weights.linear("to_k", width, width)?,
            v: weights.linear("to_v", width, width)?,
            norms: [norm("norm_q")?, norm("norm_k")?],
            out: weights.linear("to_out", width, width)?,
            head_width: config.head_width,
        })
    }

    /// Queries of `x` `[B, T, D]`, keys and values of `other` `[B, S, D]`, cut into heads.
    fn project(&self, x: Tensor<3>, other: Tensor<3>) -> Result<Qkv> {
        let q = self.norms[0].apply(self.q.apply(x)?)?;
        let k = self.norms[1].apply(self.k.apply(other.clone())?)?;
        let [q, k, v] = [q, k, self.v.apply(other)?].map(|x| split_heads(x, self.head_width));
        Ok(Qkv { q, k, v })
    }

    /// `[B, T, N, H]` to `[B, T, D]`.
    fn join(&self, x: Tensor<4>) -> Result<Tensor<3>> {
        self.out.apply(join_heads(x))
    }
}

/// What one block does to one voice.
pub(super) struct VoiceBlock {
    name: &'static str,
    layer: usize,
    table: Tensor<3>,
    norm: LayerNorm,
    own: Mixer,
    text: Mixer,
    other: Option<Mixer>,
    up: Linear,
    down: Linear,
}

impl VoiceBlock {
    /// The part of voice `name` in block `layer`; it listens to the other voice if there is one.
    pub(super) fn new(
        weights: &Weights<'_>,
        (name, layer): (&'static str, usize),
        config: &DuetConfig,
    ) -> Result<VoiceBlock> {
        let width = config.width();
        let other = match config.audio_channels {
            Some(_) => Some(Mixer::new(&weights.at("other"), config)?),
            None => None,
        };
        Ok(VoiceBlock {
            name,
            layer,
            table: weights.table("table", [1, 1, 6 * width])?,
            norm: LayerNorm::plain(DuetConfig::EPSILON),
            own: Mixer::new(&weights.at("own"), config)?,
            text: Mixer::new(&weights.at("words"), config)?,
            other,
            up: weights.linear("up", width, config.feed_factor * width)?,
            down: weights.linear("down", config.feed_factor * width, width)?,
        })
    }

    /// `x` is `[B, T, D]`, `heard` the other voice `[B, S, D]`, if it sounds.
    pub(super) fn apply(
        &self,
        x: Tensor<3>,
        heard: Option<Tensor<3>>,
        shared: &VoiceShared,
        attention: &mut dyn Attention,
    ) -> Result<Tensor<3>> {
        let width = x.dims()[2];
        let row =
            |part: usize| self.table.clone().narrow(2, part * width, width) + shared.part(part);
        let index = || shared.index.clone();
        let modulation = Modulation { shift: row(0), scale: row(1), index: index() };
        let normed = self.norm.apply(x.clone(), Some(&modulation));
        let Qkv { q, k, v } = self.own.project(normed.clone(), normed)?;
        let qkv = Qkv { q: shared.rope.rotate(q), k: shared.rope.rotate(k), v };
        let mixed = attention.attend(self.site(["video", "audio"]), qkv, Reach::Own, None)?;
        let mut x = gated_residual(x, self.own.join(mixed)?, row(2), index());

        let qkv = self.text.project(self.norm.apply(x.clone(), None), shared.text.clone())?;
        let site = self.site(["video-text", "audio-text"]);
        let mask = shared.text_mask.clone().map(Mask::Dense);
        let read = attention.attend(site, qkv, Reach::Replicated, mask.as_ref())?;
        x = x + self.text.join(read)?;

        if let (Some(other), Some(heard)) = (&self.other, heard) {
            let heard = self.norm.apply(heard, None);
            let qkv = other.project(self.norm.apply(x.clone(), None), heard)?;
            let site = self.site(["video-audio", "audio-video"]);
            x = x + other.join(attention.attend(site, qkv, Reach::Sharded, None)?)?;
        }

        let modulation = Modulation { shift: row(3), scale: row(4), index: index() };
        let normed = self.norm.apply(x.clone(), Some(&modulation));
        let fed = self.down.apply(self.up.apply_with(normed, Activation::Silu)?)?;
        Ok(gated_residual(x, fed, row(5), index()))
    }

    fn site(&self, [video, audio]: [&'static str; 2]) -> Site {
        let (name, track) = match self.name {
            "video" => (video, TrackName::Video),
            _ => (audio, TrackName::Audio),
        };
        Site { layer: self.layer, name, track }
    }
}
