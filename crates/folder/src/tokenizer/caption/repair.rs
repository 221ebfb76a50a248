//! Characters that went wrong on their way through the web.
//!
//! Of ftfy's `fix_text` this does what a caption can still need after it was lower-cased and freed
//! of symbols: UTF-8 that was read as windows-1252 or latin-1 in sequences of three or four bytes
//! (`â€œ`), leftover control characters, ligatures, full-width and half-width forms, curly
//! quotation marks, line breaks, and composed characters. It does not do what ftfy's statistics
//! decide: mix-ups with other code pages, sequences of two bytes (their first byte was a capital
//! letter, which lower-casing has changed) and sequences that lost a byte.

use tokenizers::NormalizedString;

/// `text`, repaired until nothing changes.
pub(super) fn repair(text: String) -> String {
    let mut text = text;
    loop {
        let repaired = characters(&decode_misread(&text));
        if repaired == text {
            return text;
        }
        text = repaired;
    }
}

/// `text` with every character that is not meant as it stands replaced, and composed.
pub(super) fn characters(text: &str) -> String {
    let replaced = text.chars().fold(String::new(), |mut out, c| {
        replace(c, &mut out);
        out
    });
    let broken = replaced.replace("\r\n", "\n").replace('\r', "\n");
    normalize(&broken, |text| text.nfc())
}

/// Writes what should stand in the place of a character.
fn replace(c: char, out: &mut String) {
    match c {
        'ʼ' | '\u{2018}'..='\u{201b}' => out.push('\''),
        '\u{201c}'..='\u{201f}' => out.push('"'),
        '\u{2028}' | '\u{2029}' => out.push('\n'),
        '\u{85}' => out.push('…'),
        '\u{80}'..='\u{9f}' => out.push(windows_1252(c as u8)),
        'ﬅ' => out.push_str("ſt"),
        'Ĳ'
        | 'ĳ'
        | 'ŉ'
        | 'Ǆ'..='ǌ'
        | 'Ǳ'..='ǳ'
        | 'ﬀ'..='ﬆ'
        | '\u{3000}'
        | '\u{ff01}'..='\u{ffef}' => {
            out.push_str(&normalize(c.encode_utf8(&mut [0; 4]), |text| text.nfkc()));
        }
        '\0'..='\x08' | '\x0b' | '\x0e'..='\x1f' | '\x7f' => {}
        '\u{206a}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffc}' => {}
        _ => out.push(c),
    }
}

fn normalize(text: &str, form: impl Fn(&mut NormalizedString) -> &mut NormalizedString) -> String {
    let mut normalized = NormalizedString::from(text);
    form(&mut normalized).get().to_owned()
}

/// Decodes runs of characters that are the bytes of UTF-8, each read as a character of its own.
fn decode_misread(text: &str) -> String {
    let characters = text.chars().collect::<Vec<_>>();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let mut follows_garble = false;
    while at < characters.len() {
        let found = misread(&characters[at..]).filter(|_| !follows_garble);
        let (c, length) = found.unwrap_or((characters[at], 1));
        // The end of a sequence without its beginning: who knows what this is part of. Some are
        // ordinary punctuation, though.
        follows_garble =
            found.is_none() && matches!(byte(c), Some(0x80..=0xbf)) && !"‚„…‘’“”•–—".contains(c);
        out.push(c);
        at += length;
    }
    out
}

/// The character whose bytes `characters` begin with, and how many they are.
fn misread(characters: &[char]) -> Option<(char, usize)> {
    let length = match byte(characters[0])? {
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return None,
    };
    let sequence = characters.get(..length)?;
    // Accented letters do stand before letters (`š`, `œ`, `ž`); before these symbols only here.
    if sequence[1].is_alphabetic() && sequence[1] != 'ƒ' {
        return None;
    }
    let mut bytes = sequence.iter().map(|&c| byte(c)).collect::<Option<Vec<_>>>()?;
    if let [0xe0..=0xe3, 0x80..=0x84 | 0x86..=0x9f | 0xa1..=0xbf, last @ b' '] = &mut bytes[..] {
        // A space that does not break, which some program has changed to one that does.
        *last = 0xa0;
    }
    let decoded = std::str::from_utf8(&bytes).ok()?;
    decoded.chars().next().filter(|c| c.len_utf8() == length).map(|c| (c, length))
}

/// The byte that a character is in windows-1252 or latin-1.
fn byte(c: char) -> Option<u8> {
    match c {
        '\0'..='\u{ff}' => Some(c as u32 as u8),
        _ => (0x80..=0x9f).find(|&byte| windows_1252(byte) == c),
    }
}

/// The character of a byte from 80 to 9f; the five that windows-1252 leaves open stay as they are.
pub(super) fn windows_1252(byte: u8) -> char {
    const TABLE: [char; 32] = [
        '€', '\u{81}', '‚', 'ƒ', '„', '…', '†', '‡', 'ˆ', '‰', 'Š', '‹', 'Œ', '\u{8d}', 'Ž',
        '\u{8f}', '\u{90}', '‘', '’', '“', '”', '•', '–', '—', '˜', '™', 'š', '›', 'œ', '\u{9d}',
        'ž', 'Ÿ',
    ];
    TABLE[usize::from(byte - 0x80)]
}
