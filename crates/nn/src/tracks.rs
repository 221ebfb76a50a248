//! One value for each modality.

/// A modality, as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrackName {
    /// The picture or video.
    Video,
    /// The sound.
    Audio,
}

impl TrackName {
    /// The other one.
    pub fn other(self) -> TrackName {
        match self {
            TrackName::Video => TrackName::Audio,
            TrackName::Audio => TrackName::Video,
        }
    }
}

/// One value for each modality that takes part: the picture or video, the sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracks<T> {
    /// The video's.
    pub video: Option<T>,
    /// The sound's.
    pub audio: Option<T>,
}

impl<T> Default for Tracks<T> {
    /// None.
    fn default() -> Tracks<T> {
        Tracks { video: None, audio: None }
    }
}

impl<T> Tracks<T> {
    /// A picture or video alone.
    pub fn video(value: T) -> Tracks<T> {
        Tracks { video: Some(value), audio: None }
    }

    /// A sound alone.
    pub fn audio(value: T) -> Tracks<T> {
        Tracks { video: None, audio: Some(value) }
    }

    /// References to the values.
    pub fn as_ref(&self) -> Tracks<&T> {
        Tracks { video: self.video.as_ref(), audio: self.audio.as_ref() }
    }

    /// References to the values, to change them.
    pub fn as_mut(&mut self) -> Tracks<&mut T> {
        Tracks { video: self.video.as_mut(), audio: self.audio.as_mut() }
    }

    /// The values with the names of their modalities, the video's first.
    pub fn named(self) -> Tracks<(&'static str, T)> {
        Tracks {
            video: self.video.map(|value| ("video", value)),
            audio: self.audio.map(|value| ("audio", value)),
        }
    }

    /// What `change` makes of each value.
    pub fn map<U>(self, mut change: impl FnMut(T) -> U) -> Tracks<U> {
        Tracks { video: self.video.map(&mut change), audio: self.audio.map(change) }
    }

    /// What `change` makes of each value.
    ///
    /// # Errors
    /// The first of `change`.
    pub fn try_map<U, E>(self, mut change: impl FnMut(T) -> Result<U, E>) -> Result<Tracks<U>, E> {
        Ok(Tracks {
            video: self.video.map(&mut change).transpose()?,
            audio: self.audio.map(change).transpose()?,
        })
    }

    /// Two values for each modality that both have.
    pub fn zip<U>(self, other: Tracks<U>) -> Tracks<(T, U)> {
        Tracks { video: self.video.zip(other.video), audio: self.audio.zip(other.audio) }
    }

    /// Each value with the other's of its modality, if there is one.
    pub fn beside<U>(self, other: Tracks<U>) -> Tracks<(T, Option<U>)> {
        Tracks {
            video: self.video.map(|value| (value, other.video)),
            audio: self.audio.map(|value| (value, other.audio)),
        }
    }

    /// The value of one modality.
    pub fn of(self, name: TrackName) -> Option<T> {
        match name {
            TrackName::Video => self.video,
            TrackName::Audio => self.audio,
        }
    }

    /// The video's value if there is one, else the sound's.
    pub fn first(self) -> Option<T> {
        self.video.or(self.audio)
    }
}

impl<T> IntoIterator for Tracks<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::option::IntoIter<T>>;

    /// The values, the video's first.
    fn into_iter(self) -> Self::IntoIter {
        self.video.into_iter().chain(self.audio)
    }
}

#[cfg(test)]
mod tests {
    use super::Tracks;

    #[test]
    fn what_only_one_has_is_not_paired() {
        let both = Tracks { video: Some(1), audio: Some(2) };
        assert_eq!(both.zip(Tracks::audio('a')), Tracks::audio((2, 'a')));
        assert_eq!(both.zip(Tracks::video('v')).first(), Some((1, 'v')));
        assert_eq!(Tracks::audio(2).beside(Tracks::video('v')), Tracks::audio((2, None)));
        assert_eq!(Tracks::audio(2).named().into_iter().collect::<Vec<_>>(), [("audio", 2)]);
        assert_eq!(both.try_map(|it| if it > 1 { Err(it) } else { Ok(it) }), Err(2));
    }
}
