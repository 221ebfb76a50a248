//! The sample store: what encoders made of clips and captions, on disk.
//!
//! ```text
//! dataset.json            the format, and the fingerprint of the encoders
//! index.jsonl             one line per shard: what is in it; later lines hold over earlier ones
//! shards/00000.safetensors
//! null.safetensors        what stands for a dropped caption
//! ```
//!
//! A shard is written aside, synced and renamed before its line is added to the index, and a line
//! counts once it ends. So a crash at any moment leaves whole samples and nothing else; the next
//! [`Writer`] clears away the rest.

mod files;
mod index;
mod null;
mod reader;
mod writer;

use std::collections::BTreeMap;
use std::fmt;

use burn::tensor::TensorData;
use serde::{Deserialize, Serialize};

pub use reader::Dataset;
pub use writer::{Writer, hash_files, hash_parts};

/// Latents of the clip, `[C, f, h, w]`.
pub const LATENTS: &str = "latents";
/// Text embedding without padding, `[L, D]`. Keys that begin like this may differ in length.
pub const TEXT: &str = "text";
/// Latents of the reference clip, `[C, f, h, w]`.
pub const REF_LATENTS: &str = "ref_latents";
/// Latents of the sound, `[C, t, …]`.
pub const AUDIO_LATENTS: &str = "audio_latents";
/// Which latents are to be generated, `[f, h, w]`.
pub const MASK: &str = "mask";
/// What a model that is shown pictures as channels sees beside the noise, `[C', f, h, w]`.
pub const BESIDE: &str = "beside";
/// What an image encoder sees of the pictures that a model is shown, `[L, D]`.
pub const IMAGE: &str = "image";

/// Frames, height and width of a clip in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bucket {
    /// How many frames.
    pub frames: usize,
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.width, self.height, self.frames)
    }
}

/// Which encoders made a dataset: a text for each, by its role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(pub BTreeMap<String, String>);

impl Fingerprint {
    /// From roles and texts.
    pub fn new<const N: usize>(parts: [(&str, String); N]) -> Fingerprint {
        Fingerprint(parts.into_iter().map(|(role, text)| (role.to_owned(), text)).collect())
    }

    /// The first role whose encoder differs, with both texts.
    pub(crate) fn difference(&self, other: &Fingerprint) -> Option<[String; 3]> {
        let mut roles: Vec<_> = self.0.keys().chain(other.0.keys()).collect();
        roles.sort();
        let role = roles.into_iter().find(|role| self.0.get(*role) != other.0.get(*role))?;
        let text = |of: &Fingerprint| of.0.get(role).map_or("none", String::as_str).to_owned();
        Some([role.clone(), text(self), text(other)])
    }
}

/// Where a sample comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Its name: the path of its clip. A sample replaces an earlier one of the same name.
    pub id: String,
    /// The hash of all that it was made from; another hash is another sample.
    pub source_hash: String,
    /// What it shows.
    pub caption: String,
    /// Frames per second.
    pub fps: f64,
    /// The size of the clip that was encoded.
    pub bucket: Bucket,
    /// What its reference is, if it has one; earlier versions did not record it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<RefOrigin>,
}

impl Origin {
    /// Frames per second of the reference: those of the clip where nothing else was recorded.
    pub fn reference_fps(&self) -> f64 {
        self.reference.map_or(self.fps, |reference| reference.fps)
    }
}

/// Where the reference of a sample comes from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefOrigin {
    /// The size that was encoded.
    pub bucket: Bucket,
    /// Frames per second; of a picture, 1.
    pub fps: f64,
}

/// A sample: where it comes from, and its tensors by key.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Where it comes from.
    pub origin: Origin,
    /// The tensors, without a dim for the batch.
    pub tensors: BTreeMap<String, TensorData>,
}
