//! What flows between the parts of the network, and how it packs itself.

use burn::tensor::{Int, Tensor};
use kernels::Modulation;
use nn::{Bag, Entry, Mask, Packed, Result, Rope, Tracks};

/// What every block sees, stream by stream.
#[derive(Clone, Debug)]
pub struct Shared(pub Tracks<StreamShared>);

/// What every block sees of one stream.
#[derive(Clone, Debug)]
pub struct StreamShared {
    /// One modulation for all blocks, `[B, K, 6 D]` or `[B, K, 9 D]`.
    pub modulation: Tensor<3>,
    /// The embedded noise levels, `[B, K, D]`.
    pub embedded: Tensor<3>,
    /// The level of every token, `[B, T]`.
    pub index: Option<Tensor<2, Int>>,
    /// The modulation of the text, `[B, 1, 2 D]`.
    pub prompt: Option<Tensor<3>>,
    /// The text, `[B, L, D]`.
    pub text: Tensor<3>,
    /// Added to the scores of the text, `[B, 1, 1, L]`.
    pub text_mask: Option<Tensor<4>>,
    /// Where the tokens are.
    pub rope: Rope,
    /// What it needs to meet the other stream, if there is one.
    pub cross: Option<CrossShared>,
    /// Blocks in which its tokens do not look at each other, `[count]`.
    pub skipped: Option<Tensor<1, Int>>,
}

/// What one stream needs to meet the other.
#[derive(Clone, Debug)]
pub struct CrossShared {
    /// Scales and shifts of all blocks as listener and as heard, `[B, K, 4 D]`.
    pub modulation: Tensor<3>,
    /// The level of every token in it, `[B, T]`.
    pub index: Option<Tensor<2, Int>>,
    /// How much it hears, `[B, K, D]`.
    pub gate: Tensor<3>,
    /// The level of every token in that, `[B, T]`.
    pub gate_index: Option<Tensor<2, Int>>,
    /// When the tokens are.
    pub rope: Rope,
}

/// What flows from block to block: the streams, `[B, T, D]` each.
#[derive(Clone, Debug)]
pub struct Streams(pub Tracks<Tensor<3>>);

impl StreamShared {
    /// The mask of an attention to the text.
    pub(super) fn mask(&self) -> Option<Mask> {
        self.text_mask.clone().map(Mask::Dense)
    }

    /// Whether tokens do not look at each other in a block.
    pub(super) fn skips(&self, layer: usize) -> bool {
        let skipped = self.skipped.as_ref().map(|layers| layers.to_data());
        skipped.is_some_and(|layers| layers.iter::<i64>().any(|own| own == layer as i64))
    }

    /// Scale and shift for the tokens.
    pub(super) fn modulate(&self, scale: &Tensor<3>, shift: &Tensor<3>) -> Modulation {
        Modulation { scale: scale.clone(), shift: shift.clone(), index: self.index.clone() }
    }
}

impl Bag for CrossShared {
    fn pack(self) -> Packed {
        Packed::of([
            ("modulation", Entry::tensor(self.modulation)),
            ("index", Entry::optional(self.index.map(Entry::integers))),
            ("gate", Entry::tensor(self.gate)),
            ("gate_index", Entry::optional(self.gate_index.map(Entry::integers))),
        ])
        .nest("rope", Some(self.rope.pack()))
    }

    fn unpack(mut packed: Packed) -> Result<CrossShared> {
        let shared = CrossShared {
            modulation: packed.tensor("modulation")?,
            index: packed.optional("index", Packed::integers)?,
            gate: packed.tensor("gate")?,
            gate_index: packed.optional("gate_index", Packed::integers)?,
            rope: Rope::unpack(packed.nested("rope")?)?,
        };
        packed.finish().map(|()| shared)
    }
}

impl Bag for StreamShared {
    fn pack(self) -> Packed {
        Packed::of([
            ("modulation", Entry::tensor(self.modulation)),
            ("embedded", Entry::tensor(self.embedded)),
            ("index", Entry::optional(self.index.map(Entry::integers))),
            ("prompt", Entry::optional(self.prompt.map(Entry::tensor))),
            ("text", Entry::tensor(self.text)),
            ("text_mask", Entry::optional(self.text_mask.map(Entry::constant))),
            ("skipped", Entry::optional(self.skipped.map(Entry::integers))),
        ])
        .nest("rope", Some(self.rope.pack()))
        .nest("cross", self.cross.map(Bag::pack))
    }

    fn unpack(mut packed: Packed) -> Result<StreamShared> {
        let cross = packed.optional("cross", Packed::nested)?;
        let shared = StreamShared {
            modulation: packed.tensor("modulation")?,
            embedded: packed.tensor("embedded")?,
            index: packed.optional("index", Packed::integers)?,
            prompt: packed.optional("prompt", Packed::tensor)?,
            text: packed.tensor("text")?,
            text_mask: packed.optional("text_mask", Packed::constant)?,
            rope: Rope::unpack(packed.nested("rope")?)?,
            cross: cross.map(CrossShared::unpack).transpose()?,
            skipped: packed.optional("skipped", Packed::integers)?,
        };
        packed.finish().map(|()| shared)
    }
}

impl Bag for Shared {
    fn pack(self) -> Packed {
        let Tracks { video, audio } = self.0.map(Bag::pack);
        Packed::default().nest("video", video).nest("audio", audio)
    }

    fn unpack(mut packed: Packed) -> Result<Shared> {
        let video = packed.optional("video", Packed::nested)?;
        let audio = packed.optional("audio", Packed::nested)?;
        packed.finish()?;
        Tracks { video, audio }.try_map(StreamShared::unpack).map(Shared)
    }
}

impl Bag for Streams {
    fn pack(self) -> Packed {
        let Tracks { video, audio } = self.0.map(Entry::tensor);
        Packed::of([("video", Entry::optional(video)), ("audio", Entry::optional(audio))])
    }

    fn unpack(mut packed: Packed) -> Result<Streams> {
        let video = packed.optional("video", Packed::tensor)?;
        let audio = packed.optional("audio", Packed::tensor)?;
        packed.finish().map(|()| Streams(Tracks { video, audio }))
    }
}
