//! UTF-8 that was read as windows-1252 or latin-1, read again as what it is.
//!
//! As ftfy does it for these two code pages: a text that looks misread (see `suspicion`) is turned
//! back into bytes as a whole; if those are no UTF-8, every part that looks like a sequence is tried
//! by itself. Mix-ups with other code pages and sequences that lost a byte stay as they are.

use super::repair::windows_1252;
use super::suspicion::suspicious;

/// `text`, decoded until it looks right or cannot be helped.
pub(super) fn decode(text: &str) -> String {
    let mut text = text.to_owned();
    loop {
        let decoded = decode_once(&text);
        if decoded == text {
            return text;
        }
        text = decoded;
    }
}

fn decode_once(text: &str) -> String {
    let characters = text.chars().collect::<Vec<_>>();
    if text.is_ascii() || !suspicious(&characters) {
        return text.to_owned();
    }
    for byte in [latin_1, sloppy_windows_1252] {
        let bytes = characters.iter().map(|&c| byte(c)).collect::<Option<Vec<u8>>>();
        if let Some(decoded) = bytes.and_then(|bytes| String::from_utf8(unbroken(&bytes)).ok()) {
            return decoded;
        }
    }
    match decode_parts(&characters) {
        decoded if decoded != text => decoded,
        // What no sequence explains is a sign of windows-1252, read as latin-1.
        _ => characters.iter().map(|&c| control_as_sign(c)).collect(),
    }
}

fn control_as_sign(c: char) -> char {
    match c {
        '\u{80}'..='\u{9f}' => windows_1252(c as u8),
        _ => c,
    }
}

fn latin_1(c: char) -> Option<u8> {
    u8::try_from(c as u32).ok()
}

/// The bytes that windows-1252 leaves open stand for themselves.
fn sloppy_windows_1252(c: char) -> Option<u8> {
    match c {
        '\0'..='\x7f' | '\u{a0}'..='\u{ff}' => latin_1(c),
        _ => (0x80..=0x9f).find(|&byte| windows_1252(byte) == c),
    }
}

/// Every run of what may be sequences of UTF-8, decoded if it looks misread by itself.
fn decode_parts(text: &[char]) -> String {
    let mut out = String::new();
    let mut at = 0;
    while at < text.len() {
        // Behind the end of another sequence this would be the rest of a larger garble.
        let free = at == 0 || !ends_sequence(text[at - 1]);
        let length = if free { run(&text[at..]) } else { 0 };
        let part = &text[at..at + length.max(1)];
        let string = part.iter().collect::<String>();
        match length > 0 && length < text.len() && suspicious(part) {
            true => out.push_str(&decode(&string)),
            false => out.push_str(&string),
        }
        at += part.len();
    }
    out
}

/// How many characters at the start may be whole sequences.
fn run(text: &[char]) -> usize {
    let mut length = 0;
    while let Some(sequence) = text.get(length).and_then(|&first| sequence_length(first)) {
        let rest = text.get(length + 1..length + sequence).unwrap_or_default();
        if rest.is_empty() || !rest.iter().all(|&c| c == ' ' || continues(c) || baltic(c)) {
            break;
        }
        length += sequence;
    }
    length
}

/// The length of the sequence that a character begins.
fn sequence_length(first: char) -> Option<usize> {
    match first {
        'Â'..='ß' => Some(2),
        'à'..='ï' => Some(3),
        'ð' | 'ó' => Some(4),
        _ => None,
    }
}

fn continues(c: char) -> bool {
    matches!(latin_1(c).or_else(|| sloppy_windows_1252(c)), Some(0x80..=0xbf))
}

/// Letters that continue a sequence in the Baltic code page: who misread that is not helped here, but
/// what follows is not taken for a sequence of its own either.
fn baltic(c: char) -> bool {
    matches!(c, 'Æ' | 'Ø' | 'æ' | 'ø')
}

/// Whether a character continues a sequence and is no ordinary punctuation.
fn ends_sequence(c: char) -> bool {
    (continues(c) && !"‚„…‘’“”•–—".contains(c)) || baltic(c)
}

/// Puts back the spaces that do not break, where some program made them ordinary ones and the bytes
/// are UTF-8 only with them.
fn unbroken(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(&first) = rest.first() {
        let length = if grave(rest) {
            // The word `à` by itself, which has lost one of two spaces.
            out.extend([0xc3, 0xa0, b' ']);
            2
        } else if let Some(length) = altered(rest) {
            out.extend(rest[..length].iter().map(|&b| if b == b' ' { 0xa0 } else { b }));
            length
        } else {
            out.push(first);
            1
        };
        rest = &rest[length..];
    }
    out
}

/// `Ã` and a space, unless a Portuguese word follows that begins with `à`.
fn grave(bytes: &[u8]) -> bool {
    let words: [&[u8]; 5] = [b" ", b"quele", b"quela", b"quilo", b"s "];
    let after = bytes.strip_prefix(&[0xc3, b' ']);
    after.is_some_and(|after| !words.iter().any(|word| after.starts_with(word)))
}

/// The length of a sequence at the start that has a space for a byte a0.
fn altered(bytes: &[u8]) -> Option<usize> {
    let other = |b: u8| matches!(b, 0x80..=0x84 | 0x86..=0x9f | 0xa1..=0xbf);
    let any = |b: u8| matches!(b, 0x80..=0xbf);
    match bytes {
        [0xc2 | 0xc3 | 0xc5 | 0xce | 0xd0 | 0xd9, b' ', ..] => Some(2),
        [0xe2 | 0xe3, b' ', last, ..] if other(*last) => Some(3),
        [0xe0..=0xe3, second, b' ', ..] if other(*second) => Some(3),
        [0xf0, b' ', b, c, ..] | [0xf0, b, b' ', c, ..] | [0xf0, b, c, b' ', ..]
            if any(*b) && any(*c) =>
        {
            Some(4)
        }
        _ => None,
    }
}
