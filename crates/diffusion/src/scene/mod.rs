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

use burn::tensor::Tensor;
use nn::{Context, Inputs, Tracks};

use crate::Process;

/// A picture or video, its sound, or both.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The picture or video.
    pub video: Option<Track>,
    /// The sound, for families that have it.
    pub audio: Option<Track>,
}

impl From<Tracks<Track>> for Scene {
    fn from(Tracks { video, audio }: Tracks<Track>) -> Scene {
        Scene { video, audio }
    }
}

impl Scene {
    /// A picture or video alone.
    pub fn video(video: Track) -> Scene {
        Tracks::video(video).into()
    }

    /// What there is.
    pub fn tracks(&self) -> Tracks<&Track> {
        Tracks { video: self.video.as_ref(), audio: self.audio.as_ref() }
    }

    /// `of` every track, which is told its name.
    pub fn each<T>(&self, mut of: impl FnMut(&'static str, &Track) -> T) -> Tracks<T> {
        self.tracks().named().map(|(name, track)| of(name, track))
    }

    /// How many samples there are.
    pub fn samples(&self) -> usize {
        self.tracks().first().map_or(0, Track::samples)
    }

    /// The same scene about another text: `[1 | B, L, D]`, for every track.
    pub fn with_text(&self, text: &Context) -> Scene {
        self.tracks().map(|track| track.with_text(text)).into()
    }

    /// The same scene for a network whose tokens do not look at each other in these blocks.
    pub fn skipping(&self, blocks: &[usize]) -> Scene {
        self.tracks().map(|track| track.skipping(blocks)).into()
    }

    /// The same scene around other clean tokens; fixed tokens stay what they are.
    pub fn with_clean(&self, clean: Tracks<Tensor<3>>) -> Scene {
        let own = |(track, clean): (&Track, Option<_>)| match clean {
            Some(clean) => track.with_clean(clean),
            None => track.clone(),
        };
        self.tracks().beside(clean).map(own).into()
    }

    /// What the network is given for tokens that are noisy at `levels`.
    pub fn inputs(
        &self,
        process: &Process,
        noisy: Tracks<Tensor<3>>,
        levels: &Tracks<NoiseLevels>,
    ) -> Inputs {
        let all = self.tracks().zip(noisy).zip(levels.as_ref());
        all.map(|((track, noisy), levels)| track.modality(process, noisy, levels))
    }
}
