//! A config of another trainer, of which every key is used or spoken of.

use std::collections::BTreeSet;

use crate::document::{Kind, Location, Node};
use crate::error::Error;

/// A document whose keys are asked for one by one. What nobody asked for is unknown.
pub(super) struct Foreign {
    document: Node,
    asked: BTreeSet<String>,
    /// What cannot be converted.
    pub(super) refused: Vec<Error>,
    /// Keys that are left out without a change to what is learnt, and why.
    pub(super) left_out: Vec<(String, String)>,
}

impl Foreign {
    pub(super) fn new(document: Node) -> Foreign {
        Foreign { document, asked: BTreeSet::new(), refused: Vec::new(), left_out: Vec::new() }
    }

    /// The value of a key, if it is there and is something.
    pub(super) fn get(&mut self, path: &str) -> Option<Node> {
        self.asked.insert(path.to_owned());
        let mut node = &self.document;
        for key in path.split('.') {
            let Kind::Map(entries) = &node.kind else { return None };
            node = entries.iter().find(|(name, ..)| name == key).map(|(.., own)| own)?;
        }
        (!matches!(node.kind, Kind::Null)).then(|| node.clone())
    }

    /// Whether a key is written, even with nothing behind it.
    pub(super) fn has(&self, path: &str) -> bool {
        let mut node = &self.document;
        path.split('.').all(|key| {
            let Kind::Map(entries) = &node.kind else { return false };
            let found = entries.iter().find(|(name, ..)| name == key);
            found.is_some_and(|(.., own)| {
                node = own;
                true
            })
        })
    }

    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        let node = self.get(path)?;
        self.read(path, &node, text(&node), "a text")
    }

    pub(super) fn number(&mut self, path: &str) -> Option<f64> {
        let node = self.get(path)?;
        self.read(path, &node, number(&node), "a number")
    }

    pub(super) fn whole(&mut self, path: &str) -> Option<u64> {
        let node = self.get(path)?;
        self.read(path, &node, whole(&node), "a whole number from 0 on")
    }

    pub(super) fn truth(&mut self, path: &str) -> Option<bool> {
        let node = self.get(path)?;
        let value = match node.kind {
            Kind::Bool(value) => Some(value),
            _ => None,
        };
        self.read(path, &node, value, "true or false")
    }

    pub(super) fn list(&mut self, path: &str) -> Option<Vec<Node>> {
        let node = self.get(path)?;
        let value = match &node.kind {
            Kind::List(items) => Some(items.clone()),
            _ => None,
        };
        self.read(path, &node, value, "a list")
    }

    fn read<T>(&mut self, path: &str, node: &Node, value: Option<T>, wanted: &str) -> Option<T> {
        if value.is_none() {
            let found = node.kind.name();
            self.refuse_at(&node.place, path, &format!("it is {found}, but is {wanted} there"));
        }
        value
    }

    /// Says that a key cannot be converted.
    pub(super) fn refuse(&mut self, path: &str, reason: &str) {
        let place = self.document.place_of(path).clone();
        self.refuse_at(&place, path, reason);
    }

    pub(super) fn refuse_at(&mut self, place: &Location, path: &str, reason: &str) {
        let reason = format!("`{path}`: {reason}");
        self.refused.push(Error::At { location: place.clone(), reason });
    }

    /// Leaves a key out that changes nothing of what is learnt.
    pub(super) fn leave_out(&mut self, path: &str, reason: &str) {
        self.left_out.push((path.to_owned(), reason.to_owned()));
    }

    /// The same for keys that are written, each with one reason.
    pub(super) fn leave_out_if_written(&mut self, paths: &[&str], reason: &str) {
        for path in paths {
            let is_written = self.get(path).is_some();
            if is_written {
                self.leave_out(path, reason);
            }
        }
    }

    /// Says that a key is a section, which may be empty.
    pub(super) fn section(&mut self, path: &str) {
        self.asked.insert(format!("{path}."));
    }

    /// Marks everything below a key as spoken of.
    pub(super) fn know(&mut self, path: &str) {
        self.asked.insert(format!("{path}.*"));
    }

    /// Refuses every key that nobody asked for.
    pub(super) fn refuse_unknown(&mut self) {
        let mut unknown = Vec::new();
        find_unknown(&self.document, "", &self.asked, &mut unknown);
        for (path, place) in unknown {
            let is_key = |own: &&str| !own.ends_with(['.', '*']);
            let known = self.asked.iter().map(String::as_str).filter(is_key);
            let meant = nn::most_similar(&path, known);
            let meant = meant.map_or(String::new(), |own| format!("; did you mean `{own}`?"));
            self.refuse_at(&place, &path, &format!("there is no such key{meant}"));
        }
    }
}

/// Keys that are neither asked for nor on the way to one that is.
fn find_unknown(
    node: &Node,
    above: &str,
    asked: &BTreeSet<String>,
    unknown: &mut Vec<(String, Location)>,
) {
    let Kind::Map(entries) = &node.kind else { return };
    for (key, place, below) in entries {
        let path = if above.is_empty() { key.clone() } else { format!("{above}.{key}") };
        let prefix = format!("{path}.");
        let has_parts = asked.iter().any(|own| own.starts_with(&prefix));
        if asked.contains(&format!("{path}.*")) || (asked.contains(&path) && !has_parts) {
            continue;
        }
        match (has_parts, &below.kind) {
            (true, Kind::Map(_)) => find_unknown(below, &path, asked, unknown),
            (true, Kind::Null) => {}
            _ => unknown.push((path, place.clone())),
        }
    }
}

/// A key of a list's item.
pub(super) fn part<'a>(node: &'a Node, key: &str) -> Option<&'a Node> {
    let Kind::Map(entries) = &node.kind else { return None };
    let found = entries.iter().find(|(name, ..)| name == key).map(|(.., own)| own)?;
    (!matches!(found.kind, Kind::Null)).then_some(found)
}

/// The keys of a list's item.
pub(super) fn keys(node: &Node) -> Vec<&str> {
    match &node.kind {
        Kind::Map(entries) => entries.iter().map(|(name, ..)| name.as_str()).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn text(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Text(text) => Some(text.clone()),
        // A name or path of digits alone.
        Kind::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A number, also as PyYAML takes `1e-4`: for a text.
pub(super) fn number(node: &Node) -> Option<f64> {
    let value = match &node.kind {
        Kind::Number(number) => number.as_f64(),
        Kind::Text(text) => text.trim().parse().ok(),
        _ => None,
    };
    value.filter(|own| own.is_finite())
}

pub(super) fn whole(node: &Node) -> Option<u64> {
    let value = number(node)?;
    (value >= 0.0 && value.fract() == 0.0 && value < 9e15).then_some(value as u64)
}
