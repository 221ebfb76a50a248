//! Texts as people keep them: UTF-8 with or without a mark, UTF-16 of some editors, Latin-1 of older ones.

use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crate::error::{Error, Result};

/// A text file of at most so many bytes, in any of these encodings.
///
/// # Errors
/// It cannot be read, is longer, or is no text.
pub fn read_text(path: &Path, longest: u64) -> io::Result<String> {
    read(path, longest)?.map_err(|reason| io::Error::new(ErrorKind::InvalidData, reason))
}

/// The same; the inner error says that it is too long or no text.
///
/// # Errors
/// It cannot be read.
pub(super) fn read_caption(path: &Path, longest: u64) -> Result<Result<String, String>> {
    read(path, longest).map_err(|source| Error::file("read", path, source))
}

fn read(path: &Path, longest: u64) -> io::Result<Result<String, String>> {
    let mut bytes = Vec::new();
    kernels::open_file(path)?.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Ok(Err(format!("it has more than {longest} bytes")));
    }
    let text = decode(&bytes);
    // Every sequence of bytes is a text in Latin-1, but no text has these signs.
    let sign = text.chars().find(|letter| letter.is_control() && !letter.is_whitespace());
    Ok(match sign {
        None => Ok(text),
        Some(sign) => Err(format!("it is no text: it holds the sign {sign:?}")),
    })
}

/// A text from its bytes. What is neither UTF-8 nor UTF-16 is taken for Windows' Latin-1.
fn decode(bytes: &[u8]) -> String {
    let utf16 = |bytes: &[u8], unit: fn([u8; 2]) -> u16| {
        let units = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]]));
        char::decode_utf16(units).map(|letter| letter.unwrap_or('\u{fffd}')).collect()
    };
    match bytes {
        [0xef, 0xbb, 0xbf, rest @ ..] => decode(rest),
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        // Without a mark, the zeros of most letters give UTF-16 away; no other text holds any.
        _ if zeros(bytes, 1) => utf16(bytes, u16::from_le_bytes),
        _ if zeros(bytes, 0) => utf16(bytes, u16::from_be_bytes),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().map(|byte| latin(*byte)).collect(),
        },
    }
}

/// Whether at least half of the pairs have a zero at this place.
fn zeros(bytes: &[u8], place: usize) -> bool {
    let pairs = bytes.chunks_exact(2);
    let count = pairs.len();
    count > 0 && 2 * pairs.filter(|pair| pair[place] == 0).count() >= count
}

/// A letter of Windows' Latin-1, which has quotes and dashes where ISO's has nothing to print.
fn latin(byte: u8) -> char {
    const PRINTED: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž',
        '\u{8f}', '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}',
        'ž', 'Ÿ',
    ];
    match byte {
        0x80..=0x9f => PRINTED[usize::from(byte - 0x80)],
        _ => char::from(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_same_in_every_encoding() {
        let text = "Ein Fuchs – größer als „gestern“";
        let units: Vec<u16> = text.encode_utf16().collect();
        let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        let windows = b"Ein Fuchs \x96 gr\xf6\xdfer als \x84gestern\x93";
        for bytes in [
            text.as_bytes().to_vec(),
            [b"\xef\xbb\xbf", text.as_bytes()].concat(),
            [b"\xff\xfe", &little[..]].concat(),
            [b"\xfe\xff", &big[..]].concat(),
            little,
            big,
            windows.to_vec(),
        ] {
            assert_eq!(decode(&bytes), text, "{bytes:x?}");
        }
        assert_eq!([decode(b""), decode(b"x"), decode("猫".as_bytes())], ["", "x", "猫"]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.txt");
        std::fs::write(&path, b"a fox\x1b[2J").unwrap();
        assert!(read_caption(&path, 100).unwrap().unwrap_err().contains("no text"));
        assert!(read_caption(&path, 8).unwrap().unwrap_err().contains("more than 8 bytes"));
        assert!(read_text(&path, 100).unwrap_err().to_string().contains("no text"));
    }
}
