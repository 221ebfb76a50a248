//! A moving picture with what it should show and what was seen in it.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use htmlize::escape_all_quotes as escaped;

use crate::error::{Error, Result};

/// What a judge said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It shows what it should.
    Right,
    /// It does not.
    Wrong,
    /// Nobody looked.
    Unjudged,
}

/// An animated GIF with its caption and verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptionedClip {
    gif: Vec<u8>,
    caption: String,
    verdict: Verdict,
    note: String,
}

impl CaptionedClip {
    /// A clip from the bytes of a GIF.
    ///
    /// # Errors
    /// It is not a GIF.
    pub fn new(
        gif: Vec<u8>,
        caption: impl Into<String>,
        verdict: Verdict,
    ) -> Result<CaptionedClip> {
        let caption = caption.into();
        let is_gif = gif.starts_with(b"GIF8") && gif.len() > 10;
        match is_gif {
            true => Ok(CaptionedClip { gif, caption, verdict, note: String::new() }),
            false => Err(Error::NotAGif { caption }),
        }
    }

    /// The same with a remark below its caption, such as what the judge saw instead.
    pub fn with_note(mut self, note: impl Into<String>) -> CaptionedClip {
        self.note = note.into();
        self
    }

    /// Width and height as the file states them.
    fn size(&self) -> (u16, u16) {
        let at = |place: usize| u16::from_le_bytes([self.gif[place], self.gif[place + 1]]);
        (at(6), at(8))
    }

    pub(super) fn show(&self, body: &mut String) {
        let (class, verdict) = match self.verdict {
            Verdict::Right => ("right", "✓ right"),
            Verdict::Wrong => ("wrong", "✗ wrong"),
            Verdict::Unjudged => ("unjudged", ""),
        };
        let (caption, (width, height)) = (escaped(self.caption.as_str()), self.size());
        let _ = write!(
            body,
            "<figure class=\"clip {class}\">\
             <img alt=\"{caption}\" width=\"{width}\" height=\"{height}\" src=\"data:image/gif;base64,"
        );
        STANDARD.encode_string(&self.gif, body);
        let _ = write!(body, "\"><figcaption>");
        if !verdict.is_empty() {
            let _ = write!(body, "<b>{verdict}</b> ");
        }
        body.push_str(&caption);
        if !self.note.is_empty() {
            let _ = write!(body, "<small>{}</small>", escaped(self.note.as_str()));
        }
        body.push_str("</figcaption></figure>\n");
    }
}
