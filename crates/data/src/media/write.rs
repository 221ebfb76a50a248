//! The writer of clips: checks what all formats share and hands the frames to one of them.

use super::folder::FolderSink;
use super::gif::GifSink;
use super::mp4::Mp4Sink;
use super::sheet::{Picture, SheetSink};
use super::tensor::TensorSink;
use super::webm::WebmSink;
use super::webp::WebpSink;
use super::{Error, Frame, FrameRate, Result, Waveform};
use crate::aside::Existing;
use std::path::{Path, PathBuf};

/// What a clip is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// H.264 in an MP4 file.
    Mp4,
    /// VP9 in a WebM file, by the program `ffmpeg`.
    Webm,
    /// An animated GIF.
    Gif,
    /// A WebP without loss, animated if there are several frames.
    Webp,
    /// All frames on one PNG.
    Sheet,
    /// All frames on one JPEG.
    Jpeg,
    /// f32 values in a safetensors file.
    Tensor,
    /// A folder of PNG files.
    Folder,
}

const EXTENSIONS: [(&str, Format); 8] = [
    ("mp4", Format::Mp4),
    ("webm", Format::Webm),
    ("gif", Format::Gif),
    ("webp", Format::Webp),
    ("png", Format::Sheet),
    ("jpg", Format::Jpeg),
    ("jpeg", Format::Jpeg),
    ("safetensors", Format::Tensor),
];

/// Kinds of files that are not written, with the extension that serves in their place.
const INSTEAD: [(&[&str], &str); 3] = [
    (&["mov", "avi", "mkv", "m4v", "mpg", "mpeg", "wmv", "flv", "ogv", "ts"], "mp4"),
    (&["bmp", "tif", "tiff", "ppm", "tga", "exr", "heic", "avif", "jxl"], "png"),
    (&["npy", "npz", "pt", "pth", "ckpt", "bin", "gguf"], "safetensors"),
];

/// Letters that may be wrong in an extension that is merely misspelt.
const MISSPELT: usize = 1;

impl Format {
    /// More frames a second no GIF shows: browsers play what is shorter far too slowly.
    pub const FASTEST_GIF: f64 = 50.0;

    /// The format that an extension means, whatever its case.
    pub fn named(extension: &str) -> Option<Format> {
        let extension = extension.to_lowercase();
        EXTENSIONS.iter().find(|(known, _)| *known == extension).map(|(_, format)| *format)
    }

    /// Whether a clip of this format has a sound of its own.
    pub fn holds_sound(self) -> bool {
        matches!(self, Format::Mp4 | Format::Webm)
    }

    /// The extensions that mean a format, without the dot.
    pub fn names() -> impl Iterator<Item = &'static str> {
        EXTENSIONS.iter().map(|(name, _)| *name)
    }

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
        Format::named(&extension).ok_or_else(|| Error::Extension {
            path: path.to_owned(),
            nearest: nearest(&extension),
            known: EXTENSIONS.map(|(known, _)| format!(".{known}")).join(", "),
            extension,
        })
    }
}

/// The known extension that one which is not known may stand for.
fn nearest(extension: &str) -> Option<&'static str> {
    let instead = INSTEAD.iter().find(|(others, _)| others.contains(&extension));
    let distance = |known: &str| strsim::damerau_levenshtein(known, extension);
    let misspelt = || {
        let near = Format::names().filter(|known| distance(known) <= MISSPELT);
        near.min_by_key(|known| distance(known))
    };
    instead.map(|(_, known)| *known).or_else(misspelt)
}

/// A format that is being written. Dropping it leaves nothing.
pub(super) trait Sink: Send {
    /// Takes the next frame, which has the size of the first.
    fn push(&mut self, frame: &Frame) -> Result<()>;

    /// Takes the sound, after all frames. Formats without one are not asked.
    fn sound(&mut self, _sound: &Waveform) -> Result<()> {
        Ok(())
    }

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
        ClipWriter::create_as(path, Format::of(path)?, Existing::Replace, rate)
    }

    /// The same for a format and a file that is there, whatever the path is called. `-` is the standard
    /// output, for what is one file.
    ///
    /// # Errors
    ///
    /// As [`ClipWriter::create`], and if something is there that may not be replaced.
    pub fn create_as(
        path: &Path,
        format: Format,
        existing: Existing,
        rate: FrameRate,
    ) -> Result<ClipWriter> {
        let place = (path, existing);
        let sink: Box<dyn Sink> = match format {
            Format::Mp4 => Box::new(Mp4Sink::create(place, rate)?),
            Format::Webm => Box::new(WebmSink::create(place, rate)?),
            Format::Gif => Box::new(GifSink::create(place, rate)?),
            Format::Webp => Box::new(WebpSink::create(place, rate)?),
            Format::Sheet => Box::new(SheetSink::create(place, Picture::Png)?),
            Format::Jpeg => Box::new(SheetSink::create(place, Picture::Jpeg)?),
            Format::Tensor => Box::new(TensorSink::create(place, rate)?),
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

    /// Writes the sound of the clip, once and after its frames, which begins with the first of them. A format
    /// that holds none leaves it out ([`Format::holds_sound`]).
    ///
    /// # Errors
    ///
    /// If the encoder refuses it, or the disk is full.
    pub fn sound(&mut self, sound: &Waveform) -> Result<()> {
        self.sink.sound(sound)
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
