//! What is generated given what: the one conditioning core of training, validation and inference.
//!
//! A [`Scene`] is made of tracks. A [`Track`] knows its clean tokens as far as they are known, which of
//! them are *fixed* (a first frame, a prefix, the rim of a mask), which other clean tokens stand
//! beside it as references, and where every token is. Everything a network must be told follows:
//! fixed tokens and references enter clean, at level 0; the others enter noisy, at their own level.

mod geometry;
mod levels;
mod place;
mod reference;
mod region;
mod track;

pub use geometry::{Geometry, Grouping, Tokens};
pub use levels::NoiseLevels;
pub use place::{AudioClock, Coordinates, Time, align_reference};
pub use reference::ReferenceScale;
pub use region::{Region, pool_mask};
pub use track::{Reference, Track, TrackKind};

use nn::{Context, Inputs};

/// A picture or video, and perhaps its sound.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The picture or video.
    pub video: Track,
    /// The sound, for families that have it.
    pub audio: Option<Track>,
}

/// One value per track of a scene.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tracks<T> {
    /// The video's.
    pub video: T,
    /// The sound's.
    pub audio: Option<T>,
}

impl<T> Tracks<T> {
    /// Two values per track; the sound's only if both have it.
    pub fn zip<U>(self, other: Tracks<U>) -> Tracks<(T, U)> {
        Tracks { video: (self.video, other.video), audio: self.audio.zip(other.audio) }
    }

    /// The same of something else.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> Tracks<U> {
        Tracks { video: change(self.video), audio: self.audio.map(change) }
    }
}

impl Scene {
    /// A picture or video alone.
    pub fn video(video: Track) -> Scene {
        Scene { video, audio: None }
    }

    /// How many samples there are.
    pub fn samples(&self) -> usize {
        self.video.samples()
    }

    /// The same scene about another text: `[1 | B, L, D]`, for every track.
    pub fn with_text(&self, text: &Context) -> Scene {
        let audio = self.audio.as_ref().map(|track| track.with_text(text));
        Scene { video: self.video.with_text(text), audio }
    }

    /// The same scene around other clean tokens; fixed tokens stay what they are.
    pub fn with_clean(&self, clean: Tracks<burn::tensor::Tensor<3>>) -> Scene {
        let audio = self.audio.as_ref().zip(clean.audio);
        Scene {
            video: self.video.with_clean(clean.video),
            audio: audio.map(|(track, clean)| track.with_clean(clean)).or(self.audio.clone()),
        }
    }

    /// What the network is given for tokens that are noisy at `levels`.
    pub fn inputs(
        &self,
        process: &crate::Process,
        noisy: Tracks<burn::tensor::Tensor<3>>,
        levels: &Tracks<NoiseLevels>,
    ) -> Inputs {
        let sound = self.audio.as_ref().zip(noisy.audio).zip(levels.audio.as_ref());
        Inputs {
            video: self.video.modality(process, noisy.video, &levels.video),
            audio: sound.map(|((track, noisy), levels)| track.modality(process, noisy, levels)),
        }
    }

    /// `of` every track.
    pub fn each<T>(&self, mut of: impl FnMut(&'static str, &Track) -> T) -> Tracks<T> {
        Tracks {
            video: of("video", &self.video),
            audio: self.audio.as_ref().map(|track| of("audio", track)),
        }
    }
}
