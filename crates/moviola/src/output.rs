//! What a run writes: clips as they are decoded, a record beside each, and latents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data::aside::{self, AsideFile};
use data::media::{ClipWriter, Format, Frame, FrameRate, Waveform};
use engine::{Error, Frames, Result};
use serde_json::Value;

use crate::places::{Kind, Places, refused};
use crate::signals::Writing;

/// The clips or pictures of a part of a run. Each appears with its record when its last frame is in.
pub(crate) struct Output<'a> {
    places: &'a Places,
    /// The number of the first sample of this part among all of the run.
    first: usize,
    rate: FrameRate,
    /// Everything needed to make sample `index` of this part again; its size is `[frames, height, width]`.
    record: &'a dyn Fn(usize, [usize; 3]) -> Value,
    writing: &'a Writing,
    waveforms: BTreeMap<usize, Waveform>,
    current: Option<Current>,
}

struct Current {
    sample: usize,
    path: PathBuf,
    writer: ClipWriter,
    size: (usize, usize),
}

impl<'a> Output<'a> {
    /// Clips that play at `rate`, from number `first` of the run on.
    pub(crate) fn new(
        places: &'a Places,
        first: usize,
        rate: FrameRate,
        record: &'a dyn Fn(usize, [usize; 3]) -> Value,
        writing: &'a Writing,
    ) -> Output<'a> {
        let waveforms = BTreeMap::new();
        Output { places, first, rate, record, writing, waveforms, current: None }
    }

    fn open(&self, sample: usize) -> Result<Current> {
        let path = self.places.sample(self.first + sample);
        let format = match self.places.kind {
            Kind::Clip(format) => format,
            Kind::Sound => Format::Folder,
        };
        aside::make_parents(&path).map_err(refused(&path))?;
        let writer = ClipWriter::create_as(&path, format, self.places.existing, self.rate)?;
        Ok(Current { sample, path, writer, size: (0, 0) })
    }

    /// Lets the last clip appear.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let (height, width) = current.size;
        let record = (self.record)(current.sample, [current.writer.frames(), height, width]);
        let number = self.first + current.sample;
        let sound = self.waveforms.remove(&current.sample);
        if let Some(sound) = sound.as_ref().filter(|_| self.places.kind.holds_sound()) {
            current.writer.sound(sound)?;
        }
        let sound = sound.zip(self.places.sound(number));
        let sound = sound.map(|(sound, path)| Ok::<_, Error>((sound.prepare(&path)?, path)));
        // A full disk is found out before anything appears.
        let (sound, record) = (sound.transpose()?, self.prepare(number, &record)?);
        current.writer.finish()?;
        if let Some((sound, path)) = sound {
            sound.commit().map_err(refused(&path))?;
            told(&path)?;
        }
        self.leave(&current.path, record)
    }

    /// The record of a sample, on the disk and without its name yet, if there is to be one.
    fn prepare(&self, number: usize, record: &Value) -> Result<Option<(AsideFile, PathBuf)>> {
        let Some(path) = self.places.record(number) else { return Ok(None) };
        let text = serde_json::to_string_pretty(record).expect("a record is plain JSON");
        aside::make_parents(&path).map_err(refused(&path))?;
        let file = AsideFile::prepared(&path, (text + "\n").as_bytes());
        Ok(Some((file.map_err(refused(&path))?, path)))
    }

    /// Lets the record of a sample that is there appear, and says where the sample is.
    fn leave(&self, path: &Path, record: Option<(AsideFile, PathBuf)>) -> Result<()> {
        if let Some((file, beside)) = record {
            file.commit().map_err(refused(&beside))?;
        }
        self.writing.wrote(path);
        told(path)
    }
}

impl Frames for Output<'_> {
    fn begin(&mut self, _: usize, _: usize) -> Result<()> {
        Ok(())
    }

    fn sound(&mut self, sample: usize, sound: Waveform) -> Result<()> {
        if self.places.kind == Kind::Sound {
            let number = self.first + sample;
            let path = self.places.sample(number);
            aside::make_parents(&path).map_err(refused(&path))?;
            let record = self.prepare(number, &(self.record)(sample, [0; 3]))?;
            sound.write(&path)?;
            return self.leave(&path, record);
        }
        self.waveforms.insert(sample, sound);
        Ok(())
    }

    fn frame(&mut self, sample: usize, frame: Frame) -> Result<()> {
        if self.current.as_ref().is_none_or(|current| current.sample != sample) {
            self.finish()?;
            self.current = Some(self.open(sample)?);
        }
        let current = self.current.as_mut().expect("it was opened just now");
        current.size = frame.size();
        Ok(current.writer.push(&frame)?)
    }
}

/// Says where a file is, unless it is what is said itself.
fn told(path: &Path) -> Result<()> {
    match aside::is_stdout(path) {
        true => Ok(()),
        false => crate::say(format_args!("{}\n", path.display())),
    }
}

/// Writes beside the target and renames, so that no one ever sees half a file.
///
/// # Errors
/// The system's.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    aside::make_parents(path).map_err(refused(path))?;
    aside::write_whole(path, bytes).map_err(refused(path))
}
