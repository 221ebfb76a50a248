//! Clips at another rate of frames: of the frames that there are, those nearest in time.

use std::iter;
use std::path::Path;

use super::{Cause, Frames, Media, Probe, Sound, rounded};

/// Rates that differ by less are called the same: 23.976 is 24.
const SAME: f64 = 0.01;

/// Media whose clips play at one rate. Pictures stay as they are, and so do clips of that rate; slower
/// clips are refused, because their frames would have to be repeated.
pub struct Resampled<'a> {
    /// Whose clips.
    pub media: &'a dyn Media,
    /// Frames per second.
    pub fps: f64,
}

impl Resampled<'_> {
    /// How many frames of a clip go by for one that is kept; none if all are kept.
    fn stride(&self, clip: &Probe) -> Result<Option<f64>, Cause> {
        let stride = clip.fps / self.fps;
        match clip.frames == 1 || (stride - 1.0).abs() <= SAME {
            true => Ok(None),
            false if stride < 1.0 => Err(format!(
                "it has {} frames per second; for {} some would have to be repeated",
                rounded(clip.fps),
                rounded(self.fps)
            )
            .into()),
            false => Ok(Some(stride)),
        }
    }
}

impl Media for Resampled<'_> {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        let clip = self.media.probe(path)?;
        let Some(stride) = self.stride(&clip)? else { return Ok(clip) };
        let last = clip.frames.saturating_sub(1);
        // The last one that is nearest to a frame that is there.
        let kept = ((last as f64 + 0.5) / stride).ceil() as usize;
        Ok(Probe { frames: kept.max(1), fps: self.fps, ..clip })
    }

    fn frames(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        let Some(stride) = self.stride(&self.media.probe(path)?)? else {
            return self.media.frames(path);
        };
        let mut frames = self.media.frames(path)?;
        let (mut read, mut kept) = (0_usize, 0_usize);
        Ok(Box::new(iter::from_fn(move || {
            loop {
                let frame = frames.next()?;
                let wanted = (kept as f64 * stride).round() as usize;
                read += 1;
                if frame.is_err() || read > wanted {
                    kept += 1;
                    return Some(frame);
                }
            }
        })))
    }

    fn sounds(&self, path: &Path) -> Result<bool, Cause> {
        self.media.sounds(path)
    }

    /// Leaving frames out changes no time.
    fn sound(&self, path: &Path) -> Result<Option<Sound<'_>>, Cause> {
        self.media.sound(path)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::super::RgbFrame;
    use super::*;

    /// A clip of so many frames at some rate, each frame one pixel that says which it is.
    struct Counted(usize, f64);

    impl Media for Counted {
        fn probe(&self, _: &Path) -> Result<Probe, Cause> {
            Ok(Probe { frames: self.0, height: 1, width: 1, fps: self.1 })
        }

        fn frames(&self, _: &Path) -> Result<Frames<'_>, Cause> {
            let frame = |at: usize| RgbFrame { height: 1, width: 1, pixels: vec![at as u8; 3] };
            Ok(Box::new((0..self.0).map(move |at| Ok(frame(at)))))
        }
    }

    fn kept(frames: usize, rate: f64, fps: f64) -> Vec<u8> {
        let media = Resampled { media: &Counted(frames, rate), fps };
        let probe = media.probe(Path::new("x")).unwrap();
        let mut seen = Vec::new();
        let each = &mut |frame: RgbFrame| {
            seen.push(frame.pixels[0]);
            ControlFlow::Continue(())
        };
        media.read(Path::new("x"), each).unwrap();
        assert_eq!(probe.frames, seen.len(), "{frames} at {rate} to {fps}");
        assert!(probe.fps == fps || seen.len() == frames);
        seen
    }

    #[test]
    fn the_nearest_frames_are_kept() {
        assert_eq!(kept(7, 30.0, 15.0), [0, 2, 4, 6]);
        assert_eq!(kept(8, 30.0, 15.0), [0, 2, 4, 6]);
        assert_eq!(kept(7, 24.0, 16.0), [0, 2, 3, 5, 6]);
        assert_eq!(kept(11, 25.0, 16.0), [0, 2, 3, 5, 6, 8, 9]);
        assert_eq!(kept(4, 23.976, 24.0), [0, 1, 2, 3]);
        assert_eq!(kept(1, 1.0, 16.0), [0]);
        for frames in 1..60 {
            for (rate, fps) in [(60.0, 16.0), (29.97, 16.0), (50.0, 24.0), (120.0, 8.0)] {
                kept(frames, rate, fps);
            }
        }
        let slow = Resampled { media: &Counted(9, 12.0), fps: 16.0 };
        let refused = slow.probe(Path::new("x")).unwrap_err().to_string();
        assert!(refused.contains("it has 12 frames per second"), "{refused}");
        let television = Resampled { media: &Counted(9, 24_000.0 / 1001.0), fps: 30.0 };
        let refused = television.probe(Path::new("x")).unwrap_err().to_string();
        assert!(refused.starts_with("it has 23.976 frames per second; for 30 some"), "{refused}");
    }
}
