//! Compares a document with the schema of recipes: unknown keys, missing keys, wrong types and unknown
//! names are refused with their place and the nearest thing that exists.
//!
//! The schema is the one that editors get, so what an editor accepts is what the command accepts.

use nn::most_similar;
use serde_json::Value;

use crate::document::{Kind, Location, Node};
use crate::error::{Error, Result};
use crate::synonyms::{chosen_elsewhere, elsewhere};

/// Checks a document against a schema.
///
/// # Errors
/// Everything that does not fit.
pub(crate) fn check(node: &Node, schema: &Value) -> Result<()> {
    Check { root: schema }.node(node, &[schema], "")
}

/// Several complaints of one section, which may be lists themselves.
fn gathered(results: impl IntoIterator<Item = Result<()>>) -> Result<()> {
    let each = results.into_iter().filter_map(Result::err).flat_map(|error| match error {
        Error::Several(all) => all,
        error => vec![error],
    });
    Error::unless_none(each.collect())
}

struct Check<'a> {
    root: &'a Value,
}

fn fault<T>(place: &Location, reason: String) -> Result<T> {
    Err(Error::At { location: place.clone(), reason })
}

/// How a place within the recipe is called.
fn section(path: &str) -> String {
    match path {
        "" => "the recipe".to_owned(),
        path => format!("`{path}`"),
    }
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

impl<'a> Check<'a> {
    /// `all` hold at once: a schema is often put together of several.
    fn node(&self, node: &Node, all: &[&'a Value], path: &str) -> Result<()> {
        let alternatives = self.alternatives(all);
        let fitting: Vec<&Vec<&Value>> =
            alternatives.iter().filter(|parts| accepts(parts, &node.kind)).collect();
        if fitting.is_empty() {
            let wanted: Vec<String> = alternatives
                .iter()
                .map(|parts| wanted(parts))
                .filter(|it| it != "nothing")
                .collect();
            let (found, wanted) = (node.kind.name(), wanted.join(" or "));
            return fault(&node.place, format!("{} is {found}, but it is {wanted}", section(path)));
        }
        match &node.kind {
            Kind::Map(entries) => self.map(node, entries, &fitting, path),
            Kind::List(items) => self.list(node, items, fitting[0], path),
            Kind::Text(text) => named(node, text, &fitting, path),
            Kind::Number(number) => in_range(node, number.as_f64(), fitting[0], path),
            Kind::Null | Kind::Bool(_) => Ok(()),
        }
    }

    /// Every way to satisfy schemas that hold at once: lists of schemas without alternatives.
    fn alternatives(&self, all: &[&'a Value]) -> Vec<Vec<&'a Value>> {
        let mut ways: Vec<Vec<&Value>> = vec![Vec::new()];
        for schema in all {
            let mut more = Vec::new();
            if let Some(target) = schema["$ref"].as_str() {
                let pointer = target.trim_start_matches('#');
                more.extend(self.root.pointer(pointer).map(|found| vec![found]));
            }
            for part in schema["allOf"].as_array().into_iter().flatten() {
                more.push(vec![part]);
            }
            for way in &mut ways {
                way.push(schema);
            }
            for part in more {
                let inner = self.alternatives(&part);
                ways = cross(&ways, &inner);
            }
            for key in ["oneOf", "anyOf"] {
                if let Some(options) = schema[key].as_array() {
                    let inner: Vec<_> =
                        options.iter().flat_map(|option| self.alternatives(&[option])).collect();
                    ways = cross(&ways, &inner);
                }
            }
        }
        ways
    }

    fn map(
        &self,
        node: &Node,
        entries: &[(String, Location, Node)],
        ways: &[&Vec<&'a Value>],
        path: &str,
    ) -> Result<()> {
        let parts = choose(node, entries, ways, path)?;
        let known: Vec<&str> = properties(parts).map(|(key, _)| key).collect();
        let free = parts
            .iter()
            .find_map(|part| part.get("additionalProperties").filter(|value| value.is_object()));
        let entry = |(key, place, value): &(String, Location, Node)| {
            let own: Vec<&Value> =
                properties(parts).filter(|(name, _)| name == key).map(|(_, own)| own).collect();
            let path = below(path, key);
            match (own.is_empty(), free) {
                (false, _) => self.node(value, &own, &path),
                (true, Some(any)) => self.node(value, &[any], &path),
                (true, None) => unknown(place, (key, &known), node_path(&path)),
            }
        };
        let required =
            parts.iter().flat_map(|part| part["required"].as_array().into_iter().flatten());
        let missing = required
            .filter_map(Value::as_str)
            .filter(|key| !entries.iter().any(|(own, _, _)| own == key))
            .map(|key| fault(&node.place, format!("{} lacks the key `{key}`", section(path))));
        gathered(entries.iter().map(entry).chain(missing))
    }

    fn list(&self, node: &Node, items: &[Node], parts: &[&'a Value], path: &str) -> Result<()> {
        let count = |key: &str| parts.iter().find_map(|part| part[key].as_u64());
        let (least, most) = (count("minItems").unwrap_or(0), count("maxItems").unwrap_or(u64::MAX));
        if !(least..=most).contains(&(items.len() as u64)) {
            let wanted =
                if least == most { format!("{least}") } else { format!("{least} or more") };
            let found = items.len();
            return fault(
                &node.place,
                format!("{} has {found} items, not {wanted}", section(path)),
            );
        }
        gathered(items.iter().enumerate().map(|(index, item)| {
            let own: Vec<&Value> = parts
                .iter()
                .filter_map(|part| {
                    part["prefixItems"].get(index).or(part.get("items").filter(|it| it.is_object()))
                })
                .collect();
            self.node(item, &own, &below(path, &index.to_string()))
        }))
    }
}

/// The path of the section that a key stands in.
fn node_path(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(section, _)| section)
}

fn unknown(place: &Location, (key, known): (&str, &[&str]), path: &str) -> Result<()> {
    let near = match most_similar(key, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if let Some(here) = elsewhere(&below(path, key)) => {
            format!("what others call so is here: {here}")
        }
        None => format!("it knows {}", known.join(", ")),
    };
    fault(place, format!("unknown key `{key}` in {}; {near}", section(path)))
}

/// Each way of the left with each of the right.
fn cross<'a>(left: &[Vec<&'a Value>], right: &[Vec<&'a Value>]) -> Vec<Vec<&'a Value>> {
    let join = |own: &Vec<&'a Value>, other: &Vec<&'a Value>| [&own[..], &other[..]].concat();
    left.iter().flat_map(|own| right.iter().map(move |other| join(own, other))).collect()
}

/// The keys that schemas know.
fn properties<'a>(parts: &[&'a Value]) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let maps = parts.iter().filter_map(|part| part["properties"].as_object()).collect::<Vec<_>>();
    maps.into_iter().flatten().map(|(key, schema)| (key.as_str(), schema))
}

/// Which of several ways a section takes: where they differ by a name, the one of its name.
fn choose<'w, 'a>(
    node: &Node,
    entries: &[(String, Location, Node)],
    ways: &[&'w Vec<&'a Value>],
    path: &str,
) -> Result<&'w Vec<&'a Value>> {
    if ways.len() == 1 {
        return Ok(ways[0]);
    }
    let tag = |way: &Vec<&'a Value>| {
        properties(way).find_map(|(key, schema)| Some((key, schema["const"].as_str()?)))
    };
    let tags: Vec<(&str, &str)> = ways.iter().filter_map(|way| tag(way)).collect();
    let Some((key, _)) = tags.first().copied() else { return Ok(ways[0]) };
    let names: Vec<&str> = tags.iter().map(|(_, name)| *name).collect();
    let given = entries.iter().find(|(own, _, _)| own == key);
    let Some((_, _, value)) = given else {
        let names = names.join(", ");
        return fault(&node.place, format!("{} lacks the key `{key}`: {names}", section(path)));
    };
    let found = match &value.kind {
        Kind::Text(text) => ways.iter().find(|way| tag(way).is_some_and(|(_, name)| name == text)),
        _ => None,
    };
    match (found, &value.kind) {
        (Some(way), _) => Ok(way),
        (None, Kind::Text(text)) => {
            no_name(value, text, &names, &below(path, key)).map(|()| ways[0])
        }
        (None, other) => {
            let (place, found) = (section(&below(path, key)), other.name());
            fault(
                &value.place,
                format!("{place} is {found}, but it is one of {}", names.join(", ")),
            )
        }
    }
}

fn no_name(node: &Node, text: &str, names: &[&str], path: &str) -> Result<()> {
    let near = match chosen_elsewhere(path, text) {
        Some(here) => format!("; {here}"),
        None => most_similar(text, names.iter().copied())
            .map(|near| format!("; did you mean `{near}`?"))
            .unwrap_or_default(),
    };
    let all = names.join(", ");
    fault(&node.place, format!("{} is `{text}`, but it is one of {all}{near}", section(path)))
}

/// A text that must be one of some names is one of them.
fn named(node: &Node, text: &str, ways: &[&Vec<&Value>], path: &str) -> Result<()> {
    let names = |way: &Vec<&Value>| -> Vec<String> {
        let lists = way.iter().filter_map(|part| part["enum"].as_array()).flatten();
        let single = way.iter().filter_map(|part| part.get("const"));
        lists.chain(single).filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let each: Vec<Vec<String>> = ways.iter().map(|way| names(way)).collect();
    if each.iter().any(|names| names.is_empty() || names.iter().any(|name| name == text)) {
        return Ok(());
    }
    let all: Vec<&str> = each.iter().flatten().map(String::as_str).collect();
    no_name(node, text, &all, path)
}

fn in_range(node: &Node, number: Option<f64>, parts: &[&Value], path: &str) -> Result<()> {
    // What a real number may be is for editors: whoever uses it says why it cannot be.
    let whole: Vec<&&Value> =
        parts.iter().filter(|part| types(part).contains(&"integer")).collect();
    let bound = |key: &str| whole.iter().find_map(|part| part[key].as_f64());
    let number = number.unwrap_or(f64::NAN);
    match (bound("minimum"), bound("maximum")) {
        (Some(least), _) if number < least => {
            fault(&node.place, format!("{} is {number}, but it is at least {least}", section(path)))
        }
        (_, Some(most)) if number > most => {
            fault(&node.place, format!("{} is {number}, but it is at most {most}", section(path)))
        }
        _ => Ok(()),
    }
}

/// The types that a schema names.
fn types(part: &Value) -> Vec<&str> {
    match &part["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Whether every schema of a way takes such a value.
fn accepts(parts: &[&Value], kind: &Kind) -> bool {
    let takes = |name: &str| match kind {
        Kind::Null => name == "null",
        Kind::Bool(_) => name == "boolean",
        Kind::Number(number) => name == "number" || name == "integer" && !number.is_f64(),
        Kind::Text(_) => name == "string",
        Kind::List(_) => name == "array",
        Kind::Map(_) => name == "object",
    };
    parts.iter().all(|part| {
        let types = types(part);
        let text = part.get("const").or(part["enum"].get(0)).is_some_and(Value::is_string);
        (types.is_empty() || types.iter().any(|name| takes(name)))
            && (!text || matches!(kind, Kind::Text(_)))
    })
}

/// What a way wants, in words.
fn wanted(parts: &[&Value]) -> String {
    let word = |name: &str| match name {
        "null" => "nothing",
        "boolean" => "true or false",
        "number" => "a number",
        "integer" => "a whole number",
        "string" => "text",
        "array" => "a list",
        _ => "a section",
    };
    let text = parts.iter().any(|part| part.get("const").is_some() || part.get("enum").is_some());
    if text {
        return "a name".to_owned();
    }
    let all: Vec<&str> =
        parts.iter().flat_map(|part| types(part)).filter(|it| *it != "null").map(word).collect();
    all.last().map_or("nothing", |word| word).to_owned()
}
