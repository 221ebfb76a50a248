//! What can be given beside a prompt, and how it enters a network.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Something that is given beside a prompt.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The picture that a clip begins with.
    Image,
    /// The picture that a clip ends with.
    LastImage,
    /// A picture for a frame in between.
    Keyframe,
    /// The first frames of a clip.
    VideoPrefix,
    /// The whole clip: its sound is made, or what a mask leaves free.
    Video,
    /// Which part of what is given is made anew.
    Mask,
    /// Another clip to look at.
    Reference,
    /// The sound of a clip.
    Audio,
}

impl Condition {
    /// All of them.
    pub const ALL: [Condition; 8] = [
        Condition::Image,
        Condition::LastImage,
        Condition::Keyframe,
        Condition::VideoPrefix,
        Condition::Video,
        Condition::Mask,
        Condition::Reference,
        Condition::Audio,
    ];
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Image => "image",
            Condition::LastImage => "last_image",
            Condition::Keyframe => "keyframe",
            Condition::VideoPrefix => "video_prefix",
            Condition::Video => "video",
            Condition::Mask => "mask",
            Condition::Reference => "reference",
            Condition::Audio => "audio",
        })
    }
}

/// How a condition enters a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntersAs {
    /// As clean tokens at level 0, in their place or, for a reference, before all others.
    CleanTokens,
    /// As clean tokens beside all others, at the place of a single frame; what stands for the first frame is in its place.
    TokensBeside,
    /// As channels beside the noise: a mask of given frames, then the latents of the clip, grey where
    /// nothing is given.
    Channels,
}

/// How pictures that are given come to have another size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resampling {
    /// By Lanczos's filter.
    #[default]
    Lanczos,
    /// By lines between neighbours.
    Bilinear,
}

/// Which conditions a model takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    entries: BTreeMap<Condition, EntersAs>,
    /// The one that must be given.
    pub required: Option<Condition>,
    /// Channels that say which frames are given, where conditions enter as channels.
    pub mask_channels: usize,
    /// How many times smaller the references are that it was trained with.
    pub reference_scale: usize,
    /// How pictures come to have the size of the clip.
    pub resampling: Resampling,
}

impl Conditions {
    /// None at all.
    pub fn none() -> Conditions {
        Conditions { reference_scale: 1, ..Conditions::default() }
    }

    /// The same, taking some more; those that it takes already enter as they did.
    pub fn taking(mut self, more: &[Condition], entry: EntersAs) -> Conditions {
        more.iter().for_each(|condition| _ = self.entries.entry(*condition).or_insert(entry));
        self
    }

    /// The same after a training in which all conditions were clean tokens in their places.
    pub(crate) fn trained_with(mut self, shown: &[Condition]) -> Conditions {
        for condition in shown {
            self.entries.insert(*condition, EntersAs::CleanTokens);
        }
        self
    }

    /// How a condition enters, if the model takes it.
    pub fn enters(&self, condition: Condition) -> Option<EntersAs> {
        self.entries.get(&condition).copied()
    }

    /// Those that it takes.
    pub fn taken(&self) -> impl Iterator<Item = Condition> {
        self.entries.keys().copied()
    }
}
