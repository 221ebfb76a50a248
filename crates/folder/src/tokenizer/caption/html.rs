//! The text of a piece of HTML.
//!
//! Tags, comments, declarations, scripts and styles go, entities become their characters, and
//! whatever only looks like markup ("1 < 2", "a & b") stays. Where markup is cut off in the middle
//! the rest is text, which is what Python's `html.parser` makes of it.

/// Elements whose text is not shown.
const HIDDEN: [&str; 5] = ["script", "style", "template", "rt", "rp"];

/// The text of `markup`.
pub(super) fn text(markup: &str) -> String {
    let mut reader = Reader { rest: markup, out: String::new(), hidden: Vec::new() };
    while let Some(at) = reader.rest.find(['<', '&']) {
        reader.keep(at);
        match reader.rest.starts_with('<') {
            true => reader.markup(),
            false => reader.entity(),
        }
    }
    reader.keep(reader.rest.len());
    reader.out
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
    /// The open elements whose text is not shown.
    hidden: Vec<String>,
}

impl Reader<'_> {
    /// Takes `length` bytes as text.
    fn keep(&mut self, length: usize) {
        let (text, rest) = self.rest.split_at(length);
        self.emit(text);
        self.rest = rest;
    }

    fn emit(&mut self, text: &str) {
        if self.hidden.is_empty() {
            self.out.push_str(text);
        }
    }

    /// What begins with `<`.
    fn markup(&mut self) {
        let after = &self.rest[1..];
        let end = match after.chars().next() {
            Some('a'..='z' | 'A'..='Z') => tag_end(self.rest),
            Some('/') => self.rest.find('>').map(|at| at + 1),
            Some('!') if after.starts_with("!--") => until(self.rest, 4, "-->"),
            Some('!') if starts_with(after, "![cdata[") => return self.character_data(),
            Some('!' | '?') => self.rest.find('>').map(|at| at + 1),
            _ => return self.keep(1),
        };
        let Some(end) = end else { return self.keep_broken() };
        let (tag, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.note(tag);
    }

    /// Follows the elements whose text is not shown.
    fn note(&mut self, tag: &str) {
        let closes = tag.starts_with("</");
        let name = tag.trim_start_matches(['<', '/']).trim_start();
        let name = name.split(|c: char| c.is_whitespace() || c == '>' || c == '/').next();
        let name = name.unwrap_or_default().to_ascii_lowercase();
        if closes {
            if let Some(at) = self.hidden.iter().rposition(|open| *open == name) {
                self.hidden.truncate(at);
            }
        } else if HIDDEN.contains(&name.as_str()) && !tag.ends_with("/>") {
            self.hidden.push(name.clone());
            if ["script", "style"].contains(&name.as_str()) {
                self.skip_code(&name);
            }
        }
    }

    /// Goes to the end tag of a script or style, where `<` means nothing else.
    fn skip_code(&mut self, name: &str) {
        let close = format!("</{name}");
        let at = self.rest.char_indices().map(|(at, _)| at);
        let at = at.into_iter().find(|&at| starts_with(&self.rest[at..], &close));
        self.rest = &self.rest[at.unwrap_or(self.rest.len())..];
    }

    /// `<![CDATA[text]]>`.
    fn character_data(&mut self) {
        const OPEN: usize = "<![CDATA[".len();
        let Some(end) = until(self.rest, OPEN, "]]>") else { return self.keep_broken() };
        let (section, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.emit(&section[OPEN..end - "]]>".len()]);
    }

    /// Markup that never ends is text: up to a `>`, else up to the next `<`, else its first sign.
    fn keep_broken(&mut self) {
        let after = &self.rest[1..];
        let end = after.find('>').map(|at| at + 2).or(after.find('<').map(|at| at + 1));
        self.keep(end.unwrap_or(1));
    }

    /// What begins with `&`. A reference that the caption ends with stays as it is.
    fn entity(&mut self) {
        let after = &self.rest[1..];
        let numeric = after.starts_with('#');
        let hexadecimal = numeric && after[1..].starts_with(['x', 'X']);
        let prefix = usize::from(numeric) + usize::from(hexadecimal);
        let belongs = |c: char| match (numeric, hexadecimal) {
            (true, false) => c.is_ascii_digit(),
            (true, true) => c.is_ascii_hexdigit(),
            _ => c.is_ascii_alphanumeric() || c == '-' || c == '.',
        };
        let body = &after[prefix..];
        let length = body.find(|c| !belongs(c)).unwrap_or(body.len());
        let named = body.starts_with(|c: char| c.is_ascii_alphabetic());
        if length == 0 || length == body.len() || !(numeric || named) {
            return self.keep(1);
        }
        let name = &after[..prefix + length];
        let characters = match numeric {
            true => htmlize::unescape(format!("&{name};")).into_owned(),
            false => match htmlize::ENTITIES.get(format!("&{name};").as_bytes()) {
                Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                // Nobody can tell whether the semicolon belonged to it; bs4 drops it.
                None => format!("&{name}"),
            },
        };
        let rest = &after[name.len()..];
        self.emit(&characters);
        self.rest = rest.strip_prefix(';').unwrap_or(rest);
    }
}

/// Where a start tag ends: at the first `>` that is not inside a quoted value.
fn tag_end(tag: &str) -> Option<usize> {
    let mut quote = None;
    let mut previous = '<';
    for (at, c) in tag.char_indices() {
        match quote {
            Some(open) if open == c => quote = None,
            Some(_) => {}
            None if c == '>' => return Some(at + 1),
            None if (c == '"' || c == '\'') && previous == '=' => quote = Some(c),
            None => {}
        }
        if !c.is_whitespace() {
            previous = c;
        }
    }
    None
}

/// Just behind the first `end` at or after byte `from`.
fn until(text: &str, from: usize, end: &str) -> Option<usize> {
    text[from..].find(end).map(|at| from + at + end.len())
}

/// Whether `text` begins with `prefix`, whatever the case of its letters.
fn starts_with(text: &str, prefix: &str) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
