//! A moving picture with what it should show and what was seen in it.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use htmlize::escape_all_quotes as escaped;

use crate::error::{Error, Result};
use crate::events::picture_size;

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

/// An animated GIF, or a PNG, with its caption and verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaptionedClip {
    picture: Vec<u8>,
    size: [u64; 2],
    caption: String,
    verdict: Verdict,
    note: String,
}

impl CaptionedClip {
    /// A clip from the bytes of a GIF or a PNG.
    ///
    /// # Errors
    /// It is neither.
    pub fn new(
        picture: Vec<u8>,
        caption: impl Into<String>,
        verdict: Verdict,
    ) -> Result<CaptionedClip> {
        let caption = caption.into();
        match picture_size(&picture) {
            Some(size) => {
                Ok(CaptionedClip { picture, size, caption, verdict, note: String::new() })
            }
            None => Err(Error::NotAPicture { caption }),
        }
    }

    /// The same with a remark below its caption, such as what the judge saw instead.
    pub fn with_note(mut self, note: impl Into<String>) -> CaptionedClip {
        self.note = note.into();
        self
    }

    pub(super) fn show(&self, body: &mut String) {
        let (class, verdict) = match self.verdict {
            Verdict::Right => ("right", "✓ right"),
            Verdict::Wrong => ("wrong", "✗ wrong"),
            Verdict::Unjudged => ("unjudged", ""),
        };
        let (caption, [width, height]) = (escaped(self.caption.as_str()), self.size);
        let kind = if self.picture.starts_with(b"GIF") { "gif" } else { "png" };
        let _ = write!(
            body,
            "<figure class=\"clip {class}\">\
             <img alt=\"{caption}\" width=\"{width}\" height=\"{height}\" src=\"data:image/{kind};base64,"
        );
        STANDARD.encode_string(&self.picture, body);
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
