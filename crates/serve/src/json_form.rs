//! JSON bodies as named fields, `key[sub]` for what is nested and `key[]` for what is listed.
//!
//! They are read straight into fields: what is too much or too deep is refused where it begins, before anything is built
//! of what follows. A body of 16 MB can hold eight million values, each of which would take a multiple of its bytes.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

use crate::error::{Answer, Refusal};
use crate::form::{Form, MOST_FIELDS, Value, check_name};

/// How deep a body may be.
const DEEPEST: usize = 4;

/// Values of a body at the most, those that say nothing too.
const MOST_VALUES: usize = 8 * MOST_FIELDS;

/// The fields of a body.
///
/// # Errors
/// It is no JSON object, or one of too much.
pub(crate) fn read(bytes: &[u8]) -> Answer<Form> {
    let mut sink = Sink::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let body = Piece { sink: &mut sink, name: String::new(), at: None, depth: 0 };
    let done = body.deserialize(&mut reader).and_then(|()| reader.end());
    match (sink.refusal, done) {
        (Some(refusal), _) => Err(refusal),
        (None, Err(error)) => Err(Refusal::body(format!("the body is no JSON: {error}"))),
        (None, Ok(())) => Ok(sink.form),
    }
}

/// Where fields go.
#[derive(Default)]
struct Sink {
    form: Form,
    values: usize,
    /// Why no more is read.
    refusal: Option<Refusal>,
}

/// A value that is read, and what it is called.
struct Piece<'a> {
    sink: &'a mut Sink,
    /// The name of what it is in, or its own.
    name: String,
    /// Its place in a list.
    at: Option<usize>,
    /// 0 of the body itself.
    depth: usize,
}

impl Piece<'_> {
    /// Refuses it if it is too much, and takes its name.
    fn begin<E: serde::de::Error>(&mut self, is_object: bool) -> Result<(), E> {
        self.check(is_object).map_err(|refusal| {
            self.sink.refusal = Some(refusal);
            E::custom("it is refused")
        })
    }

    fn check(&mut self, is_object: bool) -> Answer<()> {
        if self.depth == 0 {
            return match is_object {
                true => Ok(()),
                false => {
                    Err(Refusal::body("the body is no JSON object, like {\"prompt\": \"a fox\"}"))
                }
            };
        }
        // What belongs to one object of a list is told by its number.
        match self.at {
            Some(at) if is_object => self.name = format!("{}[{at}]", self.name),
            Some(_) => self.name.push_str("[]"),
            None => {}
        }
        self.sink.values += 1;
        let count = match self.sink.values > MOST_VALUES {
            true => MOST_FIELDS,
            false => self.sink.form.fields.len(),
        };
        check_name(&self.name, count)?;
        match self.depth > DEEPEST {
            true => {
                let name = &self.name;
                Err(Refusal::field(name, format!("{name}: it is nested too deep")))
            }
            false => Ok(()),
        }
    }

    fn text<E: serde::de::Error>(mut self, text: String) -> Result<(), E> {
        self.begin(false)?;
        self.sink.form.fields.push((self.name, Value::Text(text)));
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Piece<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Piece<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: serde::de::Error>(mut self) -> Result<(), E> {
        self.begin(false)
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<(), E> {
        self.text(value.to_string())
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<(), E> {
        self.text(value.to_string())
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<(), E> {
        self.text(value.to_string())
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<(), E> {
        self.text(Json::from(value).to_string())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<(), E> {
        self.text(value.to_owned())
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<(), E> {
        self.text(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut all: A) -> Result<(), A::Error> {
        self.begin(false)?;
        let Piece { sink, name, depth, .. } = self;
        for at in 0.. {
            let piece =
                Piece { sink: &mut *sink, name: name.clone(), at: Some(at), depth: depth + 1 };
            if all.next_element_seed(piece)?.is_none() {
                return Ok(());
            }
        }
        Err(A::Error::custom("a list has an end"))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut all: A) -> Result<(), A::Error> {
        self.begin(true)?;
        let Piece { sink, name, depth, .. } = self;
        while let Some(key) = all.next_key::<String>()? {
            let name = if depth == 0 { key } else { format!("{name}[{key}]") };
            all.next_value_seed(Piece { sink: &mut *sink, name, at: None, depth: depth + 1 })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::read;
    use crate::form::Value;

    fn fields(body: &str) -> Vec<(String, String)> {
        let form = read(body.as_bytes()).unwrap_or_else(|refusal| panic!("{refusal:?}"));
        let text = |(name, value)| match value {
            Value::Text(text) => (name, text),
            other => panic!("{other:?}"),
        };
        form.fields.into_iter().map(text).collect()
    }

    #[test]
    fn what_is_nested_and_listed_has_names() {
        let body = r#"{"prompt": "a fox", "seed": 7, "shift": -2, "guidance": 1.5, "big": 1e20, "none": null,
            "lora": [{"name": "a", "scale": 1}, "b"], "size": {"w": true, "h": [1, 2]}}"#;
        let want = [
            ("prompt", "a fox"),
            ("seed", "7"),
            ("shift", "-2"),
            ("guidance", "1.5"),
            ("big", "1e+20"),
            ("lora[0][name]", "a"),
            ("lora[0][scale]", "1"),
            ("lora[]", "b"),
            ("size[w]", "true"),
            ("size[h][]", "1"),
            ("size[h][]", "2"),
        ];
        let want = want.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(fields(body), want);
        assert!(fields("{}").is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (body, reason) in [
            ("[1]", "no JSON object"),
            ("\"x\"", "no JSON object"),
            ("null", "no JSON object"),
            ("", "no JSON:"),
            ("{\"a\": 1", "no JSON:"),
            ("{\"a\": 1} 2", "no JSON:"),
            ("{\"\": 1}", "no name"),
            (r#"{"a": {"b": {"c": {"d": {"e": 1}}}}}"#, "too deep"),
            ("[[[[[[[[[[[[", "no JSON object"),
        ] {
            let refusal = read(body.as_bytes()).expect_err(body);
            assert!(refusal.message().contains(reason), "{body}: {}", refusal.message());
        }
    }

    /// However long a body is, no more of it is read than a request can hold: what follows is not even JSON.
    #[test]
    fn what_is_too_much_is_refused_where_it_begins() {
        for (value, reason) in [
            ("0", "more than 128 fields"),
            ("null", "more than 128 fields"),
            ("[]", "more than 128 fields"),
            ("{}", "more than 128 fields"),
        ] {
            let body = format!("{{\"a\": [{} this is no JSON", format!("{value},").repeat(2000));
            let refusal = read(body.as_bytes()).expect_err(value);
            assert!(refusal.message().contains(reason), "{value}: {}", refusal.message());
        }
    }
}
