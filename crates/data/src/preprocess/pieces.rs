//! Pieces of clips: a clip is read once for all of its pieces, as long as they are asked for in order.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::doctor::{Planned, Reason};
use super::frames::fit;
use super::mask::generated;
use super::sounds::Sounds;
use super::{Cause, Frames, Media, RgbFrame};
use crate::clip::Clip;
use crate::media::Waveform;
use crate::store::Bucket;

/// What a file is to a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Clip,
    Reference,
    Mask,
}

/// Reads pieces of clips. The clip of the last piece stays open while others of its pieces are to follow.
pub struct Pieces<'a> {
    media: &'a dyn Media,
    open: BTreeMap<Role, Open<'a>>,
    sounds: Sounds<'a>,
}

/// A clip that is being read.
struct Open<'a> {
    path: PathBuf,
    /// Height and width that its frames are brought to.
    size: [usize; 2],
    /// Which frame the first of those that are kept is.
    first: usize,
    /// Frames in that size which this or the next piece has.
    kept: VecDeque<Vec<u8>>,
    /// Those behind them.
    frames: Frames<'a>,
}

impl<'a> Pieces<'a> {
    /// Pieces of clips that `media` reads.
    pub fn of(media: &'a dyn Media) -> Pieces<'a> {
        Pieces { media, open: BTreeMap::new(), sounds: Sounds::default() }
    }

    /// What is heard while a clip is seen, and for how many seconds; none if it has no sound.
    ///
    /// # Errors
    /// It cannot be read, or lasts too long.
    pub(super) fn sound(&mut self, clip: &Planned) -> Result<Option<(Waveform, f64)>, Reason> {
        self.sounds.of(self.media, clip)
    }

    /// The frames of a clip from `first` on in the size of a bucket, where the next piece begins at `next`.
    ///
    /// # Errors
    /// A frame cannot be read, or there are fewer than the bucket has.
    pub(super) fn clip(
        &mut self,
        role: Role,
        path: &Path,
        bucket: &Bucket,
        (first, next): (usize, Option<usize>),
    ) -> Result<Clip, Cause> {
        let Bucket { frames, height, width } = *bucket;
        let bytes = self.take(role, path, bucket, (first..first + frames, next))?;
        let pixels = bytes.into_iter().map(|byte| f32::from(byte) / 255.0).collect();
        Ok(Clip::new([frames, height, width], pixels)?)
    }

    /// The values of some frames, where the next piece begins at `next`. It need not be behind these.
    ///
    /// # Errors
    /// A frame cannot be read or used, or there are fewer.
    pub(super) fn take(
        &mut self,
        role: Role,
        path: &Path,
        bucket: &Bucket,
        (frames, next): (Range<usize>, Option<usize>),
    ) -> Result<Vec<u8>, Cause> {
        let size = [bucket.height, bucket.width];
        let serves =
            |own: &Open<'_>| own.path == path && own.size == size && own.first <= frames.start;
        let mut open = match self.open.remove(&role).filter(serves) {
            Some(open) => open,
            None => {
                let (path, all) = (path.to_owned(), self.media.frames(path)?);
                Open { path, size, first: 0, kept: VecDeque::new(), frames: all }
            }
        };
        open.read(role, bucket, &frames)?;
        let mut values = Vec::new();
        let start = frames.start - open.first;
        for frame in open.kept.range(start..start + frames.len()) {
            values.extend_from_slice(frame);
        }
        if let Some(next) = next {
            open.forget(next);
            self.open.insert(role, open);
        }
        Ok(values)
    }
}

impl Open<'_> {
    /// Reads on until all of these frames are there.
    fn read(&mut self, role: Role, bucket: &Bucket, frames: &Range<usize>) -> Result<(), Cause> {
        loop {
            let at = self.first + self.kept.len();
            if at >= frames.end {
                return Ok(());
            }
            let Some(frame) = self.frames.next() else {
                let needed = frames.end;
                return Err(
                    format!("only {at} frames could be read, but {needed} are needed").into()
                );
            };
            let frame = frame?;
            if at < frames.start {
                // Pieces come in order: nobody asks for what is before this one.
                self.kept.clear();
                self.first = at + 1;
            } else {
                self.kept.push_back(values(role, frame, bucket)?);
            }
        }
    }

    /// Lets go of the frames before `next`.
    fn forget(&mut self, next: usize) {
        while self.first < next && self.kept.pop_front().is_some() {
            self.first += 1;
        }
    }
}

/// What is kept of a frame: its pixels in the size of a bucket, or which of them a mask has white.
fn values(role: Role, frame: RgbFrame, bucket: &Bucket) -> Result<Vec<u8>, String> {
    match role {
        Role::Clip | Role::Reference => Ok(fit(frame, bucket)?.into_raw()),
        Role::Mask => Ok(generated(&frame, bucket)?.into_iter().map(u8::from).collect()),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::{Extract, Probe};
    use super::*;

    const BUCKET: Bucket = Bucket { frames: 5, height: 1, width: 1 };

    /// A clip of frames of one pixel that says which it is, and how many frames were read.
    struct Counting(usize, Cell<usize>);

    impl Media for Counting {
        fn probe(&self, _: &Path) -> Result<Probe, Cause> {
            Ok(Probe { frames: self.0, height: 1, width: 1, fps: 8.0 })
        }

        fn frames(&self, _: &Path) -> Result<Frames<'_>, Cause> {
            let frame = move |at: usize| {
                self.1.set(self.1.get() + 1);
                Ok(RgbFrame { height: 1, width: 1, pixels: vec![at as u8; 3] })
            };
            Ok(Box::new((0..self.0).map(frame)))
        }
    }

    /// Pieces are what they would be if each was cut from the whole clip, and no frame is read twice.
    #[test]
    fn a_clip_is_read_once_for_all_of_its_pieces() {
        for text in ["head", "chunk", "slide", "slide:1", "slide:4", "slide:7", "uniform:9"] {
            let media = Counting(60, Cell::new(0));
            let firsts = text.parse::<Extract>().unwrap().firsts(60, BUCKET.frames);
            let mut pieces = Pieces::of(&media);
            for (at, first) in firsts.iter().enumerate() {
                let span = (*first..first + 5, firsts.get(at + 1).copied());
                let found = pieces.take(Role::Clip, Path::new("x"), &BUCKET, span).unwrap();
                let wanted: Vec<u8> = (*first..first + 5).flat_map(|at| [at as u8; 3]).collect();
                assert_eq!(found, wanted, "{text} from {first}");
                let held = pieces.open.get(&Role::Clip).map_or(0, |open| open.kept.len());
                assert!(held <= BUCKET.frames, "{text} holds {held} frames");
            }
            let needed = firsts.last().unwrap() + BUCKET.frames;
            assert_eq!(media.1.get(), needed, "{text} reads frames more than once");
            assert!(pieces.open.is_empty(), "{text} leaves the clip open");
        }
    }

    #[test]
    fn other_files_other_sizes_and_pieces_before_begin_anew() {
        let media = Counting(60, Cell::new(0));
        let mut pieces = Pieces::of(&media);
        let mut first = |path: &str, bucket: &Bucket, first: usize| {
            let span = (first..first + 2, Some(first + 2));
            pieces.take(Role::Clip, Path::new(path), bucket, span).unwrap()[0]
        };
        assert_eq!([first("x", &BUCKET, 10), first("y", &BUCKET, 3)], [10, 3]);
        let wide = Bucket { width: 2, ..BUCKET };
        assert_eq!([first("y", &wide, 5), first("y", &wide, 2)], [5, 2]);
        let far = pieces.take(Role::Clip, Path::new("y"), &wide, (58..62, None));
        let message = far.unwrap_err().to_string();
        assert_eq!(message, "only 60 frames could be read, but 62 are needed");
    }
}
