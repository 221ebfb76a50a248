//! The writer of clips: checks what all formats share and hands the frames to one of them.

use super::folder::FolderSink;
use super::gif::GifSink;
use super::mp4::Mp4Sink;
use super::sheet::SheetSink;
use super::tensor::TensorSink;
use super::{Error, Frame, FrameRate, Result};
use std::path::{Path, PathBuf};

/// What a clip is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// H.264 in an MP4 file.
    Mp4,
    /// An animated GIF.
    Gif,
    /// All frames on one PNG.
    Sheet,
    /// f32 values in a safetensors file.
    Tensor,
    /// A folder of PNG files.
    Folder,
}

const EXTENSIONS: [(&str, Format); 4] = [
    ("mp4", Format::Mp4),
    ("gif", Format::Gif),
    ("png", Format::Sheet),
    ("safetensors", Format::Tensor),
];

impl Format {
    /// The format that a path asks for by its extension; a folder if it has none or ends with
    /// a slash.
    ///
    /// # Errors
    ///
    /// If the extension is not a known one.
    pub fn of(path: &Path) -> Result<Format> {
        let ends_with_slash = path.as_os_str().to_string_lossy().ends_with(std::path::is_separator);
        let extension = match path.extension() {
            Some(extension) if !ends_with_slash => extension.to_string_lossy().to_lowercase(),
            _ => return Ok(Format::Folder),
        };
        if let Some((_, format)) = EXTENSIONS.iter().find(|(known, _)| *known == extension) {
            return Ok(*format);
        }
        let distance = |known: &&str| strsim::damerau_levenshtein(known, &extension);
        let names = EXTENSIONS.map(|(known, _)| known);
        Err(Error::Extension {
            path: path.to_owned(),
            nearest: names.iter().min_by_key(|known| distance(known)).copied().unwrap_or_default(),
            known: names.map(|known| format!(".{known}")).join(", "),
            extension,
        })
    }
}

/// A format that is being written. Dropping it leaves nothing.
pub(super) trait Sink: Send {
    /// Takes the next frame, which has the size of the first.
    fn push(&mut self, frame: &Frame) -> Result<()>;

    /// Lets the clip appear. At least one frame has been pushed.
    fn finish(self: Box<Self>) -> Result<()>;
}

/// Writes a clip, frame by frame.
///
/// ```no_run
/// use data::media::{ClipWriter, Frame, FrameRate};
/// use std::path::Path;
///
/// # fn main() -> data::media::Result<()> {
/// let mut writer = ClipWriter::create(Path::new("fade.mp4"), FrameRate::new(16, 1)?)?;
/// for step in 0..17 {
///     writer.push(&Frame::new(32, 48, vec![step as f32 / 16.0; 32 * 48 * 3])?)?;
/// }
/// writer.finish()?;
/// # Ok(())
/// # }
/// ```
pub struct ClipWriter {
    path: PathBuf,
    sink: Box<dyn Sink>,
    /// Height and width of the frames, once there is one.
    size: Option<(usize, usize)>,
    frames: usize,
}

impl ClipWriter {
    /// A writer for the format that the path asks for; [`Format::of`] says which.
    ///
    /// Nothing appears at the path before [`ClipWriter::finish`], which replaces a file that is
    /// there. `rate` is ignored by pictures.
    ///
    /// # Errors
    ///
    /// If the extension is unknown, the folder is missing or not writable, or the path is a
    /// folder that holds something.
    pub fn create(path: &Path, rate: FrameRate) -> Result<ClipWriter> {
        let sink: Box<dyn Sink> = match Format::of(path)? {
            Format::Mp4 => Box::new(Mp4Sink::create(path, rate)?),
            Format::Gif => Box::new(GifSink::create(path, rate)?),
            Format::Sheet => Box::new(SheetSink::create(path)?),
            Format::Tensor => Box::new(TensorSink::create(path, rate)?),
            Format::Folder => Box::new(FolderSink::create(path)?),
        };
        Ok(ClipWriter { path: path.to_owned(), sink, size: None, frames: 0 })
    }

    /// Writes the next frame.
    ///
    /// # Errors
    ///
    /// If its size is not that of the first, if the format does not allow the size, or if the
    /// disk is full.
    pub fn push(&mut self, frame: &Frame) -> Result<()> {
        let (found, first) = (frame.size(), *self.size.get_or_insert(frame.size()));
        if found != first {
            let path = self.path.clone();
            return Err(Error::SizeChanged { path, frame: self.frames, found, first });
        }
        self.sink.push(frame)?;
        self.frames += 1;
        Ok(())
    }

    /// How many frames have been written.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Lets the clip appear at its path.
    ///
    /// # Errors
    ///
    /// If there are no frames, or the disk is full.
    pub fn finish(self) -> Result<()> {
        match self.frames {
            0 => Err(Error::NoFrames { path: self.path }),
            _ => self.sink.finish(),
        }
    }
}
