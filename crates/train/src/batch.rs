//! What a step is given: samples by source, and where they come from.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use nn::Context;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The samples of one micro-batch, all of one shape.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// How many samples there are.
    pub samples: usize,
    /// Their values, by the name of the source.
    pub fields: BTreeMap<String, Field>,
    /// What networks that are shown pictures as channels see beside the noise, `[B, C', F, H, W]`.
    pub beside: Option<Tensor<5>>,
}

/// The values of one source.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a batch holds a handful of them")]
pub enum Field {
    /// Latents of pictures or videos.
    Video(VideoLatents),
    /// Latents of sounds, `[B, C, T, F]`: channels, time, frequency bins.
    Audio(Tensor<4>),
    /// Embedded text.
    Text(Context),
    /// One value per token, `[B, N]`; above one half means given.
    Mask(Tensor<2>),
}

/// Latents of pictures or videos with the speed they play at.
#[derive(Clone, Debug)]
pub struct VideoLatents {
    /// `[B, C, F, H, W]`.
    pub values: Tensor<5>,
    /// Frames per second, one per sample.
    pub rates: Vec<f64>,
}

impl Field {
    /// What it is called in messages.
    fn kind(&self) -> &'static str {
        match self {
            Field::Video(_) => "video latents",
            Field::Audio(_) => "audio latents",
            Field::Text(_) => "text",
            Field::Mask(_) => "a mask",
        }
    }
}

impl Batch {
    /// A source that `strategy` needs.
    ///
    /// # Errors
    /// The batch does not have it.
    pub fn field(&self, strategy: &str, name: &str) -> Result<&Field> {
        self.fields.get(name).ok_or_else(|| Error::MissingSource {
            strategy: strategy.to_owned(),
            source_name: name.to_owned(),
            found: match self.fields.is_empty() {
                true => "nothing".to_owned(),
                false => self.fields.keys().cloned().collect::<Vec<_>>().join(", "),
            },
        })
    }

    /// Video latents that `strategy` needs.
    ///
    /// # Errors
    /// The source is missing, of another kind, or for another number of samples.
    pub fn video(&self, strategy: &str, name: &str) -> Result<&VideoLatents> {
        match self.field(strategy, name)? {
            Field::Video(latents) => {
                self.count(name, latents.values.dims()[0])?;
                self.count(name, latents.rates.len())?;
                Ok(latents)
            }
            other => Err(wrong(name, other, "video latents")),
        }
    }

    /// Audio latents that `strategy` needs.
    ///
    /// # Errors
    /// As [`Batch::video`].
    pub fn audio(&self, strategy: &str, name: &str) -> Result<&Tensor<4>> {
        match self.field(strategy, name)? {
            Field::Audio(latents) => self.count(name, latents.dims()[0]).map(|()| latents),
            other => Err(wrong(name, other, "audio latents")),
        }
    }

    /// Text that `strategy` needs.
    ///
    /// # Errors
    /// As [`Batch::video`].
    pub fn text(&self, strategy: &str, name: &str) -> Result<&Context> {
        match self.field(strategy, name)? {
            Field::Text(text) => self.count(name, text.tokens.dims()[0]).map(|()| text),
            other => Err(wrong(name, other, "text")),
        }
    }

    /// A mask that `strategy` needs.
    ///
    /// # Errors
    /// As [`Batch::video`].
    pub fn mask(&self, strategy: &str, name: &str) -> Result<&Tensor<2>> {
        match self.field(strategy, name)? {
            Field::Mask(mask) => self.count(name, mask.dims()[0]).map(|()| mask),
            other => Err(wrong(name, other, "a mask")),
        }
    }

    fn count(&self, name: &str, found: usize) -> Result<()> {
        match found == self.samples {
            true => Ok(()),
            false => Err(Error::Shape {
                what: format!("source `{name}`"),
                got: format!("for {found} samples"),
                want: format!("the batch has {}", self.samples),
            }),
        }
    }
}

fn wrong(name: &str, field: &Field, wanted: &'static str) -> Error {
    Error::SourceKind { name: name.to_owned(), found: field.kind(), wanted }
}

/// This rank's part of a micro-batch that all ranks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Where its first sample is in the whole.
    pub first: u64,
    /// Samples of the whole, over all ranks.
    pub whole: u64,
}

/// A place in the data: all that is needed to continue there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// How often all data were seen.
    pub epoch: u64,
    /// Samples, or batches, of this epoch that are over: the source's own count.
    pub position: u64,
}

/// Where batches come from. The recipe builds one; it may fetch ahead, but its cursor is that of the
/// batch that [`Feed::next`] will give.
pub trait Feed {
    /// The next micro-batch of this rank.
    ///
    /// # Errors
    /// There are no data, or they cannot be read.
    fn next(&mut self) -> Result<Batch>;

    /// How large the next `batches` batches are over all ranks, and which part of each is this rank's; none of
    /// them is read for it.
    ///
    /// # Errors
    /// There are no data.
    fn ahead(&mut self, batches: u64) -> Result<Vec<Share>>;

    /// The place of the next batch.
    fn cursor(&self) -> Cursor;

    /// Continues at a place.
    ///
    /// # Errors
    /// There is no such place.
    fn seek(&mut self, cursor: Cursor) -> Result<()>;
}
