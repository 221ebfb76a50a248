//! Clips in and out.
//!
//! A [`ClipWriter`] takes frames one at a time, as they are decoded, and the extension of its
//! path says what they become:
//!
//! | path | what is written |
//! |---|---|
//! | `x.mp4` | H.264 in yuv420, BT.709, limited range, and AAC; plays in browsers |
//! | `x.webm` | VP9 in yuv420, BT.709, limited range, and Opus, by the program `ffmpeg` |
//! | `x.gif` | one palette for the whole clip, looping forever |
//! | `x.webp` | without loss; animated and looping forever if there are several frames |
//! | `x.png`, `x.jpg` | a contact sheet; the picture itself if there is one frame |
//! | `x.safetensors` | `frames`: f32 `[F, H, W, 3]` from 0 to 1, not rounded |
//! | `x/` or no extension | a folder of `0000.png`, `0001.png`, … |
//!
//! Nothing half-written is ever seen under the path: it appears whole when the writer is
//! finished, and not at all if the writer is dropped before.
//!
//! [`DecodedClip::read`] and [`ClipReader`] read any video by the program `ffmpeg`, and pictures and folders of
//! pictures without it. A [`Waveform`] is the sound of a clip, as a WAV file; a [`SoundTrack`] that in a video.

mod child;
mod error;
mod frame;
mod rate;

mod write;

mod aac;
mod folder;
mod gif;
mod mp4;
mod mp4_index;
mod palette;
mod sheet;
mod tensor;
mod webm;
mod webp;
mod yuv;

mod ffmpeg;
pub mod picture;
mod read;
mod resample;
mod sound;
mod stream;
mod track;

pub use error::{Error, Result};
pub use ffmpeg::ClipReader;
pub use frame::Frame;
pub use rate::FrameRate;
pub use read::{DecodedClip, is_picture, picture_size};
pub use sound::Waveform;
pub use stream::{Stream, missing_reader, shown_frames};
pub use track::SoundTrack;
pub use webm::check_webm;
pub use write::{ClipWriter, Format};

use crate::aside::{AsideFile, Existing};
use std::path::Path;

/// Where a clip goes, and what happens to a file that is there.
type Place<'a> = (&'a Path, Existing);

/// The file of a clip.
fn begin((path, existing): Place<'_>) -> Result<AsideFile> {
    AsideFile::create(path, existing).map_err(failure(path))
}

/// The error for a failure of the system to write at `path`.
fn failure(path: &Path) -> impl Fn(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Write { path: path.clone(), source }
}
