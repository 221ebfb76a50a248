//! The rules of caption cleaning as regular expressions.
//!
//! They are written in the dialect of Python's `re`, where they come from; `python` puts in what
//! that takes for words, borders of words and white space.

use fancy_regex::{Regex, RegexBuilder};

/// A letter, digit or underscore; unlike in other dialects, no combining mark.
const WORD: &str = r"[\p{L}\p{N}_]";
/// White space with the four separators of ASCII.
const SPACE: &str = r"[\s\x1c-\x1f]";
const NO_SPACE: &str = r"[^\s\x1c-\x1f]";
/// Enough for a page of text without a space.
const BACKTRACKING: usize = 50_000_000;

const DOMAIN: &str = r"[a-zA-Z0-9.\-]+[.](?:com|co|ru|net|org|edu|gov|it)[\w/-]*\b/?(?!@)";
const FILES: &str = "(?:png|jpg|jpeg|bmp|webp|eps|pdf|apk|mp4)";

/// What is replaced, and by what.
#[derive(Debug)]
struct Rule(Regex, &'static str);

impl Rule {
    fn new(pattern: &str, replacement: &'static str) -> Rule {
        Rule(python(pattern), replacement)
    }
}

/// All rules, in three groups with other work between them.
#[derive(Debug)]
pub(super) struct Rules {
    addresses: Vec<Rule>,
    symbols: Vec<Rule>,
    wares: Vec<Rule>,
    joints: Regex,
}

impl Rules {
    /// Compiles them.
    pub(super) fn new() -> Rules {
        Rules { addresses: addresses(), symbols: symbols(), wares: wares(), joints: python("[-_]") }
    }

    /// Web addresses; done before markup is read.
    pub(super) fn remove_addresses(&self, text: String) -> Result<String, Box<fancy_regex::Error>> {
        apply(&self.addresses, text)
    }

    /// Names, scripts, numbers, files and punctuation.
    pub(super) fn remove_symbols(&self, text: String) -> Result<String, Box<fancy_regex::Error>> {
        let text = apply(&self.symbols, text)?;
        // A text joined in more than three places is a file name.
        match self.joints.find_iter(&text).count() > 3 {
            true => Ok(self.joints.try_replacen(&text, 0, " ")?.into_owned()),
            false => Ok(text),
        }
    }

    /// Article numbers, advertising and stray punctuation.
    pub(super) fn remove_wares(&self, text: String) -> Result<String, Box<fancy_regex::Error>> {
        apply(&self.wares, text)
    }
}

fn addresses() -> Vec<Rule> {
    vec![
        Rule::new("<person>", "person"),
        Rule::new(&format!(r"\b(?:https?:(?:/{{1,3}}|[a-zA-Z0-9%])|{DOMAIN})"), ""),
        Rule::new(&format!(r"\b(?:www:(?:/{{1,3}}|[a-zA-Z0-9%])|{DOMAIN})"), ""),
    ]
}

fn symbols() -> Vec<Rule> {
    vec![
        // Nicknames.
        Rule::new(r"@\w+\b", ""),
        // Chinese characters, their strokes and the symbols between them.
        Rule::new(r"[\u{31c0}-\u{9fff}]+", ""),
        // Every kind of dash.
        Rule::new(
            r"[-\u{58a}\u{5be}\u{1400}\u{1806}\u{2010}-\u{2015}\u{2e17}\u{2e1a}\u{2e3a}\u{2e3b}\u{2e40}\u{301c}\u{3030}\u{30a0}\u{fe31}\u{fe32}\u{fe58}\u{fe63}\u{ff0d}]+",
            "-",
        ),
        // Every kind of quotation mark.
        Rule::new("[`´«»“”¨]", "\""),
        Rule::new("[‘’]", "'"),
        // Entities that were escaped twice.
        Rule::new("&quot;?", ""),
        Rule::new("&amp", ""),
        // Network addresses; a time at the very end; line breaks spelt out.
        Rule::new(r"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}", " "),
        Rule::new(r"\d:\d\d\s+$", ""),
        Rule::new(r"\\n", " "),
        // Numbers of articles and pictures, and names of files.
        Rule::new(r"#\d{1,3}\b", ""),
        Rule::new(r"#\d{5,}\b", ""),
        Rule::new(r"\b\d{6,}\b", ""),
        Rule::new(&format!(r"\S+\.{FILES}"), ""),
        // Repeated quotation marks and dots, other punctuation, a dot by itself.
        Rule::new(r#"["']{2,}"#, "\""),
        Rule::new(r"\.{2,}", " "),
        Rule::new(r"[#®•©™&@·º½¾¿¡§~()\[\]{}|\\/*]+", " "),
        Rule::new(r"\s+\.\s+", " "),
    ]
}

fn wares() -> Vec<Rule> {
    vec![
        // Numbers of wares: ab1234, ab12cd, 12ab34.
        Rule::new(r"\b[a-zA-Z]{1,3}\d{3,15}\b", ""),
        Rule::new(r"\b[a-zA-Z]+\d+[a-zA-Z]+\b", ""),
        Rule::new(r"\b\d+[a-zA-Z]+\d+\b", ""),
        // What shops say.
        Rule::new(r"(?:worldwide\s+)?(?:free\s+)?shipping", ""),
        Rule::new(r"(?:free\s)?download(?:\sfree)?", ""),
        Rule::new(r"\bclick\b\s(?:for|on)\s\w+", ""),
        Rule::new(&format!(r"\b{FILES}(?:\simages?)?"), ""),
        Rule::new(r"\bpage\s+\d+\b", ""),
        // Longer numbers, and sizes; the second cross is a Cyrillic letter.
        Rule::new(r"\b\d*[a-zA-Z]+\d+[a-zA-Z]+\d+[a-zA-Z\d]*\b", " "),
        Rule::new(r"\b\d+\.?\d*[xх×]\d+\.?\d*\b", ""),
        // Spaces around punctuation.
        Rule::new(r"\b\s+:\s+", ": "),
        Rule::new(r"(\D[,./])\b", "$1 "),
        Rule::new(r"\s+", " "),
        // Quotation marks around the whole, and punctuation at its ends.
        Rule::new(r#"^["']((?s:.)+)["']$"#, "$1"),
        Rule::new(r"^['_,\-:;]", ""),
        Rule::new(r"['_,\-:+]$", ""),
        Rule::new(r"^\.\S+$", ""),
    ]
}

fn apply(rules: &[Rule], mut text: String) -> Result<String, Box<fancy_regex::Error>> {
    for Rule(pattern, replacement) in rules {
        text = pattern.try_replacen(&text, 0, *replacement)?.into_owned();
    }
    Ok(text)
}

/// Compiles a pattern of Python's dialect. All patterns are constants, so a faulty one is our bug.
fn python(pattern: &str) -> Regex {
    let border = format!("(?:(?<={WORD})(?!{WORD})|(?<!{WORD})(?={WORD}))");
    let pattern = pattern
        .replace(r"\w", WORD)
        .replace(r"\s", SPACE)
        .replace(r"\S", NO_SPACE)
        .replace(r"\b", &border);
    RegexBuilder::new(&pattern)
        .backtrack_limit(BACKTRACKING)
        .build()
        .expect("the patterns of this file are valid")
}
