//! Whether a text looks like UTF-8 that was read as windows-1252 or latin-1.
//!
//! Each byte of a misread sequence shows as a letter or sign of its own, and these seldom meet in a
//! text that someone meant: `Ã©`, `â€œ`. Which neighbours give a text away is what ftfy 6.3.1 found
//! in a large corpus; this follows it for the characters of those two code pages.

/// What a character can be part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Signs that stand beside anything.
    Common,
    /// Control characters that nobody types.
    Control,
    /// Signs that hardly occur otherwise.
    Rare,
    Law,
    Currency,
    /// What opens a phrase.
    Opening,
    /// What closes one.
    Closing,
    Numeric,
    /// A capital letter with an accent.
    Capital,
    /// A small letter with an accent.
    Small,
    /// Everything else.
    Other,
}

use Kind::{
    Capital, Closing, Common, Control, Currency, Law, Numeric, Opening, Other, Rare, Small,
};

fn kind(c: char) -> Kind {
    match c {
        '\u{80}'..='\u{9f}' => Control,
        '\u{a0}' | '\u{ad}' | '·' | '´' | '–' | '—' | '…' | '’' => Common,
        '¦' | '¤' | '¨' | '¬' | '¯' | '¸' | 'ƒ' | 'ˆ' | '˜' | '†' | '‡' | '‰' | '\u{fffd}'
        | 'ª' | 'º' => Rare,
        '¶' | '§' => Law,
        '¢' | '£' | '¥' | '€' => Currency,
        '¡' | '«' | '¿' | '©' | '‘' | '‚' | '“' | '„' | '•' | '‹' => Opening,
        '®' | '»' | '”' | '›' | '™' => Closing,
        '²' | '³' | '¹' | '±' | '¼' | '½' | '¾' | '×' | 'µ' | '÷' => Numeric,
        'À'..='Ñ' | 'Ø' | 'Ü' | 'Ý' | 'Œ' | 'Š' | 'Ÿ' | 'Ž' => Capital,
        'ß' | 'à'..='ñ' | 'ü' | 'œ' | 'š' | 'ž' => Small,
        _ => Other,
    }
}

/// Whether any place of the text gives it away.
pub(super) fn suspicious(text: &[char]) -> bool {
    let at = |index: usize| text.get(index).copied();
    (0..text.len()).any(|index| {
        let previous = index.checked_sub(1).and_then(at);
        kind(text[index]) == Control
            || at(index + 1).is_some_and(|next| {
                pair(text[index], next)
                    || triple(previous, text[index], next)
                    || alone(previous, text[index], next)
            })
            || arabic(&text[index..])
    }) || misread_space(text)
}

/// Two neighbours that do not belong together.
fn pair(first: char, second: char) -> bool {
    let (before, after) = (kind(first), kind(second));
    let sign = [Capital, Small, Opening, Closing, Currency, Numeric, Law];
    let by_kind = match (before, after) {
        (Rare, Rare) => true,
        (before, Rare) => sign.contains(&before),
        (Rare, after) => sign.contains(&after),
        (Small | Closing | Currency | Numeric, Capital) => true,
        (Closing | Currency | Numeric, Small) => true,
        (Small | Closing, Currency) => true,
        (Capital, Numeric | Law) => true,
        (Currency | Numeric, Opening) => true,
        _ => false,
    };
    by_kind
        || match first {
            'Œ' | 'œ' => !second.is_ascii_alphabetic(),
            'Â' | 'Ã' | 'Î' | 'Ð' => {
                matches!(after, Opening | Closing) || "€œŠš¢£Ÿž\u{a0}\u{ad}°·–—´".contains(second)
            }
            'à' => "²µ¹¼½¾".contains(second),
            '×' => "²³".contains(second),
            _ => before == Capital && second == '°',
        }
}

/// Two neighbours that do not belong together behind the one before them, or before a word.
fn triple(previous: Option<char>, first: char, second: char) -> bool {
    let Some(previous) = previous else { return false };
    let (earlier, before, after) = (kind(previous), kind(first), kind(second));
    let word = |c: char| c.is_alphanumeric() || c == '_';
    match (earlier, before, after) {
        (Small | Capital | Currency | Closing, Opening, Numeric) => true,
        (Small | Capital | Currency | Numeric | Law, Closing, Opening) => true,
        (Small | Capital, Opening | Closing, _) if word(second) => true,
        (_, Capital, Currency) => previous.is_whitespace() || previous.is_ascii_lowercase(),
        (_, Capital, Opening) => previous.is_ascii_lowercase(),
        _ => false,
    }
}

/// `Â` before what it was once the first byte of, where a phrase ends.
fn alone(previous: Option<char>, first: char, second: char) -> bool {
    let ends = |c: char| {
        c.is_ascii_lowercase() || matches!(c, '.' | ',' | '?' | '!') || kind(c) == Closing
    };
    first == 'Â'
        && previous.is_some_and(ends)
        && (second == ' ' || matches!(kind(second), Opening | Closing))
}

/// `Ã` or `Â` before a space that once did not break: at the start, or behind a small letter.
fn misread_space(text: &[char]) -> bool {
    let lead = |c: &char| matches!(c, 'Ã' | 'Â');
    let places = text.windows(2).enumerate().filter(|(_, pair)| lead(&pair[0]) && pair[1] == ' ');
    places.into_iter().any(|(index, _)| match &text[..index] {
        [] => true,
        [.., letter, space] if space.is_whitespace() => letter.is_ascii_lowercase(),
        [.., letter] => letter.is_ascii_lowercase(),
    })
}

/// Two letters of Arabic, each read as two characters.
fn arabic(text: &[char]) -> bool {
    let letter = |first: char, second: char| {
        matches!(first, 'Ø' | 'Ù')
            && (matches!(kind(second), Common | Currency | Rare | Numeric | Opening)
                || "ŸŠ®°»".contains(second))
    };
    matches!(text, [a, b, c, d, ..] if letter(*a, *b) && letter(*c, *d))
}
