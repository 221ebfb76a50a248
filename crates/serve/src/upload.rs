//! Files that clients send: their names are ignored, their bytes say what they are.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Answer, Refusal};

/// What an upload holds, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Picture(&'static str),
    Clip(&'static str),
    Sound,
}

impl Kind {
    /// What these bytes begin.
    pub(crate) fn of(bytes: &[u8]) -> Option<Kind> {
        let at = |start: usize, mark: &[u8]| bytes.get(start..start + mark.len()) == Some(mark);
        match bytes {
            _ if at(0, b"\x89PNG\r\n\x1a\n") => Some(Kind::Picture("png")),
            _ if at(0, b"\xff\xd8\xff") => Some(Kind::Picture("jpg")),
            _ if at(0, b"RIFF") && at(8, b"WEBP") => Some(Kind::Picture("webp")),
            _ if at(0, b"RIFF") && at(8, b"WAVE") => Some(Kind::Sound),
            _ if at(0, b"RIFF") && at(8, b"AVI ") => Some(Kind::Clip("avi")),
            _ if at(4, b"ftyp") => Some(Kind::Clip("mp4")),
            _ if at(0, b"\x1a\x45\xdf\xa3") => Some(Kind::Clip("webm")),
            _ if at(0, b"GIF8") => Some(Kind::Clip("gif")),
            _ => None,
        }
    }

    fn extension(self) -> &'static str {
        match self {
            Kind::Picture(extension) | Kind::Clip(extension) => extension,
            Kind::Sound => "wav",
        }
    }
}

/// Looks into a file that was received and gives it a name of ours that says what it is; `param` is the field.
///
/// # Errors
/// It is neither a picture nor a clip nor a sound that is known.
pub(crate) fn identify(path: &Path, param: &str) -> Answer<(PathBuf, Kind)> {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(16).read_to_end(&mut head));
    read.map_err(|error| Refusal::ours(&error))?;
    let Some(kind) = Kind::of(&head) else {
        let reason = format!(
            "{param}: this is no file that is known; send a PNG, JPEG or WebP picture, an MP4, WebM, AVI or GIF clip, or a WAV sound"
        );
        return Err(Refusal::field(param, reason));
    };
    let named = path.with_extension(kind.extension());
    fs::rename(path, &named).map_err(|error| Refusal::ours(&error))?;
    Ok((named, kind))
}

/// The bytes of a data URL.
///
/// # Errors
/// It is none: nothing else is opened.
pub(crate) fn data_url(text: &str, param: &str) -> Answer<Vec<u8>> {
    let refuse = |reason: &str| Refusal::field(param, format!("{param}: {reason}"));
    let Some(rest) = text.strip_prefix("data:") else {
        return Err(refuse(
            "no URL is opened; upload the file, or give it as a data URL (data:image/png;base64,...)",
        ));
    };
    let Some((head, values)) = rest.split_once(',') else {
        return Err(refuse("this data URL has no data; write data:image/png;base64,..."));
    };
    if !head.ends_with(";base64") {
        return Err(refuse("this data URL is not base64; write data:image/png;base64,..."));
    }
    STANDARD
        .decode(values.trim())
        .map_err(|error| refuse(&format!("its base64 is damaged: {error}")))
}

#[cfg(test)]
mod tests {
    use super::{Kind, data_url};

    #[test]
    fn bytes_say_what_they_are() {
        for (bytes, want) in [
            (&b"\x89PNG\r\n\x1a\n...."[..], Some(Kind::Picture("png"))),
            (b"\xff\xd8\xff\xe0", Some(Kind::Picture("jpg"))),
            (b"RIFF....WEBPVP8 ", Some(Kind::Picture("webp"))),
            (b"RIFF....WAVEfmt ", Some(Kind::Sound)),
            (b"\0\0\0\x20ftypisom", Some(Kind::Clip("mp4"))),
            (b"GIF89a", Some(Kind::Clip("gif"))),
            (b"#EXTM3U\n/etc/passwd", None),
            (b"", None),
            (b"PK\x03\x04", None),
        ] {
            assert_eq!(Kind::of(bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn only_data_urls_are_opened() {
        assert_eq!(data_url("data:image/png;base64,aGFsbG8=", "image").ok().unwrap(), b"hallo");
        for bad in [
            "http://127.0.0.1/x.png",
            "file:///etc/passwd",
            "data:image/png,abc",
            "data:;base64",
            "data:;base64,*",
        ] {
            assert!(data_url(bad, "image").is_err(), "{bad}");
        }
    }
}
