//! Clips and pictures as files: videos by ffmpeg, pictures by the `image` crate.

use std::ops::ControlFlow;
use std::path::Path;

use super::{Cause, Media, Probe, RgbFrame};
use crate::media::{self, ClipReader, DecodedClip, Stream, is_picture, picture_size};

/// Files of the formats that people have. What they say of themselves is believed.
#[derive(Clone, Copy, Debug, Default)]
pub struct MediaFiles;

impl Media for MediaFiles {
    fn probe(&self, path: &Path) -> Result<Probe, Cause> {
        probe(path).map_err(cause)
    }

    fn read(
        &self,
        path: &Path,
        each: &mut dyn FnMut(RgbFrame) -> ControlFlow<()>,
    ) -> Result<(), Cause> {
        read(path, ClipReader::open, each).map_err(cause)
    }

    fn read_strictly(
        &self,
        path: &Path,
        each: &mut dyn FnMut(RgbFrame) -> ControlFlow<()>,
    ) -> Result<(), Cause> {
        read(path, ClipReader::open_strictly, each).map_err(cause)
    }
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

fn read(
    path: &Path,
    open: fn(&Path) -> media::Result<ClipReader>,
    each: &mut dyn FnMut(RgbFrame) -> ControlFlow<()>,
) -> media::Result<()> {
    if is_picture(path) {
        let picture = DecodedClip::read(path)?;
        let (height, width) = picture.size();
        // There is no second frame that it could go on to.
        let _ = each(RgbFrame { height, width, pixels: picture.bytes().to_vec() });
        return Ok(());
    }
    let mut reader = open(path)?;
    while let Some((height, width, pixels)) = reader.next_frame()? {
        if each(RgbFrame { height, width, pixels }).is_break() {
            break;
        }
    }
    Ok(())
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
        self.0.read_strictly(path, &mut |frame| {
            (found.height, found.width) = (frame.height, frame.width);
            found.frames += 1;
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn read(
        &self,
        path: &Path,
        each: &mut dyn FnMut(RgbFrame) -> ControlFlow<()>,
    ) -> Result<(), Cause> {
        self.0.read(path, each)
    }
}
