//! A YAML file as a tree that knows where everything stands, so that every complaint has a place.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};
use serde_saphyr::Spanned;

use crate::error::{Error, Result};

/// Where something of a recipe was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// In a file: line and column, from 1.
    File(PathBuf, u64, u64),
    /// In a value that replaces one of the file: `key.key=value`.
    Override(String),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::File(path, line, column) => write!(f, "{}:{line}:{column}", path.display()),
            Location::Override(text) => write!(f, "the override {text}"),
        }
    }
}

/// No recipe has more bytes.
const LONGEST: u64 = 4 << 20;

/// A value with its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) place: Location,
}

/// What a value is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    /// Keys with the places of the keys.
    Map(Vec<(String, Location, Node)>),
}

impl Kind {
    /// What it is called in messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(number) if number.is_f64() => "a number",
            Kind::Number(_) => "a whole number",
            Kind::Text(_) => "text",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a section",
        }
    }
}

impl Node {
    /// Parses a file.
    ///
    /// # Errors
    /// It cannot be read or is not YAML.
    pub(crate) fn read(path: &Path) -> Result<Node> {
        let failed = |err| Error::file("read", path, err);
        let text = match kernels::read_text(path, LONGEST) {
            Err(err) if err.kind() == std::io::ErrorKind::FileTooLarge => {
                let reason = format!("it has more than {LONGEST} bytes, which no recipe has");
                return Err(Error::Yaml { path: path.to_owned(), reason });
            }
            read => read.map_err(failed)?,
        };
        Node::parse(&text, path)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// It is not YAML.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Node> {
        let refused = |err: serde_saphyr::Error| {
            let (path, reason) = (path.to_owned(), told(&err));
            match err.without_snippet() {
                serde_saphyr::Error::DuplicateMappingKey { location, .. } => {
                    let location = Location::File(path, location.line(), location.column());
                    Error::At { location, reason }
                }
                _ => Error::Yaml { path, reason },
            }
        };
        let raw: Spanned<Raw> = serde_saphyr::from_str(text).map_err(refused)?;
        Ok(raw.placed(&|line, column| Location::File(path.to_owned(), line, column)))
    }

    /// Applies `a.b=value`; sections on the way are made if they are not there.
    ///
    /// # Errors
    /// It has no `=`, its value is not YAML, or it leads into something that is no section.
    pub(crate) fn set(&mut self, argument: &str) -> Result<()> {
        let wrong = |reason: String| Error::At {
            location: Location::Override(argument.to_owned()),
            reason,
        };
        let (path, value) = argument
            .split_once('=')
            .ok_or_else(|| wrong("it is not of the form key.key=value".to_owned()))?;
        let raw: Spanned<Raw> = serde_saphyr::from_str(value).map_err(|err| wrong(told(&err)))?;
        let place = Location::Override(argument.to_owned());
        let value = raw.placed(&|_, _| place.clone());
        let mut node = self;
        for key in path.split('.') {
            if key.is_empty() {
                return Err(wrong("a key is empty".to_owned()));
            }
            node = node.below(key, &place).map_err(wrong)?;
        }
        *node = value;
        Ok(())
    }

    /// The value of a key, made if it is not there.
    fn below(&mut self, key: &str, place: &Location) -> std::result::Result<&mut Node, String> {
        if matches!(self.kind, Kind::Null) {
            self.kind = Kind::Map(Vec::new());
        }
        match &mut self.kind {
            Kind::Map(entries) => {
                let at = entries.iter().position(|(name, _, _)| name == key);
                let at = at.unwrap_or_else(|| {
                    let empty = Node { kind: Kind::Null, place: place.clone() };
                    entries.push((key.to_owned(), place.clone(), empty));
                    entries.len() - 1
                });
                Ok(&mut entries[at].2)
            }
            Kind::List(items) => {
                let count = items.len();
                let item = key.parse::<usize>().ok().and_then(|at| items.get_mut(at));
                item.ok_or_else(|| format!("`{key}` is not an item of a list of {count}"))
            }
            other => Err(format!("`{key}` cannot be below {}", other.name())),
        }
    }

    /// Where a key of a dotted name was written, or the section that lacks it.
    pub(crate) fn place_of(&self, path: &str) -> &Location {
        let (mut node, mut place) = (self, &self.place);
        for key in path.split('.') {
            let Kind::Map(entries) = &node.kind else { break };
            let Some((_, at, below)) = entries.iter().find(|(name, _, _)| name == key) else {
                break;
            };
            // An override replaces the value of a key, and is where it was written.
            place = if matches!(below.place, Location::Override(_)) { &below.place } else { at };
            node = below;
        }
        place
    }

    /// The same without places.
    pub(crate) fn value(&self) -> Value {
        self.value_with(&|number, _| number.clone())
    }

    /// The same with other numbers.
    pub(crate) fn value_with(&self, other: &dyn Fn(&Number, &Location) -> Number) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number) => Value::Number(other(number, &self.place)),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => items.iter().map(|node| node.value_with(other)).collect(),
            Kind::Map(entries) => {
                let own = |node: &Node| node.value_with(other);
                entries.iter().map(|(key, _, node)| (key.clone(), own(node))).collect()
            }
        }
    }
}

/// What the parser says, in our words where it speaks of settings of its own.
fn told(error: &serde_saphyr::Error) -> String {
    match error.without_snippet() {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("key `{key}` stands twice in its section; keep one of them")
        }
        serde_saphyr::Error::DuplicateMappingKey { key: None, .. } => {
            "a key stands twice in its section; keep one of them".to_owned()
        }
        _ => first_line(error),
    }
}

/// Only the first line: the parser draws the rest of it.
fn first_line(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// A value as it is parsed.
enum Raw {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

/// Gives a raw value its place.
trait Placed {
    fn placed(self, at: &dyn Fn(u64, u64) -> Location) -> Node;
}

impl Placed for Spanned<Raw> {
    fn placed(self, at: &dyn Fn(u64, u64) -> Location) -> Node {
        let place = at(self.referenced.line(), self.referenced.column());
        let kind = match self.value {
            Raw::Null => Kind::Null,
            Raw::Bool(value) => Kind::Bool(value),
            Raw::Number(number) => Kind::Number(number),
            Raw::Text(text) => Kind::Text(text),
            Raw::List(items) => Kind::List(items.into_iter().map(|item| item.placed(at)).collect()),
            Raw::Map(entries) => {
                let entry = |(key, value): (Spanned<String>, Spanned<Raw>)| {
                    let place = at(key.referenced.line(), key.referenced.column());
                    (key.value, place, value.placed(at))
                };
                Kind::Map(entries.into_iter().map(entry).collect())
            }
        };
        Node { kind, place }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Raw, E> {
        Number::from_f64(value).map(Raw::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Raw, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Raw::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Raw, A::Error> {
        let mut map: Vec<(Spanned<String>, Spanned<Raw>)> = Vec::new();
        let mut known = HashSet::new();
        while let Some((key, value)) = entries.next_entry::<Spanned<String>, Spanned<Raw>>()? {
            if !known.insert(key.value.clone()) {
                return Err(A::Error::custom(format!("key `{}` is there twice", key.value)));
            }
            map.push((key, value));
        }
        Ok(Raw::Map(map))
    }
}
