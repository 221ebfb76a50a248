//! Duet as a fold over blocks.

use burn::tensor::{Int, Tensor};
use nn::{
    Bag, Dit, Entry, Error, Forward, Inputs, Modality, Packed, Prediction, Result, Rope, Sizes,
    Tracks, Weights,
};

use super::DuetConfig;
use super::voice::{Conditions, Door, VoiceBlock};

const VIDEO: &str = "video";
const AUDIO: &str = "audio";

/// The transformer. It holds its config only; parameters come by `Weights`.
#[derive(Clone, Debug)]
pub struct Duet {
    /// Its numbers.
    pub config: DuetConfig,
}

/// What every block sees, voice by voice.
#[derive(Clone, Debug)]
pub struct Shared(Tracks<VoiceShared>);

/// What every block sees of one voice.
#[derive(Clone, Debug)]
pub(super) struct VoiceShared {
    /// `[B, K, 8 D]`.
    modulation: Tensor<3>,
    /// `[B, L, D]`.
    pub(super) text: Tensor<3>,
    /// Added to the scores of the text, `[B, 1, 1, L]`.
    pub(super) text_mask: Option<Tensor<4>>,
    /// Where the tokens are, `[B, T, axes 64]`.
    pub(super) places: Tensor<3>,
    /// The same as angles.
    pub(super) rope: Rope,
    /// The level of every token, `[B, T]`.
    pub(super) index: Option<Tensor<2, Int>>,
}

impl VoiceShared {
    /// One of the eight parts of the modulation, `[B, K, D]`.
    pub(super) fn part(&self, part: usize) -> Tensor<3> {
        let width = self.modulation.dims()[2] / 8;
        self.modulation.clone().narrow(2, part * width, width)
    }
}

/// What flows from block to block: the voices, `[B, T, D]` each.
#[derive(Clone, Debug)]
pub struct Streams(Tracks<Tensor<3>>);

impl Bag for VoiceShared {
    fn pack(self) -> Packed {
        Packed::of([
            ("modulation", Entry::tensor(self.modulation)),
            ("text", Entry::tensor(self.text)),
            ("text_mask", Entry::optional(self.text_mask.map(Entry::constant))),
            ("places", Entry::constant(self.places)),
            ("index", Entry::optional(self.index.map(Entry::integers))),
        ])
        .nest("rope", Some(self.rope.pack()))
    }

    fn unpack(mut packed: Packed) -> Result<VoiceShared> {
        let shared = VoiceShared {
            modulation: packed.tensor("modulation")?,
            text: packed.tensor("text")?,
            text_mask: packed.optional("text_mask", Packed::constant)?,
            places: packed.constant("places")?,
            rope: Rope::unpack(packed.nested("rope")?)?,
            index: packed.optional("index", Packed::integers)?,
        };
        packed.finish().map(|()| shared)
    }
}

impl Bag for Shared {
    fn pack(self) -> Packed {
        let Tracks { video, audio } = self.0.map(Bag::pack);
        Packed::default().nest(VIDEO, video).nest(AUDIO, audio)
    }

    fn unpack(mut packed: Packed) -> Result<Shared> {
        let video = packed.optional(VIDEO, Packed::nested)?;
        let audio = packed.optional(AUDIO, Packed::nested)?;
        packed.finish()?;
        Tracks { video, audio }.try_map(VoiceShared::unpack).map(Shared)
    }
}

impl Bag for Streams {
    fn pack(self) -> Packed {
        let Tracks { video, audio } = self.0.map(Entry::tensor);
        Packed::of([(VIDEO, Entry::optional(video)), (AUDIO, Entry::optional(audio))])
    }

    fn unpack(mut packed: Packed) -> Result<Streams> {
        let video = packed.optional(VIDEO, Packed::tensor)?;
        let audio = packed.optional(AUDIO, Packed::tensor)?;
        packed.finish().map(|()| Streams(Tracks { video, audio }))
    }
}

impl Duet {
    /// Layers that begin at zero, by name at any depth: a new model then starts as the identity.
    pub const ZERO: [&str; 5] =
        ["time.modulation", "words.to_out", "other.to_out", "leave", "table"];

    /// A voice's name, its values per token and its axes.
    fn voices(&self) -> impl Iterator<Item = (&'static str, [usize; 2])> {
        let audio = self.config.audio_channels.map(|channels| (AUDIO, [channels, 1]));
        std::iter::once((VIDEO, [self.config.video_channels, 3])).chain(audio)
    }

    fn share(&self, weights: &Weights<'_>, name: &str, modality: &Modality) -> Result<VoiceShared> {
        let conditions = Conditions::new(&weights.at(name), &self.config)?;
        // A sound lies in seconds, its angles count latents.
        let (scale, pairs) = match name {
            AUDIO => (self.config.audio_rate, vec![self.config.head_width / 2]),
            _ => (1.0, self.config.pairs().to_vec()),
        };
        let positions = &modality.positions;
        let axes: Vec<usize> = (0..positions.dims()[1]).collect();
        let places = DuetConfig::SINUSOID * axes.len();
        Ok(VoiceShared {
            modulation: conditions.modulate(&modality.levels)?,
            text: conditions.read(modality.context.tokens.clone())?,
            text_mask: modality.context.text_mask(),
            places: positions.embedding(&axes, places, scale),
            rope: positions.rope(&pairs, scale),
            index: modality.levels.index.clone(),
        })
    }

    /// The modalities that take part, checked.
    fn heard<'a>(&self, inputs: &'a Inputs) -> Result<Tracks<&'a Modality>> {
        let Tracks { video, audio } = inputs.as_ref();
        let enabled = |own: &&Modality| own.enabled;
        let audio = audio.filter(enabled).filter(|_| self.config.audio_channels.is_some());
        let heard = Tracks { video: video.filter(enabled), audio };
        if heard.as_ref().first().is_none() {
            let want = "a picture, a video or, where audio_channels is set, a sound".to_owned();
            return Err(Error::Shape { what: "the input", got: "empty".to_owned(), want });
        }
        heard.named().try_map(|(name, own)| {
            let sizes = self.voices().find(|(voice, _)| *voice == name).map(|(_, sizes)| sizes);
            check(own, sizes.expect("the voice exists"), self.config.text_width)?;
            Ok(own)
        })
    }

    fn door(&self, weights: &Weights<'_>, name: &'static str) -> Result<Door> {
        let sizes = self.voices().find(|(voice, _)| *voice == name).map(|(_, sizes)| sizes);
        Door::new(&weights.at(name), &self.config, sizes.expect("the voice exists"))
    }

    fn block_of(
        &self,
        weights: &Weights<'_>,
        name: &'static str,
        layer: usize,
    ) -> Result<VoiceBlock> {
        VoiceBlock::new(&weights.at(format!("blocks.{layer}.{name}")), (name, layer), &self.config)
    }
}

/// Refuses tokens, places or text of another size.
fn check(modality: &Modality, [channels, axes]: [usize; 2], text_width: usize) -> Result<()> {
    let [batch, tokens, width] = modality.tokens.dims();
    let wrong =
        |what: &'static str, got: String, want: String| Err(Error::Shape { what, got, want });
    if width != channels {
        let want = format!("the transformer takes {channels} values per token");
        return wrong("the width of a token", width.to_string(), want);
    }
    if modality.positions.dims() != [batch, axes, tokens, 2] {
        let want = format!("{batch} samples of {tokens} tokens lie on {axes} axes");
        return wrong("the shape of positions", format!("{:?}", modality.positions.dims()), want);
    }
    let [_, _, text] = modality.context.tokens.dims();
    match text == text_width {
        true => Ok(()),
        false => {
            let want = format!("text_width is {text_width}");
            wrong("the width of the text embedding", text.to_string(), want)
        }
    }
}

impl Dit for Duet {
    type Shared = Shared;
    type Stream = Streams;

    fn sizes(&self) -> Sizes {
        Sizes { depth: self.config.depth, heads: self.config.heads }
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        for (name, _) in self.voices() {
            Conditions::new(&weights.at(name), &self.config)?;
            self.door(weights, name)?;
            for layer in 0..self.config.depth {
                self.block_of(weights, name, layer)?;
            }
        }
        Ok(())
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Shared> {
        let heard = self.heard(inputs)?.named();
        heard.try_map(|(name, own)| self.share(weights, name, own)).map(Shared)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Shared) -> Result<Streams> {
        let heard = self.heard(inputs)?.zip(shared.0.as_ref()).named();
        let enter = |(name, (own, shared))| self.door(weights, name)?.enter(own, shared);
        heard.try_map(enter).map(Streams)
    }

    fn block(&self, index: usize, own: Streams, pass: Forward<'_, Shared>) -> Result<Streams> {
        let (Streams(streams), Forward { weights, shared, attention }) = (own, pass);
        // A voice that is heard gets a node of its own for its own part: then no node collects more than
        // two gradients, and their sum does not depend on the order in which a graph comes to them.
        let duet = streams.video.is_some() && streams.audio.is_some();
        let own = |voice: &Tensor<3>| if duet { voice.clone() * 1.0 } else { voice.clone() };
        let voices = streams.as_ref().zip(shared.0.as_ref()).named();
        let next = voices.try_map(|(name, (voice, shared))| {
            let other = if name == VIDEO { &streams.audio } else { &streams.video };
            let block = self.block_of(weights, name, index)?;
            block.apply(own(voice), other.clone(), shared, attention)
        });
        next.map(Streams)
    }

    fn head(&self, weights: &Weights<'_>, streams: Streams, shared: &Shared) -> Result<Prediction> {
        let voices = streams.0.zip(shared.0.as_ref()).named();
        voices.try_map(|(name, (voice, shared))| self.door(weights, name)?.leave(voice, shared))
    }
}
