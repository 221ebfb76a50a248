//! Reading a published `config.json` or `scheduler_config.json`, strictly.
//!
//! Every option is taken by name, with the default that the reference has; a reader lists by name
//! what it knows and passes over; what is left over at the end is unknown and refused. So the
//! list of known options is the code that reads them, and a misspelt one never means a default.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::{Error, Result};

/// The key that names a class of diffusers.
const CLASS: &str = "_class_name";

/// The options of one config, as far as they have not been taken yet.
#[derive(Debug)]
pub struct ConfigReader {
    config: String,
    values: Map<String, Value>,
    known: Vec<&'static str>,
}

impl ConfigReader {
    /// Reads the text of `config`, which is what messages call it.
    ///
    /// Keys that begin with an underscore are the libraries' own notes (`_diffusers_version`,
    /// `_name_or_path`, `_commit_hash`): no class takes such an argument, so none is an option.
    ///
    /// # Errors
    /// It is not a JSON object.
    pub fn parse(config: &str, text: &str) -> Result<ConfigReader> {
        let wrong = |reason: String| Error::Config { config: config.to_owned(), reason };
        match serde_json::from_str(&quote_non_finite(text)) {
            Ok(Value::Object(mut values)) => {
                values.retain(|option, _| !option.starts_with('_') || option == CLASS);
                Ok(ConfigReader { config: config.to_owned(), values, known: Vec::new() })
            }
            Ok(_) => Err(wrong(format!("it must be a JSON object with a `{CLASS}`"))),
            Err(err) => Err(wrong(format!("it is not valid JSON: {err}"))),
        }
    }

    /// What messages call the config.
    pub fn name(&self) -> &str {
        &self.config
    }

    /// What has not been taken yet.
    pub fn rest(&self) -> &Map<String, Value> {
        &self.values
    }

    /// The class that the config is of, if it says so.
    ///
    /// # Errors
    /// It is none of `classes`.
    pub fn class(&mut self, classes: &[&'static str]) -> Result<Option<&'static str>> {
        let Some(value) = self.take(CLASS) else { return Ok(None) };
        let found = classes.iter().find(|class| value.as_str() == Some(class));
        match found {
            Some(class) => Ok(Some(class)),
            None => Err(self.unsupported(CLASS, &value, &classes.join(", "))),
        }
    }

    /// Lets messages call the config by another name.
    pub fn renamed(self, config: &str) -> ConfigReader {
        ConfigReader { config: config.to_owned(), ..self }
    }

    /// A switch. Null is off, as in Python.
    ///
    /// # Errors
    /// It is something else.
    pub fn flag(&mut self, option: &'static str, default: bool) -> Result<bool> {
        Ok(self.optional_flag(option, Some(default))?.unwrap_or(false))
    }

    /// A switch or null, where `default` says what a missing one means.
    ///
    /// # Errors
    /// It is something else.
    pub fn optional_flag(
        &mut self,
        option: &'static str,
        default: Option<bool>,
    ) -> Result<Option<bool>> {
        match self.take(option) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(Value::Bool(on)) => Ok(Some(on)),
            Some(other) => Err(self.unsupported(option, &other, "true, false")),
        }
    }

    /// A switch that we cannot turn on; `instead` says what to do.
    ///
    /// # Errors
    /// It is on.
    pub fn must_be_off(&mut self, option: &'static str, instead: &str) -> Result<()> {
        match self.flag(option, false)? {
            false => Ok(()),
            true => Err(self.unsupported(option, &Value::Bool(true), instead)),
        }
    }

    /// A switch that we cannot turn off.
    ///
    /// # Errors
    /// It is off.
    pub fn must_be_on(&mut self, option: &'static str) -> Result<()> {
        match self.flag(option, true)? {
            true => Ok(()),
            false => Err(self.unsupported(option, &Value::Bool(false), "true")),
        }
    }

    /// A finite number.
    ///
    /// # Errors
    /// It is something else.
    pub fn number(&mut self, option: &'static str, default: f64) -> Result<f64> {
        Ok(self.optional_number(option, Some(default))?.unwrap_or(default))
    }

    /// A finite number or null, where `default` says what a missing one means. Null is only
    /// allowed where null is the default.
    ///
    /// # Errors
    /// It is something else.
    pub fn optional_number(
        &mut self,
        option: &'static str,
        default: Option<f64>,
    ) -> Result<Option<f64>> {
        match self.take(option) {
            None => Ok(default),
            Some(Value::Null) if default.is_none() => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.unsupported(option, &value, "finite numbers")),
            },
        }
    }

    /// A lower bound: a number, or minus infinity for none.
    ///
    /// # Errors
    /// It is something else.
    pub fn lower_bound(&mut self, option: &'static str) -> Result<f64> {
        match self.take(option) {
            None => Ok(f64::NEG_INFINITY),
            Some(Value::String(text)) if text == "-Infinity" => Ok(f64::NEG_INFINITY),
            Some(value) => value
                .as_f64()
                .ok_or_else(|| self.unsupported(option, &value, "finite numbers, -Infinity")),
        }
    }

    /// A whole number within `range`.
    ///
    /// # Errors
    /// It is something else.
    pub fn count(
        &mut self,
        option: &'static str,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> Result<usize> {
        match self.take(option) {
            None => Ok(default),
            Some(value) => self.whole(option, &value, &range),
        }
    }

    /// A whole number within `range` that has no default.
    ///
    /// # Errors
    /// It is something else, or missing.
    pub fn required_count(
        &mut self,
        option: &'static str,
        range: RangeInclusive<usize>,
    ) -> Result<usize> {
        match self.take(option) {
            None => Err(self.missing(option)),
            Some(value) => self.whole(option, &value, &range),
        }
    }

    /// A whole number within `range` or null, where `default` says what a missing one means.
    ///
    /// # Errors
    /// It is something else.
    pub fn optional_count(
        &mut self,
        option: &'static str,
        default: Option<usize>,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>> {
        match self.take(option) {
            None => Ok(default),
            Some(Value::Null) => Ok(None),
            Some(value) => self.whole(option, &value, &range).map(Some),
        }
    }

    /// A list of whole numbers within `range`.
    ///
    /// # Errors
    /// It is something else.
    pub fn counts(
        &mut self,
        option: &'static str,
        default: &[usize],
        range: RangeInclusive<usize>,
    ) -> Result<Vec<usize>> {
        let Some(value) = self.take(option) else { return Ok(default.to_vec()) };
        let Some(list) = value.as_array() else {
            let (low, high) = (range.start(), range.end());
            let supported = format!("lists of whole numbers from {low} to {high}");
            return Err(self.unsupported(option, &value, &supported));
        };
        list.iter().map(|number| self.whole(option, number, &range)).collect()
    }

    /// A list of switches.
    ///
    /// # Errors
    /// It is something else.
    pub fn flags(&mut self, option: &'static str, default: &[bool]) -> Result<Vec<bool>> {
        let Some(value) = self.take(option) else { return Ok(default.to_vec()) };
        let flags = value.as_array().and_then(|list| list.iter().map(Value::as_bool).collect());
        flags.ok_or_else(|| self.unsupported(option, &value, "lists of true and false"))
    }

    /// One of `choices`, of which the first is the default.
    ///
    /// # Errors
    /// It is none of them.
    pub fn choice<T: Copy>(&mut self, option: &'static str, choices: &[(&str, T)]) -> Result<T> {
        let value = self.take(option).unwrap_or_else(|| Value::from(choices[0].0));
        // Null is spelt as a name too, so that a choice can allow it.
        let name = if value.is_null() { Some("null") } else { value.as_str() };
        choices
            .iter()
            .find(|(known, _)| Some(*known) == name)
            .map(|(_, choice)| *choice)
            .ok_or_else(|| {
                let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
                self.unsupported(option, &value, &names.join(", "))
            })
    }

    /// A list of names of which only one is supported: how many there are.
    ///
    /// # Errors
    /// It is no list, or another name is in it.
    pub fn repeated(
        &mut self,
        option: &'static str,
        supported: &str,
        default: usize,
    ) -> Result<usize> {
        let Some(value) = self.take(option) else { return Ok(default) };
        let Some(list) = value.as_array() else {
            return Err(self.unsupported(option, &value, &format!("lists of {supported}")));
        };
        match list.iter().find(|name| name.as_str() != Some(supported)) {
            None => Ok(list.len()),
            Some(other) => Err(self.unsupported(option, other, supported)),
        }
    }

    /// A list of finite numbers, or null.
    ///
    /// # Errors
    /// It is something else.
    pub fn numbers(&mut self, option: &'static str) -> Result<Option<Vec<f64>>> {
        match self.take(option) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_array()
                .and_then(|list| list.iter().map(Value::as_f64).collect::<Option<Vec<_>>>())
                .map(Some)
                .ok_or_else(|| self.unsupported(option, &value, "null, lists of numbers")),
        }
    }

    /// An option that must be null if it is there at all.
    ///
    /// # Errors
    /// It is something else.
    pub fn must_be_null(&mut self, option: &'static str) -> Result<()> {
        match self.take(option) {
            None | Some(Value::Null) => Ok(()),
            Some(value) => Err(self.unsupported(option, &value, "null")),
        }
    }

    /// An option that must be null or hold nothing if it is there at all.
    ///
    /// # Errors
    /// It holds something.
    pub fn must_be_empty(&mut self, option: &'static str) -> Result<()> {
        match self.take(option) {
            None | Some(Value::Null) => Ok(()),
            Some(Value::Array(list)) if list.is_empty() => Ok(()),
            Some(Value::Object(map)) if map.is_empty() => Ok(()),
            Some(value) => Err(self.unsupported(option, &value, "null, empty")),
        }
    }

    /// Weights that are stored as they are computed with.
    ///
    /// # Errors
    /// The config says how they were quantized.
    pub fn must_be_unquantized(&mut self) -> Result<()> {
        const OPTION: &str = "quantization_config";
        match self.take(OPTION) {
            None | Some(Value::Null) => Ok(()),
            Some(value) => {
                let remedy = "none; use a checkpoint with f32, bf16 or f16 weights";
                Err(self.unsupported(OPTION, &value, remedy))
            }
        }
    }

    /// An option that must have this value if it is there at all.
    ///
    /// # Errors
    /// It has another.
    pub fn must_be(&mut self, option: &'static str, only: &Value) -> Result<()> {
        match self.take(option) {
            Some(value) if value != *only => {
                Err(self.unsupported(option, &value, &only.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// The option as it is written, for forms that only one config has.
    pub fn take(&mut self, option: &'static str) -> Option<Value> {
        self.known.push(option);
        self.values.remove(option)
    }

    /// ConfigReader that are known and change nothing that is computed.
    pub fn ignore(&mut self, options: &[&'static str]) {
        for option in options {
            self.take(option);
        }
    }

    /// Refuses what has not been taken. A reader calls it once all is taken and before it compares
    /// options with each other: a misspelt one leaves a default that may contradict the others.
    ///
    /// # Errors
    /// There is such an option. The error names it and the known one that is spelt most like it.
    pub fn finish(&self) -> Result<()> {
        let Some(option) = self.values.keys().next() else { return Ok(()) };
        let nearest = self
            .known
            .iter()
            .min_by_key(|known| strsim::damerau_levenshtein(known, option))
            .copied()
            .unwrap_or_default();
        Err(Error::UnknownOption {
            config: self.config.clone(),
            option: option.clone(),
            nearest: nearest.to_owned(),
        })
    }

    /// The error for a value we do not support.
    pub fn unsupported(&self, option: &str, value: &Value, supported: &str) -> Error {
        Error::Unsupported {
            config: self.config.clone(),
            key: option.to_owned(),
            value: value.to_string(),
            supported: supported.to_owned(),
        }
    }

    /// The error for an option without a default that is not there.
    pub fn missing(&self, option: &str) -> Error {
        self.contradiction(format!("`{option}` is missing"))
    }

    /// The error for an option that is not there and must be one of `supported`.
    pub fn missing_of(&self, option: &str, supported: &str) -> Error {
        self.contradiction(format!("`{option}` is missing; supported: {supported}"))
    }

    /// The error for options that contradict each other.
    pub fn contradiction(&self, reason: impl Into<String>) -> Error {
        Error::Config { config: self.config.clone(), reason: reason.into() }
    }

    fn whole(
        &self,
        option: &'static str,
        value: &Value,
        range: &RangeInclusive<usize>,
    ) -> Result<usize> {
        value
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let range = format!("whole numbers from {} to {}", range.start(), range.end());
                self.unsupported(option, value, &range)
            })
    }
}

/// Puts quotes around `-Infinity`, `Infinity` and `NaN`, which Python writes and JSON lacks.
///
/// Nearly every DPM-Solver config holds `"lambda_min_clipped": -Infinity`.
fn quote_non_finite(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    let (mut in_string, mut escaped) = (false, false);
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let word = ["-Infinity", "Infinity", "NaN"].into_iter().find(|word| rest.starts_with(word));
        if let (false, Some(word)) = (in_string, word) {
            quoted.extend(["\"", word, "\""]);
            rest = &rest[word.len()..];
            continue;
        }
        if first == '"' && !escaped {
            in_string = !in_string;
        }
        escaped = in_string && first == '\\' && !escaped;
        quoted.push(first);
        rest = &rest[first.len_utf8()..];
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::{ConfigReader, quote_non_finite};

    #[test]
    fn only_bare_words_are_quoted() {
        let text = r#"{"a": -Infinity, "NaN \" NaN": [NaN, Infinity], "é\\": 1}"#;
        let want = r#"{"a": "-Infinity", "NaN \" NaN": ["NaN", "Infinity"], "é\\": 1}"#;
        assert_eq!(quote_non_finite(text), want);
    }

    /// The laws of every reader: a misspelt option is no default, an ignored one is no error.
    #[test]
    fn what_nobody_took_is_refused_with_the_nearest_known_name() {
        let read = |text: &str| {
            let mut options = ConfigReader::parse("x.json", text)?;
            let layers = options.count("num_layers", 4, 1..=9)?;
            options.ignore(&["dropout"]);
            options.finish().map(|()| layers)
        };
        assert_eq!(read(r#"{"dropout": 0.5, "_note": 1}"#).expect("all known"), 4);
        let error = read(r#"{"num_layer": 2}"#).expect_err("misspelt").to_string();
        let want = "x.json: unknown key `num_layer`; the nearest known one is `num_layers`";
        assert_eq!(error, want);
        let error = read(r#"{"num_layers": null}"#).expect_err("null is no number").to_string();
        assert!(error.contains("`num_layers` is null"), "{error}");
        assert!(read("[]").expect_err("no object").to_string().contains("a JSON object"));
        assert!(read("{").expect_err("no JSON").to_string().contains("not valid JSON"));
    }
}
