//! One block of LTX-2: what each stream does alone, and how the two listen to each other.

use burn::tensor::Tensor;
use kernels::{Activation, Modulation, gated_residual, modulate, modulated_rms_norm, rms_norm};
use nn::{Attention, Linear, Mask, Reach, Result, Site, TrackName, Weights, table_rows};

use super::Ltx2Config;
use super::mixer::{Mixer, MixerSizes};
use super::model::Stream;
use super::shared::{CrossShared, StreamShared};

/// What one block does to one stream.
pub(super) struct StreamBlock {
    site: Sites,
    layer: usize,
    epsilon: f32,
    table: Tensor<2>,
    prompt_table: Option<Tensor<2>>,
    modulated_text: bool,
    own: Mixer,
    text: Mixer,
    cross_table: Tensor<2>,
    cross: Mixer,
    up: Linear,
    down: Linear,
}

/// What the attentions of a stream are called: to itself, to the text and to the other stream.
#[derive(Clone, Copy)]
pub(super) struct Sites {
    pub(super) track: TrackName,
    pub(super) names: [&'static str; 3],
}

impl StreamBlock {
    /// The part of `stream` in block `layer`; `other` is the stream that it listens to.
    pub(super) fn new(
        weights: &Weights<'_>,
        layer: usize,
        config: &Ltx2Config,
        stream: &Stream<'_>,
    ) -> Result<StreamBlock> {
        let own = stream.config;
        let (width, other) = (config.width(own), config.width(stream.other));
        let name = |name: &str| format!("{}{name}", stream.prefix);
        let attention = |part: &str| weights.at(name(part));
        let sizes = MixerSizes {
            queries: width,
            keys: width,
            heads: config.heads,
            head_width: own.head_width,
            gated: own.gated,
            pairing: config.pairing,
        };
        // The streams meet in heads of the sound's width.
        let meeting = MixerSizes { keys: other, head_width: config.audio.head_width, ..sizes };
        let rows = if own.modulated_text { 9 } else { 6 };
        let prompt_table = match config.modulated_prompt() {
            true => Some(weights.table(&name("prompt_scale_shift_table"), [2, width])?),
            false => None,
        };
        let feed = Ltx2Config::FEED * width;
        Ok(StreamBlock {
            site: stream.sites,
            layer,
            epsilon: config.epsilon,
            table: weights.table(&name("scale_shift_table"), [rows, width])?,
            prompt_table,
            modulated_text: own.modulated_text,
            own: Mixer::new(&attention("attn1"), sizes)?,
            text: Mixer::new(&attention("attn2"), sizes)?,
            cross_table: weights.table(stream.cross_table, [5, width])?,
            cross: Mixer::new(&weights.at(stream.listens), meeting)?,
            up: weights.linear(&name("ff.net.0.proj"), width, feed)?,
            down: weights.linear(&name("ff.net.2"), feed, width)?,
        })
    }

    /// The stream `[B, T, D]` after attention to itself and to the text. Where attention to itself is skipped,
    /// every token answers itself.
    pub(super) fn alone(
        &self,
        x: Tensor<3>,
        shared: &StreamShared,
        attention: &mut dyn Attention,
    ) -> Result<Tensor<3>> {
        let [shift, scale, gate] = self.rows(shared, 0);
        let modulation = shared.modulate(&scale, &shift);
        let normed = modulated_rms_norm(x.clone(), None, &modulation, self.epsilon);
        let ropes = Some([&shared.rope; 2]);
        let qkv = self.own.project(normed.clone(), normed.clone(), ropes)?;
        let mixed = match shared.skips(self.layer) {
            true => qkv.v,
            false => attention.attend(self.at(0), qkv, Reach::Own, None)?,
        };
        let x = gated_residual(x, self.own.join(normed, mixed)?, gate, shared.index.clone());

        let mask = shared.mask();
        match self.modulated_text {
            false => {
                let normed = rms_norm(x.clone(), None, self.epsilon);
                Ok(x + self.read(normed, shared, mask.as_ref(), attention)?)
            }
            true => {
                let [shift, scale, gate] = self.rows(shared, 6);
                let modulation = shared.modulate(&scale, &shift);
                let normed = modulated_rms_norm(x.clone(), None, &modulation, self.epsilon);
                let read = self.read(normed, shared, mask.as_ref(), attention)?;
                Ok(gated_residual(x, read, gate, shared.index.clone()))
            }
        }
    }

    /// What `[B, T, D]` finds in the text.
    fn read(
        &self,
        x: Tensor<3>,
        shared: &StreamShared,
        mask: Option<&Mask>,
        attention: &mut dyn Attention,
    ) -> Result<Tensor<3>> {
        let text = match (&self.prompt_table, &shared.prompt) {
            (Some(table), Some(prompt)) => {
                let [shift, scale] = table_rows(table, prompt);
                modulate(shared.text.clone(), &Modulation { scale, shift, index: None })
            }
            _ => shared.text.clone(),
        };
        let qkv = self.text.project(x.clone(), text, None)?;
        let found = attention.attend(self.at(1), qkv, Reach::Replicated, mask)?;
        self.text.join(x, found)
    }

    /// What the stream is as listener and as heard: its norm `[B, T, D]`, modulated for each.
    pub(super) fn meet(&self, x: Tensor<3>, shared: &CrossShared) -> Meeting {
        let normed = rms_norm(x, None, self.epsilon);
        let table = self.cross_table.clone().narrow(0, 0, 4);
        let [scale, shift, other_scale, other_shift] = table_rows(&table, &shared.modulation);
        let modulated = |scale, shift| {
            let modulation = Modulation { scale, shift, index: shared.index.clone() };
            modulate(normed.clone(), &modulation)
        };
        Meeting { first: modulated(scale, shift), second: modulated(other_scale, other_shift) }
    }

    /// The stream `[B, T, D]` after it heard `heard` `[B, S, D']` as `listener`.
    pub(super) fn listen(
        &self,
        x: Tensor<3>,
        [listener, heard]: [Tensor<3>; 2],
        [own, other]: [&CrossShared; 2],
        attention: &mut dyn Attention,
    ) -> Result<Tensor<3>> {
        let ropes = Some([&own.rope, &other.rope]);
        let qkv = self.cross.project(listener.clone(), heard, ropes)?;
        let found = attention.attend(self.at(2), qkv, Reach::Sharded, None)?;
        let found = self.cross.join(listener, found)?;
        let [gate] = table_rows(&self.cross_table.clone().narrow(0, 4, 1), &own.gate);
        Ok(gated_residual(x, found, gate, own.gate_index.clone()))
    }

    /// The stream `[B, T, D]` after the feed-forward.
    pub(super) fn feed(&self, x: Tensor<3>, shared: &StreamShared) -> Result<Tensor<3>> {
        let [shift, scale, gate] = self.rows(shared, 3);
        let modulation = shared.modulate(&scale, &shift);
        let normed = modulated_rms_norm(x.clone(), None, &modulation, self.epsilon);
        let fed = self.down.apply(self.up.apply_with(normed, Activation::GeluTanh)?)?;
        Ok(gated_residual(x, fed, gate, shared.index.clone()))
    }

    /// Three rows of the modulation from `first` on, `[B, K, D]` each.
    fn rows(&self, shared: &StreamShared, first: usize) -> [Tensor<3>; 3] {
        let [_, width] = self.table.dims();
        let shared = shared.modulation.clone().narrow(2, first * width, 3 * width);
        table_rows(&self.table.clone().narrow(0, first, 3), &shared)
    }

    fn at(&self, attention: usize) -> Site {
        let Sites { track, names } = self.site;
        Site { layer: self.layer, name: names[attention], track }
    }
}

/// A stream as it enters the two attentions between the streams: the one of the video that listens to the
/// sound comes first.
pub(super) struct Meeting {
    pub(super) first: Tensor<3>,
    pub(super) second: Tensor<3>,
}

/// The last norm of a stream and the projection to its tokens.
pub(super) struct Head {
    table: Tensor<2>,
    norm: nn::LayerNorm,
    projection: Linear,
}

impl Head {
    pub(super) fn new(
        weights: &Weights<'_>,
        config: &Ltx2Config,
        stream: &Stream<'_>,
    ) -> Result<Head> {
        let width = config.width(stream.config);
        let name = |name: &str| format!("{}{name}", stream.prefix);
        Ok(Head {
            table: weights.table(&name("scale_shift_table"), [2, width])?,
            norm: nn::LayerNorm::plain(Ltx2Config::EPSILON),
            projection: weights.linear(&name("proj_out"), width, stream.config.out_channels)?,
        })
    }

    /// `[B, T, D]` to `[B, T, C]`.
    pub(super) fn apply(&self, x: Tensor<3>, shared: &StreamShared) -> Result<Tensor<3>> {
        let [shift, scale] = table_rows(&self.table, &shared.embedded.clone().repeat_dim(2, 2));
        let x = self.norm.apply(x, Some(&shared.modulate(&scale, &shift)));
        self.projection.apply(x)
    }
}
