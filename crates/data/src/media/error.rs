//! What can go wrong with a clip: its file, its frames, or the program that reads it.

use std::path::PathBuf;

/// A result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a clip could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An extension that is no format of ours.
    #[error(
        "cannot write {}: unknown extension `.{extension}`; {}known are {known}, and no extension for a \
         folder of frames",
        path.display(),
        nearest.map_or(String::new(), |nearest| format!("write `.{nearest}` instead; "))
    )]
    Extension {
        /// The path that was asked for.
        path: PathBuf,
        /// Its extension.
        extension: String,
        /// The known extension that serves in its place, or that is spelt almost like it.
        nearest: Option<&'static str>,
        /// All known extensions.
        known: String,
    },

    /// The system refuses to write, or something is where the clip should go.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The path that was asked for.
        path: PathBuf,
        /// Its reason.
        source: std::io::Error,
    },

    /// An encoder refuses a frame.
    #[error("cannot write {}: {reason}", path.display())]
    Encode {
        /// The path that was asked for.
        path: PathBuf,
        /// Its reason.
        reason: String,
    },

    /// A clip without frames.
    #[error("cannot write {}: the clip has no frames", path.display())]
    NoFrames {
        /// The path that was asked for.
        path: PathBuf,
    },

    /// Frames of several sizes in one clip.
    #[error(
        "cannot write {}: frame {frame} is {}x{}, but those before are {}x{}",
        path.display(), found.1, found.0, first.1, first.0
    )]
    SizeChanged {
        /// The path that was asked for.
        path: PathBuf,
        /// The frame at fault, from 0.
        frame: usize,
        /// Its height and width.
        found: (usize, usize),
        /// The height and width of the first frame.
        first: (usize, usize),
    },

    /// Frames that are larger than the format allows.
    #[error(
        "cannot write {}: frames of {}x{} are larger than {limit} allows; \
         write a folder of frames instead",
        path.display(), size.1, size.0
    )]
    TooLarge {
        /// The path that was asked for.
        path: PathBuf,
        /// Height and width of the frames.
        size: (usize, usize),
        /// The format and its limit.
        limit: &'static str,
    },

    /// Pixels that do not fill a frame.
    #[error("a frame of {width}x{height} has {} values, not {found}", 3usize.saturating_mul(*height).saturating_mul(*width))]
    Values {
        /// The frame's height.
        height: usize,
        /// The frame's width.
        width: usize,
        /// How many values there are.
        found: usize,
    },

    /// A frame rate that no clip can have.
    #[error(
        "{rate} is no frame rate; give a number above 0 and up to 1000, or a fraction like 24000/1001"
    )]
    Rate {
        /// What was asked for.
        rate: String,
    },

    /// The system refuses to read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Its reason.
        source: std::io::Error,
    },

    /// A file that is no picture or clip, or is damaged.
    #[error("cannot read {}: {reason}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// What the decoder says.
        reason: String,
    },

    /// The program that writes a kind of video is missing.
    #[error(
        "cannot write {}: the program `{program}` was not found, which writes WebM; install ffmpeg, or \
         write .mp4 instead",
        path.display()
    )]
    NoEncoder {
        /// The path that was asked for.
        path: PathBuf,
        /// The program's name.
        program: &'static str,
    },

    /// The program that reads videos is missing.
    #[error(
        "cannot read {}: the program `{program}` was not found; install ffmpeg (it brings ffprobe) \
         so that both are found by name",
        path.display()
    )]
    NoProgram {
        /// The file.
        path: PathBuf,
        /// The program's name.
        program: &'static str,
    },
}
