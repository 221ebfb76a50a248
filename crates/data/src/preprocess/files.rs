//! Clips and pictures as files: videos and their sounds by ffmpeg, pictures by the `image` crate.

use std::iter;
use std::path::Path;

use super::{Cause, Frames, Media, Probe, RgbFrame, Sound};
use crate::media::{
    self, ClipReader, DecodedClip, SoundTrack, Stream, Waveform, is_picture, picture_size,
};

/// Files of the formats that people have. What they say of themselves is believed.
#[derive(Clone, Copy, Debug, Default)]
pub struct MediaFiles;

impl Media for MediaFiles {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        probe(path).map_err(cause)
    }

    fn frames(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        frames(path, ClipReader::open).map_err(cause)
    }

    fn frames_strictly(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        frames(path, ClipReader::open_strictly).map_err(cause)
    }

    fn sounds(&self, path: &Path) -> Result<bool, Cause> {
        match (is_picture(path), is_wave(path)) {
            (true, _) => Ok(false),
            (_, true) => Waveform::read(path).map(|_| true).map_err(cause),
            _ => Ok(SoundTrack::probe(path).map_err(cause)?.is_some()),
        }
    }

    fn sound(&self, path: &Path) -> Result<Option<Sound<'_>>, Cause> {
        if is_picture(path) {
            return Ok(None);
        }
        if is_wave(path) {
            let Waveform { sample_rate, channels, samples } =
                Waveform::read(path).map_err(cause)?;
            let samples = Box::new(iter::once(Ok(samples)));
            return Ok(Some(Sound { sample_rate, channels, delay: 0.0, samples }));
        }
        let Some(track) = SoundTrack::probe(path).map_err(cause)? else { return Ok(None) };
        let samples = track.samples(path).map_err(cause)?.map(|own| own.map_err(cause));
        let SoundTrack { sample_rate, channels, delay } = track;
        Ok(Some(Sound { sample_rate, channels, delay, samples: Box::new(samples) }))
    }
}

/// Whether a file is a sound that is read without a program.
fn is_wave(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("wav"))
}

fn probe(path: &Path) -> media::Result<Probe> {
    if is_picture(path) {
        let (height, width) = picture_size(path)?;
        return Ok(Probe { frames: 1, height, width, fps: 1.0 });
    }
    let stream = Stream::probe(path)?;
    let frames = stream.count(path)?;
    let Stream { height, width, rate, .. } = stream;
    Ok(Probe { frames, height, width, fps: rate.per_second() })
}

fn frames(
    path: &Path,
    open: fn(&Path) -> media::Result<ClipReader>,
) -> media::Result<Frames<'static>> {
    if is_picture(path) {
        let picture = DecodedClip::read(path)?;
        let (height, width) = picture.size();
        let frame = RgbFrame { height, width, pixels: picture.bytes().to_vec() };
        return Ok(Box::new(iter::once(Ok(frame))));
    }
    let mut reader = open(path)?;
    Ok(Box::new(iter::from_fn(move || {
        let frame = reader.next_frame().map_err(cause).transpose()?;
        Some(frame.map(|(height, width, pixels)| RgbFrame { height, width, pixels }))
    })))
}

/// The reason alone: whoever asked knows the path.
fn cause(error: media::Error) -> Cause {
    match error {
        media::Error::Decode { reason, .. } => reason.into(),
        media::Error::Read { source, .. } => source.into(),
        media::Error::NoProgram { program, .. } => {
            format!("the program `{program}` was not found; install ffmpeg, which brings it").into()
        }
        other => other.into(),
    }
}

/// Media whose clips are read through when they are looked at. It takes as long as reading them, and
/// finds what is damaged behind a sound beginning.
pub struct Decoded<'a>(pub &'a dyn Media);

impl Media for Decoded<'_> {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        let stated = self.0.probe(path)?;
        let mut found = Probe { frames: 0, ..stated };
        for frame in self.0.frames_strictly(path)? {
            let frame = frame?;
            (found.height, found.width) = (frame.height, frame.width);
            found.frames += 1;
        }
        Ok(found)
    }

    fn frames(&self, path: &Path) -> Result<Frames<'_>, Cause> {
        self.0.frames(path)
    }

    fn sounds(&self, path: &Path) -> Result<bool, Cause> {
        self.0.sounds(path)
    }

    fn sound(&self, path: &Path) -> Result<Option<Sound<'_>>, Cause> {
        self.0.sound(path)
    }
}
