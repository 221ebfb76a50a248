//! LTX-2 as a fold over blocks.

use burn::tensor::{Int, Tensor, TensorData};
use nn::{
    Bands, Dit, Error, Forward, Inputs, Levels, Linear, Modality, Prediction, Result, Sizes,
    TrackName, Tracks, Weights,
};
use serde::{Deserialize, Serialize};

use super::blocks::{Head, Sites, StreamBlock};
use super::conditions::Conditions;
use super::shared::{CrossShared, Shared, StreamShared, Streams};
use super::{Ltx2Config, StreamConfig};

/// The transformer. It holds its config only; parameters come by `Weights`.
#[derive(Clone, Debug)]
pub struct Ltx2 {
    /// Its numbers.
    pub config: Ltx2Config,
    /// Whose noise levels decide where the streams meet.
    pub cross_levels: CrossLevels,
}

/// Whose noise levels modulate a stream where it meets the other, and open its gate. They agree where all
/// tokens of both streams have one level.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CrossLevels {
    /// Its own tokens' modulate it, the other's as a whole opens its gate: how the model was trained.
    #[default]
    Original,
    /// Its own for both: diffusers with `use_cross_timestep=False`.
    Own,
    /// The other's as a whole for both: diffusers with `use_cross_timestep=True`.
    Other,
}

/// One of the two streams: its numbers, and what its parts are called.
pub(super) struct Stream<'a> {
    pub(super) config: &'a StreamConfig,
    pub(super) other: &'a StreamConfig,
    /// Before names that both streams have.
    pub(super) prefix: &'static str,
    /// The module that embeds levels for meeting the other stream.
    pub(super) cross: &'static str,
    /// The module that embeds levels for the gate.
    pub(super) gate: &'static str,
    /// The table of a block for both.
    pub(super) cross_table: &'static str,
    /// The attention by which it listens.
    pub(super) listens: &'static str,
    pub(super) sites: Sites,
}

impl Ltx2 {
    /// Modules whose matrices keep their stored type under `--dtype bf16`: what stands before and after the
    /// blocks.
    pub const KEPT: [&str; 14] = [
        "proj_in",
        "audio_proj_in",
        "caption_projection",
        "audio_caption_projection",
        "time_embed",
        "audio_time_embed",
        "prompt_adaln",
        "audio_prompt_adaln",
        "av_cross_attn_video_scale_shift",
        "av_cross_attn_audio_scale_shift",
        "av_cross_attn_video_a2v_gate",
        "av_cross_attn_audio_v2a_gate",
        "proj_out",
        "audio_proj_out",
    ];

    /// Both streams, the video's first.
    fn streams(&self) -> Tracks<Stream<'_>> {
        let Ltx2Config { video, audio, .. } = &self.config;
        Tracks {
            video: Some(Stream {
                config: video,
                other: audio,
                prefix: "",
                cross: "av_cross_attn_video_scale_shift",
                gate: "av_cross_attn_video_a2v_gate",
                cross_table: "video_a2v_cross_attn_scale_shift_table",
                listens: "audio_to_video_attn",
                sites: Sites {
                    track: TrackName::Video,
                    names: ["video", "video-text", "video-audio"],
                },
            }),
            audio: Some(Stream {
                config: audio,
                other: video,
                prefix: "audio_",
                cross: "av_cross_attn_audio_scale_shift",
                gate: "av_cross_attn_audio_v2a_gate",
                cross_table: "audio_a2v_cross_attn_scale_shift_table",
                listens: "video_to_audio_attn",
                sites: Sites {
                    track: TrackName::Audio,
                    names: ["audio", "audio-text", "audio-video"],
                },
            }),
        }
    }

    fn bands(&self) -> Tracks<Bands> {
        Tracks { video: Some(self.config.video_bands()), audio: Some(self.config.audio_bands()) }
    }

    /// The modalities that take part, checked.
    fn heard<'a>(&self, inputs: &'a Inputs) -> Result<Tracks<&'a Modality>> {
        let Tracks { video, audio } = inputs.as_ref();
        let enabled = |own: &&Modality| own.enabled;
        let heard = Tracks { video: video.filter(enabled), audio: audio.filter(enabled) };
        if heard.as_ref().first().is_none() {
            return wrong("the input", "empty", "a video, a sound or both");
        }
        let checked = heard.zip(self.streams()).zip(self.bands());
        checked.try_map(|((own, stream), bands)| {
            self.check(own, stream.config, bands.extents.len())?;
            Ok(own)
        })
    }

    fn check(&self, own: &Modality, stream: &StreamConfig, axes: usize) -> Result<()> {
        let [batch, tokens, width] = own.tokens.dims();
        if width != stream.channels {
            let want = format!("the transformer takes {} values per token", stream.channels);
            return wrong("the width of a token", width, want);
        }
        if own.positions.dims() != [batch, axes, tokens, 2] {
            let want = format!("{batch} samples of {tokens} tokens lie on {axes} axes");
            return wrong("the shape of positions", format!("{:?}", own.positions.dims()), want);
        }
        let [samples, levels] = own.levels.distinct.dims();
        if samples != batch || own.levels.index.is_none() && levels != 1 {
            let got = format!("[{samples}, {levels}]");
            let want = format!("{batch} samples need a row each, and several levels an index");
            return wrong("the shape of the noise levels", got, want);
        }
        let [_, _, text] = own.context.tokens.dims();
        let (own, all) = (self.config.caption_width(stream), self.config.caption_widths());
        match text == own || text == all {
            true => Ok(()),
            false => {
                let want = format!("a caption is {own} wide for this stream, and {all} for both");
                wrong("the width of the text embedding", text, want)
            }
        }
    }

    /// What a stream reads of a caption `[B, L, D]`: all of it, or its own part where it is one for both, the
    /// video's first.
    fn caption(&self, stream: &Stream<'_>, text: Tensor<3>) -> Tensor<3> {
        let width = self.config.caption_width(stream.config);
        let whole = text.dims()[2];
        match whole == width {
            true => text,
            false if stream.prefix.is_empty() => text.narrow(2, 0, width),
            false => text.narrow(2, whole - width, width),
        }
    }

    fn share(
        &self,
        conditions: &Conditions,
        (own, other): (&Modality, Option<&Modality>),
        stream: &Stream<'_>,
        bands: &Bands,
    ) -> Result<StreamShared> {
        let (embedded, modulation) = conditions.level.apply(&own.levels.distinct)?;
        let prompt = conditions.prompt.as_ref().map(|prompt| prompt.modulation(&self.whole(own)));
        let text = self.caption(stream, own.context.tokens.clone());
        let text = match &conditions.captions {
            Some(captions) => captions.apply(text)?,
            None => text,
        };
        let cross = other.map(|other| self.share_cross(conditions, own, other));
        Ok(StreamShared {
            modulation,
            embedded,
            index: own.levels.index.clone(),
            prompt: prompt.transpose()?,
            text,
            text_mask: own.context.text_mask(),
            rope: own.positions.bands(bands),
            cross: cross.transpose()?,
            skipped: skipped(own),
        })
    }

    fn share_cross(
        &self,
        conditions: &Conditions,
        own: &Modality,
        other: &Modality,
    ) -> Result<CrossShared> {
        let tokens = || own.levels.clone();
        let heard = || Levels { distinct: self.whole(other), index: None };
        let (levels, gate) = match self.cross_levels {
            CrossLevels::Original => (tokens(), heard()),
            CrossLevels::Own => (tokens(), tokens()),
            CrossLevels::Other => (heard(), heard()),
        };
        let factor = self.config.gate_scale / self.config.level_scale;
        Ok(CrossShared {
            modulation: conditions.cross.modulation(&levels.distinct)?,
            index: levels.index,
            gate: conditions.gate.modulation(&(gate.distinct * factor))?,
            gate_index: gate.index,
            rope: own.positions.bands(&self.config.cross_bands()),
        })
    }

    /// The level of a sample as a whole as a timestep, `[B, 1]`.
    fn whole(&self, own: &Modality) -> Tensor<2> {
        let [batch] = own.sigma.dims();
        own.sigma.clone().reshape([batch, 1]) * self.config.level_scale
    }

    fn enter(&self, weights: &Weights<'_>, stream: &Stream<'_>) -> Result<Linear> {
        let name = format!("{}proj_in", stream.prefix);
        weights.linear(&name, stream.config.channels, self.config.width(stream.config))
    }

    fn build(
        &self,
        weights: &Weights<'_>,
        index: usize,
        stream: &Stream<'_>,
    ) -> Result<StreamBlock> {
        let weights = weights.at(format!("transformer_blocks.{index}"));
        StreamBlock::new(&weights, index, &self.config, stream)
    }
}

/// The blocks in which a modality skips attention to itself, if there are any.
fn skipped(own: &Modality) -> Option<Tensor<1, Int>> {
    let layers: Vec<i64> = own.skipped.iter().map(|layer| *layer as i64).collect();
    let count = layers.len();
    (count > 0).then(|| Tensor::from_data(TensorData::new(layers, [count]), &own.tokens.device()))
}

fn wrong<T>(what: &'static str, got: impl ToString, want: impl Into<String>) -> Result<T> {
    Err(Error::Shape { what, got: got.to_string(), want: want.into() })
}

impl Dit for Ltx2 {
    type Shared = Shared;
    type Stream = Streams;

    fn sizes(&self) -> Sizes {
        Sizes { depth: self.config.depth, heads: self.config.heads }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        for stream in self.streams() {
            Conditions::new(weights, &self.config, &stream)?;
            self.enter(weights, &stream)?;
            for index in 0..self.config.depth {
                self.build(weights, index, &stream)?;
            }
            Head::new(weights, &self.config, &stream)?;
        }
        Ok(())
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        let heard = self.heard(inputs)?;
        let others = Tracks { video: Some(heard.audio), audio: Some(heard.video) };
        let tracks = heard.zip(others).zip(self.streams()).zip(self.bands());
        let shared = tracks.try_map(|(((own, other), stream), bands)| {
            let conditions = Conditions::new(weights, &self.config, &stream)?;
            self.share(&conditions, (own, other), &stream, &bands)
        });
        shared.map(Shared)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, _: &Shared) -> Result<Streams> {
        let heard = self.heard(inputs)?.zip(self.streams());
        let enter = |(own, stream): (&Modality, Stream<'_>)| {
            self.enter(weights, &stream)?.apply(own.tokens.clone())
        };
        heard.try_map(enter).map(Streams)
    }

    fn block(&self, index: usize, own: Streams, pass: Forward<'_, Shared>) -> Result<Streams> {
        let (Streams(streams), Forward { weights, shared, attention }) = (own, pass);
        let shared = shared.0.as_ref();
        let blocks = streams.as_ref().zip(self.streams());
        let blocks = blocks.try_map(|(_, stream)| self.build(weights, index, &stream))?;
        let alone = streams.zip(blocks.as_ref()).zip(shared);
        let mut streams =
            alone.try_map(|((x, block), shared)| block.alone(x, shared, attention))?;

        let crosses = shared.map(|own| own.cross.as_ref());
        if let (
            Tracks { video: Some(seen), audio: Some(heard) },
            Some(Some(light)),
            Some(Some(sound)),
        ) = (&streams, crosses.video, crosses.audio)
            && let Tracks { video: Some(video), audio: Some(audio) } = &blocks
        {
            // Both listen to what the other was before it listened.
            let seen_as = video.meet(seen.clone(), light);
            let heard_as = audio.meet(heard.clone(), sound);
            let pair = [seen_as.first, heard_as.first];
            let next = video.listen(seen.clone(), pair, [light, sound], attention)?;
            let pair = [heard_as.second, seen_as.second];
            let answer = audio.listen(heard.clone(), pair, [sound, light], attention)?;
            streams = Tracks { video: Some(next), audio: Some(answer) };
        }
        let fed = streams.zip(blocks.as_ref()).zip(shared);
        fed.try_map(|((x, block), shared)| block.feed(x, shared)).map(Streams)
    }

    fn head(&self, weights: &Weights<'_>, streams: Streams, shared: &Shared) -> Result<Prediction> {
        let tracks = streams.0.zip(shared.0.as_ref()).zip(self.streams());
        tracks.try_map(|((x, shared), stream)| {
            Head::new(weights, &self.config, &stream)?.apply(x, shared)
        })
    }
}
