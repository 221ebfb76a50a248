//! From clips and captions to a dataset: look first ([`doctor()`]), then do the long work
//! ([`preprocess`]), which may be interrupted and be run again.
//!
//! Clips are read through [`Media`] and encoded through [`Encode`], so that this knows neither a video
//! format nor a model.

mod buckets;
mod doctor;
mod extract;
mod files;
mod frames;
mod hearing;
mod manifest;
mod mask;
mod pieces;
mod resampled;
mod run;
mod sounds;
mod suggest;
mod text;
mod texts;
mod together;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use burn::tensor::TensorData;

pub use buckets::{Buckets, Rules};
pub use doctor::{DoctorReport, Planned, Reason, Reference, Skipped, doctor};
pub use extract::Extract;
pub use files::{Decoded, MediaFiles};
pub use manifest::{ManifestEntry, find_sources};
pub use mask::{Mask, MaskKind, is_white, touched};
pub use pieces::Pieces;
pub use resampled::Resampled;
pub use run::{Progress, Summary, preprocess, tensors_of};
pub use suggest::suggest;
pub use text::read_text;
pub use texts::{preprocess_texts, read_captions, text_id};
pub use together::{Helpers, Tensors};

use crate::clip::Clip;
use crate::media::Waveform;
use crate::store::Fingerprint;

/// A rate of frames as it is told: with three decimals at the most.
fn rounded(fps: f64) -> f64 {
    (fps * 1e3).round() / 1e3
}

/// An error of a reader or an encoder.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// What is known of a clip before it is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// How many frames it has; 1 is a picture.
    pub frames: usize,
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// Frames per second; of a picture, 1.
    pub fps: f64,
}

/// One frame of a clip, `[H, W, 3]`, red first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RgbFrame {
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
    pub width: usize,
    /// The values, row by row.
    pub pixels: Vec<u8>,
}

/// The frames of a clip, one after the other, each read when it is asked for.
pub type Frames<'a> = Box<dyn Iterator<Item = Result<RgbFrame, Cause>> + 'a>;

/// The sound of a clip, read as it is asked for.
pub struct Sound<'a> {
    /// Samples per second.
    pub sample_rate: u32,
    /// How many samples there are for every moment.
    pub channels: usize,
    /// Seconds from the first frame of the clip to the first sample; below 0 if the sound comes first.
    pub delay: f64,
    /// Some moments at a time, the samples of each beside each other.
    pub samples: Box<dyn Iterator<Item = Result<Vec<f32>, Cause>> + 'a>,
}

/// Reads clips and pictures.
pub trait Media {
    /// What a file holds, without reading all of it.
    ///
    /// # Errors
    /// It is not a clip or picture that can be read.
    fn probe(&self, path: &Path) -> Result<Probe, Cause>;

    /// The frames of a file, from the first on. Whoever has enough lets go of them.
    ///
    /// # Errors
    /// It cannot be read.
    fn frames(&self, path: &Path) -> Result<Frames<'_>, Cause>;

    /// The same, but a frame that is damaged is an error where a reader would else mend it.
    ///
    /// # Errors
    /// It cannot be read.
    fn frames_strictly(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        self.frames(path)
    }

    /// Whether a file has a sound, as far as it can be told without decoding it.
    ///
    /// # Errors
    /// It cannot be read.
    fn sounds(&self, _path: &Path) -> Result<bool, Cause> {
        Ok(false)
    }

    /// The sound of a file, from the beginning on, if it has one.
    ///
    /// # Errors
    /// It cannot be read.
    fn sound(&self, _path: &Path) -> Result<Option<Sound<'_>>, Cause> {
        Ok(None)
    }

    /// Hands out frame after frame, until there are no more or it is told to stop.
    ///
    /// # Errors
    /// A frame cannot be read.
    fn read(
        &self,
        path: &Path,
        each: &mut dyn FnMut(RgbFrame) -> ControlFlow<()>,
    ) -> Result<(), Cause> {
        for frame in self.frames(path)? {
            if each(frame?).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// Makes tensors of clips and captions.
pub trait Encode {
    /// Which encoders these are; a dataset is made with one set of them.
    fn fingerprint(&self) -> Fingerprint;

    /// How many frames, rows and columns of pixels one latent stands for; 1 frame in a model of
    /// pictures. The first latent frame stands for the first frame alone.
    fn factors(&self) -> [usize; 3];

    /// The latents of a clip, `[C, f, h, w]`.
    ///
    /// # Errors
    /// It cannot be encoded.
    fn clip(&mut self, clip: &Clip) -> Result<TensorData, Cause>;

    /// What a model is shown of a clip beside its caption, by key: nothing, unless it is made for pictures.
    ///
    /// # Errors
    /// It cannot be encoded.
    fn shown(&mut self, _clip: &Clip) -> Result<BTreeMap<String, TensorData>, Cause> {
        Ok(BTreeMap::new())
    }

    /// The latents `[C, t, bins]` of a sound of so many seconds; none of a model without sound.
    ///
    /// # Errors
    /// It cannot be encoded.
    fn sound(&mut self, _sound: &Waveform, _seconds: f64) -> Result<Option<TensorData>, Cause> {
        Ok(None)
    }

    /// The embeddings of a caption, `[L, D]` each and without padding, by key. Keys begin with
    /// [`TEXT`](crate::store::TEXT).
    ///
    /// # Errors
    /// It cannot be encoded.
    fn text(&mut self, caption: &str) -> Result<BTreeMap<String, TensorData>, Cause>;

    /// Others who encode as well, if there are any.
    fn helpers(&mut self) -> Option<&mut dyn Helpers> {
        None
    }
}
