//! What a run writes: clips as they are decoded, a record beside each, and latents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use data::media::{ClipWriter, Format, Frame, FrameRate, Waveform};
use engine::{Error, Frames, Result};
use serde_json::Value;

use crate::inputs::{InputFiles, place};

/// The clips or pictures of a run. Each appears with its record when its last frame is in.
pub(crate) struct Output<'a> {
    path: PathBuf,
    /// Where the latents go, which no clip may overwrite.
    latents: Option<&'a Path>,
    /// Whether a sound is written beside each clip.
    sounds: bool,
    /// What is read, which nothing may overwrite.
    inputs: &'a InputFiles,
    rate: FrameRate,
    /// Everything needed to make sample `index` of size `[frames, height, width]` again.
    record: &'a dyn Fn(usize, [usize; 3]) -> Value,
    samples: usize,
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
    /// Clips at `path`, which play at `rate`; none of `inputs` may be overwritten.
    pub(crate) fn new(
        path: &Path,
        rate: FrameRate,
        inputs: &'a InputFiles,
        record: &'a dyn Fn(usize, [usize; 3]) -> Value,
    ) -> Output<'a> {
        let (path, sounds) = (path.to_owned(), BTreeMap::new());
        Output {
            path,
            latents: None,
            sounds: false,
            inputs,
            rate,
            record,
            samples: 1,
            waveforms: sounds,
            current: None,
        }
    }

    /// The same beside latents and sounds, none of which may be overwritten.
    pub(crate) fn beside(self, latents: Option<&'a Path>, sounds: bool) -> Output<'a> {
        Output { latents, sounds, ..self }
    }

    /// The path of a sample: the path as given, or numbered where there are several.
    fn sample_path(&self, sample: usize) -> PathBuf {
        if self.samples == 1 {
            return self.path.clone();
        }
        let mut name = self.path.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{sample:03}"));
        if let Some(extension) = self.path.extension() {
            name.push(".");
            name.push(extension);
        }
        self.path.with_file_name(name)
    }

    /// Checks that nothing stands where a clip, its record, its sound or the latents go, and that none
    /// of them is an input.
    fn check(&self) -> Result<()> {
        for sample in 0..self.samples {
            let path = self.sample_path(sample);
            if is_sound(&path) || Format::of(&path)? != Format::Folder {
                no_folder(&path)?;
            }
            let mut beside = vec![path.with_extension("json")];
            beside.extend(self.sounds.then(|| path.with_extension("wav")));
            beside.iter().try_for_each(|file| no_folder(file))?;
            beside.push(path);
            let clash = |other: &Path| beside.iter().any(|file| place(file) == place(other));
            if let Some(latents) = self.latents.filter(|latents| clash(latents)) {
                return Err(Error::Unknown(format!(
                    "--save-latents {} would be overwritten by a sample; give another name",
                    latents.display()
                )));
            }
            beside.iter().try_for_each(|file| self.inputs.spare(file))?;
        }
        self.latents.map_or(Ok(()), |latents| self.inputs.spare(latents))
    }

    fn open(&self, sample: usize) -> Result<Current> {
        let path = self.sample_path(sample);
        let writer = ClipWriter::create(&path, self.rate)?;
        Ok(Current { sample, path, writer, size: (0, 0) })
    }

    /// Lets the last clip appear.
    ///
    /// # Errors
    /// The disk is full.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let Some(current) = self.current.take() else { return Ok(()) };
        let (height, width) = current.size;
        let record = (self.record)(current.sample, [current.writer.frames(), height, width]);
        current.writer.finish()?;
        if let Some(sound) = self.waveforms.remove(&current.sample) {
            let path = current.path.with_extension("wav");
            sound.write(&path)?;
            crate::say(format_args!("{}\n", path.display()))?;
        }
        leave(&current.path, &record)
    }
}

impl Frames for Output<'_> {
    fn begin(&mut self, samples: usize, _: usize) -> Result<()> {
        self.samples = samples;
        self.check()?;
        if !is_sound(&self.path) {
            self.current = Some(self.open(0)?);
        }
        Ok(())
    }

    fn sound(&mut self, sample: usize, sound: Waveform) -> Result<()> {
        if is_sound(&self.path) {
            let path = self.sample_path(sample);
            sound.write(&path)?;
            return leave(&path, &(self.record)(sample, [0; 3]));
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

/// Writes the record of a sample that is there, and says where it is.
fn leave(path: &Path, record: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(record).expect("a record is plain JSON");
    write(&path.with_extension("json"), text.as_bytes())?;
    crate::say(format_args!("{}\n", path.display()))
}

/// Whether a path asks for a sound alone.
pub(crate) fn is_sound(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("wav"))
}

/// Checks that a file can be made at `path`, without leaving one.
///
/// # Errors
/// Its folder is missing or not writable, or the path is a folder.
pub(crate) fn writable(path: &Path) -> Result<()> {
    no_folder(path)?;
    data::aside::check_writable(path).map_err(refused(path))
}

/// Checks that a file can be made in the folder of `path`, without leaving one.
///
/// # Errors
/// The folder is missing or not writable, or the path names no file.
pub(crate) fn writable_beside(path: &Path) -> Result<()> {
    if path.file_name().is_none() {
        return Err(refused(path)(std::io::ErrorKind::InvalidFilename.into()));
    }
    // A folder at the path itself is none of our business here.
    let probe = path.with_file_name(".moviola");
    data::aside::check_writable(&probe).map_err(refused(path))
}

fn no_folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        let source = std::io::ErrorKind::IsADirectory.into();
        return Err(Error::File { verb: "write", path: path.to_owned(), source });
    }
    Ok(())
}

/// Writes beside the target and renames, so that no one ever sees half a file.
///
/// # Errors
/// The system's.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    data::aside::write_whole(path, bytes).map_err(refused(path))
}

fn refused(path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { verb: "write", path, source }
}
