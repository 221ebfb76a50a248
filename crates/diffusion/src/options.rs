//! Reading one scheduler's options from JSON text, strictly.
//!
//! Every option is taken by name, with the default that diffusers has; what is left over at the
//! end is unknown. So the list of known options is the code that reads them.

use crate::{Error, Result};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// The options of one scheduler class, as far as they have not been taken yet.
pub(crate) struct Options {
    class: &'static str,
    values: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Options {
    /// Reads the text and finds its class among `classes`.
    pub(crate) fn parse(text: &str, classes: &[&'static str]) -> Result<Options> {
        let supported = || classes.join(", ");
        let Value::Object(mut values) = serde_json::from_str(&quote_non_finite(text))? else {
            return Err(Error::NoClass { supported: supported() });
        };
        let Some(Value::String(name)) = values.remove("_class_name") else {
            return Err(Error::NoClass { supported: supported() });
        };
        let Some(class) = classes.iter().find(|class| **class == name) else {
            return Err(Error::UnsupportedClass { class: name, supported: supported() });
        };
        values.retain(|option, _| !option.starts_with('_'));
        Ok(Options { class, values, known: Vec::new() })
    }

    /// The scheduler's class.
    pub(crate) fn class(&self) -> &'static str {
        self.class
    }

    /// A switch. Null is off, as in Python.
    pub(crate) fn flag(&mut self, option: &'static str, default: bool) -> Result<bool> {
        match self.take(option) {
            None => Ok(default),
            Some(Value::Null) => Ok(false),
            Some(Value::Bool(on)) => Ok(on),
            Some(other) => Err(self.unsupported(option, &other, "true, false")),
        }
    }

    /// A switch that we cannot turn on; `instead` says what to do.
    pub(crate) fn must_be_off(&mut self, option: &'static str, instead: &str) -> Result<()> {
        match self.flag(option, false)? {
            false => Ok(()),
            true => Err(self.unsupported(option, &Value::Bool(true), instead)),
        }
    }

    /// A finite number.
    pub(crate) fn number(&mut self, option: &'static str, default: f64) -> Result<f64> {
        Ok(self.optional_number(option, Some(default))?.unwrap_or(default))
    }

    /// A finite number or null, where `default` says what a missing one means. Null is only
    /// allowed where null is the default.
    pub(crate) fn optional_number(
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
    pub(crate) fn lower_bound(&mut self, option: &'static str) -> Result<f64> {
        match self.take(option) {
            None => Ok(f64::NEG_INFINITY),
            Some(Value::String(text)) if text == "-Infinity" => Ok(f64::NEG_INFINITY),
            Some(value) => value
                .as_f64()
                .ok_or_else(|| self.unsupported(option, &value, "finite numbers, -Infinity")),
        }
    }

    /// A whole number within `range`.
    pub(crate) fn count(
        &mut self,
        option: &'static str,
        default: usize,
        range: RangeInclusive<usize>,
    ) -> Result<usize> {
        let Some(value) = self.take(option) else { return Ok(default) };
        value
            .as_u64()
            .and_then(|number| usize::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let range = format!("whole numbers from {} to {}", range.start(), range.end());
                self.unsupported(option, &value, &range)
            })
    }

    /// One of `choices`, of which the first is the default.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        option: &'static str,
        choices: &[(&str, T)],
    ) -> Result<T> {
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

    /// A list of finite numbers, or null.
    pub(crate) fn numbers(&mut self, option: &'static str) -> Result<Option<Vec<f64>>> {
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
    pub(crate) fn must_be_null(&mut self, option: &'static str) -> Result<()> {
        match self.take(option) {
            None | Some(Value::Null) => Ok(()),
            Some(value) => Err(self.unsupported(option, &value, "null")),
        }
    }

    /// Refuses what has not been taken, except names in `foreign`.
    pub(crate) fn finish(self, foreign: &[&'static str]) -> Result<()> {
        let unknown = self.values.keys().find(|option| !foreign.contains(&option.as_str()));
        let Some(option) = unknown else { return Ok(()) };
        let nearest = self
            .known
            .iter()
            .min_by_key(|known| strsim::damerau_levenshtein(known, option))
            .copied()
            .unwrap_or_default();
        Err(Error::UnknownOption { class: self.class, option: option.clone(), nearest })
    }

    /// The error for a value we do not support.
    pub(crate) fn unsupported(
        &self,
        option: &'static str,
        value: &Value,
        supported: &str,
    ) -> Error {
        Error::UnsupportedOption {
            class: self.class,
            option,
            value: value.to_string(),
            supported: supported.to_owned(),
        }
    }

    fn take(&mut self, option: &'static str) -> Option<Value> {
        self.known.push(option);
        self.values.remove(option)
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
    use super::quote_non_finite;

    #[test]
    fn only_bare_words_are_quoted() {
        let text = r#"{"a": -Infinity, "NaN \" NaN": [NaN, Infinity], "é\\": 1}"#;
        let want = r#"{"a": "-Infinity", "NaN \" NaN": ["NaN", "Infinity"], "é\\": 1}"#;
        assert_eq!(quote_non_finite(text), want);
    }
}
