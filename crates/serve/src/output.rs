//! What a job leaves in its folder: a clip with a still, a sheet of its frames and its sound, or pictures.

use std::fs;
use std::path::{Path, PathBuf};

use data::aside::Existing;
use data::media::{ClipWriter, Format, Frame, FrameRate, Waveform};
use engine::{Frames, Result};

use crate::ask::{Makes, PictureFormat};
use crate::jobs::Made;

/// Frames on a sheet.
const SHOWN: usize = 16;

/// The longer side of a frame on a sheet.
const SHOWN_SIDE: usize = 256;

/// Writes what a job makes. Files appear whole, each when its last frame is in.
pub(crate) struct Output<'a> {
    folder: &'a Path,
    makes: Makes,
    format: PictureFormat,
    rate: FrameRate,
    /// Every so many frames one is shown on the sheet.
    stride: usize,
    clip: Option<Clip>,
    sound: Option<Waveform>,
    made: Made,
}

/// A clip that is being written.
struct Clip {
    video: ClipWriter,
    sheet: ClipWriter,
    frames: usize,
}

impl<'a> Output<'a> {
    pub(crate) fn new(
        folder: &'a Path,
        makes: Makes,
        format: PictureFormat,
        rate: FrameRate,
    ) -> Output<'a> {
        let (stride, clip, sound, made) = (1, None, None, Made::default());
        Output { folder, makes, format, rate, stride, clip, sound, made }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn writer(&self, name: &str, format: Format) -> Result<ClipWriter> {
        Ok(ClipWriter::create_as(&self.path(name), format, Existing::Replace, self.rate)?)
    }

    /// Lets the last file appear, and says what there is.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn finish(mut self) -> Result<Made> {
        if let Some(Clip { mut video, sheet, .. }) = self.clip.take() {
            if let Some(sound) = &self.sound {
                video.sound(sound)?;
            }
            video.finish()?;
            sheet.finish()?;
            self.made.files = vec![VIDEO.to_owned()];
            self.made.thumbnail = Some(THUMBNAIL.to_owned());
            self.made.spritesheet = Some(SHEET.to_owned());
        }
        if let Some(sound) = self.sound.take() {
            sound.write(&self.path(SOUND))?;
            self.made.audio = Some(SOUND.to_owned());
        }
        let entries = fs::read_dir(self.folder).into_iter().flatten().flatten();
        self.made.bytes =
            entries.filter_map(|entry| entry.metadata().ok()).map(|own| own.len()).sum();
        Ok(self.made)
    }

    fn picture(&mut self, sample: usize, frame: &Frame) -> Result<()> {
        let (extension, format) = match self.format {
            PictureFormat::Png => ("png", Format::Sheet),
            PictureFormat::Jpeg => ("jpg", Format::Jpeg),
            PictureFormat::Webp => ("webp", Format::Webp),
        };
        let name = format!("{sample:03}.{extension}");
        let mut writer = self.writer(&name, format)?;
        writer.push(frame)?;
        writer.finish()?;
        self.made.files.push(name);
        Ok(())
    }

    fn frame_of_clip(&mut self, frame: &Frame) -> Result<()> {
        let mut clip = match self.clip.take() {
            Some(clip) => clip,
            None => {
                let mut still = self.writer(THUMBNAIL, Format::Webp)?;
                still.push(frame)?;
                still.finish()?;
                let (video, sheet) =
                    (self.writer(VIDEO, Format::Mp4)?, self.writer(SHEET, Format::Jpeg)?);
                Clip { video, sheet, frames: 0 }
            }
        };
        clip.video.push(frame)?;
        if clip.frames.is_multiple_of(self.stride) {
            let (height, width) = frame.size();
            clip.sheet.push(&frame.shrunk(height.max(width).div_ceil(SHOWN_SIDE))?)?;
        }
        clip.frames += 1;
        self.clip = Some(clip);
        Ok(())
    }
}

const VIDEO: &str = "video.mp4";
const THUMBNAIL: &str = "thumbnail.webp";
const SHEET: &str = "spritesheet.jpg";
const SOUND: &str = "audio.wav";

/// What jobs make that share a run: a sample each, or all samples of one.
pub(crate) struct Outputs<'a>(pub(crate) Vec<Output<'a>>);

impl<'a> Outputs<'a> {
    /// Where a sample of the run goes, and its number there.
    fn of(&mut self, sample: usize) -> (&mut Output<'a>, usize) {
        match self.0.len() {
            1 => (&mut self.0[0], sample),
            _ => (&mut self.0[sample], 0),
        }
    }
}

impl Frames for Outputs<'_> {
    fn begin(&mut self, samples: usize, frames: usize) -> Result<()> {
        self.0.iter_mut().try_for_each(|own| own.begin(samples, frames))
    }

    fn sound(&mut self, sample: usize, sound: Waveform) -> Result<()> {
        let (own, sample) = self.of(sample);
        own.sound(sample, sound)
    }

    fn frame(&mut self, sample: usize, frame: Frame) -> Result<()> {
        let (own, sample) = self.of(sample);
        own.frame(sample, frame)
    }
}

impl Frames for Output<'_> {
    fn begin(&mut self, _: usize, frames: usize) -> Result<()> {
        self.stride = frames.div_ceil(SHOWN).max(1);
        Ok(())
    }

    fn sound(&mut self, _: usize, sound: Waveform) -> Result<()> {
        self.sound = Some(sound);
        Ok(())
    }

    fn frame(&mut self, sample: usize, frame: Frame) -> Result<()> {
        match self.makes {
            Makes::Images => self.picture(sample, &frame),
            Makes::Video => self.frame_of_clip(&frame),
        }
    }
}
