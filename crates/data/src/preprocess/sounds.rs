//! Pieces of sounds: like those of clips, a sound is read once for all of its pieces that are asked for in order.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use super::doctor::{Planned, Reason};
use super::{Media, Sound};
use crate::media::Waveform;

/// No piece lasts longer: its samples are held in memory.
const MOST_SECONDS: f64 = 600.0;

/// The sound of the last piece, which stays open while others of its pieces are to follow.
#[derive(Default)]
pub(super) struct Sounds<'a>(Option<Open<'a>>);

/// A sound that is being read.
struct Open<'a> {
    path: PathBuf,
    sound: Sound<'a>,
    /// Which moment the first of those that are kept is.
    first: usize,
    /// The samples of the moments that this or the next piece has.
    kept: VecDeque<f32>,
    is_over: bool,
}

impl Planned {
    /// When it begins in its clip and how long it lasts, in seconds.
    pub(super) fn span(&self) -> [f64; 2] {
        [self.first as f64 / self.fps, self.bucket.frames as f64 / self.fps]
    }
}

impl<'a> Sounds<'a> {
    /// What is heard while a clip is seen, and for how many seconds; none if it has no sound. Where the sound has not
    /// begun or is over, there is silence.
    ///
    /// # Errors
    /// It cannot be read, or lasts too long.
    pub(super) fn of(
        &mut self,
        media: &'a dyn Media,
        clip: &Planned,
    ) -> Result<Option<(Waveform, f64)>, Reason> {
        let Some(path) = &clip.sound else { return Ok(None) };
        let of_sound = |reason| Reason::Sound(path.clone(), Box::new(reason));
        let [start, seconds] = clip.span();
        if seconds > MOST_SECONDS {
            return Err(of_sound(Reason::TooLong { seconds, most: MOST_SECONDS }));
        }
        let next = clip.next.map(|next| next as f64 / clip.fps);
        let taken = self.take(media, path, ([start, seconds], next)).map_err(of_sound)?;
        Ok(Some((taken, seconds)))
    }

    fn take(
        &mut self,
        media: &'a dyn Media,
        path: &Path,
        ([start, seconds], next): ([f64; 2], Option<f64>),
    ) -> Result<Waveform, Reason> {
        let unreadable = |cause: super::Cause| Reason::Unreadable(cause.to_string());
        let serves =
            |own: &Open<'_>| own.path == path && own.moment(start).max(0) >= own.first as i64;
        let mut open = match self.0.take().filter(serves) {
            Some(open) => open,
            None => {
                let sound = media.sound(path).map_err(unreadable)?.ok_or(Reason::Silent)?;
                let (path, kept) = (path.to_owned(), VecDeque::new());
                Open { path, sound, first: 0, kept, is_over: false }
            }
        };
        let samples = open.read(start, seconds).map_err(unreadable)?;
        let Sound { sample_rate, channels, .. } = open.sound;
        if let Some(next) = next {
            open.forget(open.moment(next));
            self.0 = Some(open);
        }
        Ok(Waveform { sample_rate, channels, samples })
    }
}

impl Open<'_> {
    /// Which sample of every channel belongs to a time of the clip; below 0 before the sound begins.
    fn moment(&self, seconds: f64) -> i64 {
        let Sound { sample_rate, delay, .. } = self.sound;
        ((seconds - delay) * f64::from(sample_rate)).round() as i64
    }

    /// The samples of so many seconds from a time on.
    fn read(&mut self, start: f64, seconds: f64) -> Result<Vec<f32>, super::Cause> {
        let (channels, rate) = (self.sound.channels, f64::from(self.sound.sample_rate));
        let first = self.moment(start);
        let last = first + (seconds * rate).round() as i64;
        self.forget(first);
        while !self.is_over && ((self.first + self.kept.len() / channels) as i64) < last {
            match self.sound.samples.next() {
                Some(samples) => self.kept.extend(samples?),
                None => self.is_over = true,
            }
            // What comes before is asked for by nobody.
            self.forget(first);
        }
        let mut samples = Vec::with_capacity((last - first).max(0) as usize * channels);
        for moment in first..last {
            let at = usize::try_from(moment - self.first as i64).ok().map(|at| at * channels);
            let own = at.filter(|at| at + channels <= self.kept.len());
            match own {
                Some(at) => samples.extend(self.kept.range(at..at + channels)),
                None => samples.extend(std::iter::repeat_n(0.0, channels)),
            }
        }
        Ok(samples)
    }

    /// Lets go of the moments before one.
    fn forget(&mut self, moment: i64) {
        let channels = self.sound.channels;
        let known = (self.kept.len() / channels) as i64;
        let gone = (moment - self.first as i64).clamp(0, known) as usize;
        self.kept.drain(..gone * channels);
        self.first += gone;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::{Cause, Extract, Frames, Probe};
    use super::*;
    use crate::store::Bucket;

    /// A sound of two channels at 10 a second that says which moment is heard, from which channel, and how many
    /// pieces of it were asked for.
    struct Counting {
        moments: usize,
        delay: f64,
        read: Cell<usize>,
    }

    impl Media for Counting {
        fn probe(&self, _: &Path) -> Result<Probe, Cause> {
            Ok(Probe { frames: 60, height: 1, width: 1, fps: 4.0 })
        }

        fn frames(&self, _: &Path) -> Result<Frames<'_>, Cause> {
            Ok(Box::new(std::iter::empty()))
        }

        fn sound(&self, _: &Path) -> Result<Option<Sound<'_>>, Cause> {
            let moment = |at: usize| {
                self.read.set(self.read.get() + 1);
                Ok(vec![at as f32 + 1.0, -(at as f32) - 1.0])
            };
            let samples = Box::new((0..self.moments).map(moment));
            Ok(Some(Sound { sample_rate: 10, channels: 2, delay: self.delay, samples }))
        }
    }

    fn piece(first: usize, next: Option<usize>) -> Planned {
        let source = Probe { frames: 60, height: 1, width: 1, fps: 4.0 };
        Planned {
            id: "x".to_owned(),
            path: "x".into(),
            caption: String::new(),
            reference: None,
            mask: None,
            sound: Some("x".into()),
            bucket: Bucket { frames: 5, height: 1, width: 1 },
            fps: 4.0,
            source,
            first,
            next,
        }
    }

    /// What is heard from a moment of the clip on, with silence where there is no sound.
    fn wanted(media: &Counting, first: usize) -> Vec<f32> {
        let begin = ((first as f64 / 4.0 - media.delay) * 10.0).round() as i64;
        let moment = |at: i64| match (0..media.moments as i64).contains(&at) {
            true => [at as f32 + 1.0, -(at as f32) - 1.0],
            false => [0.0; 2],
        };
        // 1.25 seconds are 12.5 moments, and the half is rounded up.
        (begin..begin + 13).flat_map(moment).collect()
    }

    #[test]
    fn a_sound_is_cut_where_its_clip_is_and_read_once() {
        for (moments, delay) in [(200, 0.0), (100, 0.0), (200, 0.7), (200, -0.7), (3, 0.0)] {
            for text in ["head", "chunk", "slide", "slide:1", "slide:7", "uniform:9"] {
                let media = Counting { moments, delay, read: Cell::new(0) };
                let firsts = text.parse::<Extract>().unwrap().firsts(60, 5);
                let mut sounds = Sounds::default();
                for (at, first) in firsts.iter().enumerate() {
                    let clip = piece(*first, firsts.get(at + 1).copied());
                    let (found, seconds) = sounds.of(&media, &clip).unwrap().unwrap();
                    assert_eq!((found.sample_rate, found.channels, seconds), (10, 2, 1.25));
                    assert_eq!(found.samples, wanted(&media, *first), "{text} {delay} {first}");
                    let held = sounds.0.as_ref().map_or(0, |open| open.kept.len());
                    assert!(held <= 2 * 14, "{text} holds {held} samples");
                }
                assert!(media.read.get() <= moments, "{text} reads moments more than once");
                assert!(sounds.0.is_none(), "{text} leaves the sound open");
            }
        }
    }

    #[test]
    fn clips_without_a_sound_have_none_and_long_ones_are_refused() {
        let media = Counting { moments: 9, delay: 0.0, read: Cell::new(0) };
        let mut sounds = Sounds::default();
        let silent = Planned { sound: None, ..piece(0, None) };
        assert_eq!(sounds.of(&media, &silent), Ok(None));
        let slow = Planned { fps: 0.001, ..piece(0, None) };
        let refused = sounds.of(&media, &slow).unwrap_err().to_string();
        assert_eq!(refused, "its sound x: 5000 seconds are used of it; at most 600 can be");
        assert_eq!(media.read.get(), 0);
    }
}
