//! Duet as a fold over blocks.

use burn::tensor::{Int, Tensor};
use nn::{
    Attention, Bag, Dit, Entry, Error, Inputs, Modality, Packed, Prediction, Result, Weights,
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
pub struct Shared {
    video: VoiceShared,
    audio: Option<VoiceShared>,
}

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

/// The angles by which the pairs of a head are turned, cosines and sines, `[B | 1, T, H / 2]`; they have
/// no gradient.
#[derive(Clone, Debug)]
pub(super) struct Rope([Tensor<3>; 2]);

impl Rope {
    /// The heads `[B, T, N, H]` turned by where their tokens are.
    pub(super) fn rotate(&self, x: Tensor<4>) -> Tensor<4> {
        let graph = x.device().is_autodiff();
        let [cosine, sine] = self.0.clone().map(|table| match graph {
            true => Tensor::from_inner(table),
            false => table,
        });
        kernels::rope(x, cosine, sine)
    }
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
pub struct Streams {
    video: Tensor<3>,
    audio: Option<Tensor<3>>,
}

impl Bag for VoiceShared {
    fn pack(self) -> Packed {
        let Rope([cosine, sine]) = self.rope;
        Packed::of([
            ("modulation", Entry::tensor(self.modulation)),
            ("text", Entry::tensor(self.text)),
            ("text_mask", Entry::optional(self.text_mask.map(Entry::constant))),
            ("places", Entry::constant(self.places)),
            ("cosine", Entry::constant(cosine)),
            ("sine", Entry::constant(sine)),
            ("index", Entry::optional(self.index.map(Entry::integers))),
        ])
    }

    fn unpack(mut packed: Packed) -> Result<VoiceShared> {
        let shared = VoiceShared {
            modulation: packed.tensor("modulation")?,
            text: packed.tensor("text")?,
            text_mask: packed.optional("text_mask", Packed::constant)?,
            places: packed.constant("places")?,
            rope: Rope([packed.constant("cosine")?, packed.constant("sine")?]),
            index: packed.optional("index", Packed::integers)?,
        };
        packed.finish().map(|()| shared)
    }
}

impl Bag for Shared {
    fn pack(self) -> Packed {
        let packed = Packed::default().nest(VIDEO, Some(self.video.pack()));
        packed.nest(AUDIO, self.audio.map(Bag::pack))
    }

    fn unpack(mut packed: Packed) -> Result<Shared> {
        let video = VoiceShared::unpack(packed.nested(VIDEO)?)?;
        let audio = packed.optional(AUDIO, Packed::nested)?;
        packed.finish()?;
        Ok(Shared { video, audio: audio.map(VoiceShared::unpack).transpose()? })
    }
}

impl Bag for Streams {
    fn pack(self) -> Packed {
        Packed::of([
            (VIDEO, Entry::tensor(self.video)),
            (AUDIO, Entry::optional(self.audio.map(Entry::tensor))),
        ])
    }

    fn unpack(mut packed: Packed) -> Result<Streams> {
        let video = packed.tensor(VIDEO)?;
        let streams = Streams { video, audio: packed.optional(AUDIO, Packed::tensor)? };
        packed.finish().map(|()| streams)
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
        let positions = match name {
            AUDIO => modality.positions.clone() * self.config.audio_rate,
            _ => modality.positions.clone(),
        };
        let axes: Vec<usize> = (0..positions.dims()[1]).collect();
        let places = DuetConfig::SINUSOID * axes.len();
        let pairs = match name {
            AUDIO => vec![self.config.head_width / 2],
            _ => self.config.pairs().to_vec(),
        };
        let text_mask = modality.context.mask.as_ref().map(|mask| {
            let [batch, length] = mask.dims();
            kernels::additive_mask(mask.clone().greater_elem(0.5)).reshape([batch, 1, 1, length])
        });
        Ok(VoiceShared {
            modulation: conditions.modulate(&modality.levels)?,
            text: conditions.read(modality.context.tokens.clone())?,
            text_mask,
            places: nn::position_embedding(&positions, &axes, places),
            rope: Rope(nn::rope_angles(&positions, &pairs)),
            index: modality.levels.index.clone(),
        })
    }

    /// The sound, if there is one and it takes part.
    fn sound<'a>(&self, inputs: &'a Inputs) -> Option<&'a Modality> {
        inputs.audio.as_ref().filter(|audio| audio.enabled && self.config.audio_channels.is_some())
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

    fn depth(&self) -> usize {
        self.config.depth
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
        check(&inputs.video, [self.config.video_channels, 3], self.config.text_width)?;
        let audio = self.sound(inputs);
        if let (Some(audio), Some(channels)) = (audio, self.config.audio_channels) {
            check(audio, [channels, 1], self.config.text_width)?;
        }
        Ok(Shared {
            video: self.share(weights, VIDEO, &inputs.video)?,
            audio: audio.map(|audio| self.share(weights, AUDIO, audio)).transpose()?,
        })
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Shared) -> Result<Streams> {
        let audio = self.sound(inputs).zip(shared.audio.as_ref());
        let audio = audio.map(|(audio, shared)| self.door(weights, AUDIO)?.enter(audio, shared));
        let video = self.door(weights, VIDEO)?.enter(&inputs.video, &shared.video)?;
        Ok(Streams { video, audio: audio.transpose()? })
    }

    fn block(
        &self,
        index: usize,
        weights: &Weights<'_>,
        Streams { video, audio }: Streams,
        shared: &Shared,
        attention: &mut dyn Attention,
    ) -> Result<Streams> {
        // A voice that is heard gets a node of its own for its own part: then no node collects more than
        // two gradients, and their sum does not depend on the order in which a graph comes to them.
        let own = |voice: &Tensor<3>| match audio {
            Some(_) => voice.clone() * 1.0,
            None => voice.clone(),
        };
        let block = self.block_of(weights, VIDEO, index)?;
        let next = block.apply(own(&video), audio.clone(), &shared.video, attention)?;
        let audio = match audio.as_ref().zip(shared.audio.as_ref()) {
            None => None,
            Some((audio, shared)) => {
                let block = self.block_of(weights, AUDIO, index)?;
                Some(block.apply(own(audio), Some(video), shared, attention)?)
            }
        };
        Ok(Streams { video: next, audio })
    }

    fn head(&self, weights: &Weights<'_>, streams: Streams, shared: &Shared) -> Result<Prediction> {
        let video = self.door(weights, VIDEO)?.leave(streams.video, &shared.video)?;
        let audio = streams.audio.zip(shared.audio.as_ref());
        let audio = audio
            .map(|(audio, shared)| self.door(weights, AUDIO)?.leave(audio, shared))
            .transpose()?;
        Ok(Prediction { video, audio })
    }
}
