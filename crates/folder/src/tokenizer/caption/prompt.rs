//! What Wan does to a prompt: repair it as ftfy does, read its entities twice, join its spaces.

use std::borrow::Cow;

use super::{misread, repair, trim};

/// The prompt as the diffusers pipeline gives it to the tokenizer; its case stays.
pub(super) fn prompt(caption: &str) -> String {
    let mut entities = true;
    let mut repaired = String::new();
    for line in caption.split_inclusive('\n') {
        // From here on this is markup, and its entities are meant to be there.
        entities &= !line.contains('<');
        repaired.push_str(&repair_line(line, entities));
    }
    let text = htmlize::unescape(repaired);
    let text = htmlize::unescape(text);
    trim(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// One line, repaired until nothing changes.
fn repair_line(line: &str, entities: bool) -> String {
    let mut text = line.to_owned();
    loop {
        let read = if entities { read_entities(&text) } else { Cow::Borrowed(&text[..]) };
        let decoded = misread::decode(&read);
        let repaired = repair::characters(&without_escapes(&decoded));
        if repaired == text {
            return text;
        }
        text = repaired;
    }
}

/// Entities that end in a semicolon, and those of letters written in capitals (`&EACUTE;`).
fn read_entities(text: &str) -> Cow<'_, str> {
    const LONGEST: usize = 24;
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let after = rest[1..].strip_prefix('#').unwrap_or(&rest[1..]);
        let name = after.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(after.len());
        let end = rest.len() - after.len() + name;
        let whole = (1..=LONGEST).contains(&name) && rest[end..].starts_with(';');
        match whole.then(|| entity(&rest[..=end])).flatten() {
            Some(characters) => {
                out.push_str(&characters);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    if out.is_empty() {
        return Cow::Borrowed(rest);
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// What an entity from `&` to `;` stands for.
fn entity(entity: &str) -> Option<String> {
    let unescaped = htmlize::unescape(entity);
    if entity.starts_with("&#") {
        return (!unescaped.contains(';')).then(|| unescaped.into_owned());
    }
    let known = |name: &str| {
        let bytes = htmlize::ENTITIES.get(name.as_bytes())?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let small = entity.to_ascii_lowercase();
    let capitals = entity.to_ascii_uppercase() == entity && unescaped == entity;
    known(entity).or_else(|| capitals.then(|| known(&small)).flatten().map(|c| c.to_uppercase()))
}

/// Without what colours text in a terminal.
fn without_escapes(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        let body = &rest[at + 2..];
        let length = body.find(|c: char| !c.is_numeric() && c != ';').unwrap_or(body.len());
        let letter = body[length..].starts_with(|c: char| c.is_ascii_alphabetic());
        out.push_str(&rest[..at]);
        if !letter {
            out.push_str("\x1b[");
        }
        rest = if letter { &body[length + 1..] } else { body };
    }
    match rest.len() == text.len() {
        true => Cow::Borrowed(text),
        false => Cow::Owned(out + rest),
    }
}
