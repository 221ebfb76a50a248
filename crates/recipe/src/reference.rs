//! Every key of recipes with its type, default and meaning, from the schema that the command checks by.

use std::fmt::Write;

use serde_json::Value;

use crate::schema::Recipe;

/// The head of the page.
const HEAD: &str = "# Every key of a recipe

Made from the schema by `moviola train --keys`; a test compares. `learns.kind: lora` means: the key stands in a section whose
`kind` is `lora`. [training.md](training.md) explains the sections.
";

impl Recipe {
    /// Every key of recipes as a page in Markdown.
    pub fn reference() -> String {
        let schema = Recipe::schema();
        let mut page = HEAD.to_owned();
        let sections = schema["properties"].as_object().into_iter().flatten();
        for (name, section) in sections {
            let about = section["description"].as_str().unwrap_or_default();
            let _ = write!(page, "\n## `{name}`\n\n{about}\n\n");
            page += "| key | is | default | meaning |\n|---|---|---|---|\n";
            let mut rows = Rows { root: &schema, lines: Vec::new(), open: Vec::new() };
            rows.section(name, section);
            rows.lines.dedup();
            page += &rows.lines.concat();
        }
        page
    }
}

struct Rows<'a> {
    root: &'a Value,
    lines: Vec<String>,
    /// References that are being followed: a schema may hold itself.
    open: Vec<String>,
}

impl<'a> Rows<'a> {
    /// The rows of all keys below a schema.
    fn section(&mut self, path: &str, schema: &'a Value) {
        if let Some(target) = schema["$ref"].as_str() {
            if self.open.iter().any(|open| open == target) {
                return;
            }
            let Some(found) = self.root.pointer(target.trim_start_matches('#')) else { return };
            self.open.push(target.to_owned());
            self.section(path, found);
            self.open.pop();
        }
        let required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        for (key, own) in schema["properties"].as_object().into_iter().flatten() {
            if own.get("const").is_none() {
                self.row(&format!("{path}.{key}"), own, required.contains(&key.as_str()));
                self.section(&format!("{path}.{key}"), own);
            }
        }
        for way in ["oneOf", "anyOf", "allOf"] {
            for option in schema[way].as_array().into_iter().flatten() {
                self.option(path, option);
            }
        }
        if schema["items"].is_object() {
            self.section(&format!("{path}[]"), &schema["items"]);
        }
    }

    /// The rows of one of several ways to write a section: where a name tells it, that comes first.
    fn option(&mut self, path: &str, option: &'a Value) {
        let tags = option["properties"].as_object().into_iter().flatten();
        let tag = tags.filter_map(|(key, own)| Some((key, own["const"].as_str()?))).next();
        let Some((key, name)) = tag else { return self.section(path, option) };
        let about = option["description"].as_str().unwrap_or_default();
        self.lines.push(format!("| `{path}.{key}: {name}` | a name | | {} |\n", cell(about)));
        self.section(&format!("{path}: {name}"), option);
    }

    fn row(&mut self, path: &str, own: &Value, is_required: bool) {
        let default = match (&own["default"], is_required) {
            (_, true) => "required".to_owned(),
            (Value::Null, false) => String::new(),
            (Value::Object(_), false) => "see below".to_owned(),
            (default, false) => format!("`{default}`"),
        };
        let about = own["description"].as_str().unwrap_or_default();
        let kind = kind(own, self.root);
        self.lines.push(format!("| `{path}` | {kind} | {default} | {} |\n", cell(about)));
    }
}

/// What a value is, in a word.
fn kind(own: &Value, root: &Value) -> String {
    if let Some(found) =
        own["$ref"].as_str().and_then(|it| root.pointer(it.trim_start_matches('#')))
    {
        return kind(found, root);
    }
    let ways = ["oneOf", "anyOf"].iter().flat_map(|way| own[*way].as_array()).flatten();
    let names: Vec<&str> = ways.clone().filter_map(|way| way["const"].as_str()).collect();
    if !names.is_empty() {
        return names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    }
    let least = own["minimum"].as_f64().filter(|least| *least > 0.0);
    let least = least.map_or(String::new(), |least| format!(", at least {least}"));
    let types: Vec<&str> = match &own["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => {
            let mut all: Vec<String> = ways.map(|way| kind(way, root)).collect();
            all.retain(|kind| kind != "nothing");
            all.dedup();
            return all.join(" or ");
        }
    };
    let word = |name: &&str| match *name {
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "string" => "text",
        "array" => "a list",
        "null" => "nothing",
        _ => "a section",
    };
    let words: Vec<&str> = types.iter().map(word).filter(|it| *it != "nothing").collect();
    match words.is_empty() {
        true => "nothing".to_owned(),
        false => words.join(" or ") + &least,
    }
}

/// A text within a cell of a table.
fn cell(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}
