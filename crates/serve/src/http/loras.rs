//! LoRAs of a request: by a name, by an object of a name and a scale, or a list of either.

use serde_json::Value;

use crate::ask::LoraAsk;
use crate::error::{Answer, Refusal};
use crate::fields::Fields;

/// LoRAs of a request at the most.
const MOST: usize = 8;

/// `lora` as a name or a JSON text; `lora[name]` and `lora[scale]`; and lists of such: `lora[]`, `lora[][name]` with
/// `lora[][scale]`, or `lora[0][name]`.
///
/// # Errors
/// One has no name, a scale that is none, or something else.
pub(super) fn loras(fields: &mut Fields) -> Answer<Vec<LoraAsk>> {
    let mut all: Vec<LoraAsk> = Vec::new();
    let mut objects: Vec<(String, Object)> = Vec::new();
    let mut listed: Vec<(String, String)> = Vec::new();
    for (key, text) in fields.nested("lora")? {
        match key.rsplit_once("][") {
            None if key.is_empty() => all.push(LoraAsk { name: text, scale: 1.0 }),
            Some(("", part)) => listed.push((part.to_owned(), text)),
            place => {
                let (place, part) = place.unwrap_or(("", &key));
                let at = objects.iter().position(|(known, _)| known == place);
                let at = at.unwrap_or_else(|| {
                    objects.push((place.to_owned(), Object::default()));
                    objects.len() - 1
                });
                objects[at].1.put(part, text)?;
            }
        }
    }
    for object in in_a_row(listed)?.into_iter().chain(objects.into_iter().map(|(_, own)| own)) {
        all.push(object.finish()?);
    }
    if let Some(text) = fields.text("lora")?.filter(|text| !text.is_empty()) {
        all.push(match text.starts_with('{') {
            false => LoraAsk { name: text, scale: 1.0 },
            true => written(&text)?,
        });
    }
    match all.len() <= MOST {
        true => Ok(all),
        false => Err(wrong(&format!("there are more than {MOST}"))),
    }
}

/// Objects of a list that a form writes without numbers. Where one begins is plain only if each has both of its parts,
/// or none has a scale.
fn in_a_row(parts: Vec<(String, String)>) -> Answer<Vec<Object>> {
    let has_scales = parts.iter().any(|(part, _)| part == "scale");
    let together = if has_scales { 2 } else { 1 };
    let object = |parts: &[(String, String)]| {
        let mut object = Object::default();
        for (part, text) in parts {
            object.put(part, text.clone()).map_err(|refusal| match has_scales {
                true => unclear(),
                false => refusal,
            })?;
        }
        match has_scales && (object.name.is_none() || object.scale.is_none()) {
            true => Err(unclear()),
            false => Ok(object),
        }
    };
    parts.chunks(together).map(object).collect()
}

fn unclear() -> Refusal {
    wrong(
        "it is not plain which scale is whose: give each of `lora[]` a name and a scale, or write lora[0][name], \
         lora[0][scale], lora[1][name]",
    )
}

/// The object of a JSON text.
fn written(text: &str) -> Answer<LoraAsk> {
    let Ok(Value::Object(all)) = serde_json::from_str(text) else {
        return Err(wrong("it is no JSON object like {\"name\": \"style\", \"scale\": 0.8}"));
    };
    let mut object = Object::default();
    for (part, value) in all {
        let text = match (&*part, value) {
            (_, Value::Null) => continue,
            ("scale", Value::Number(number)) => number.to_string(),
            ("scale", _) => return Err(no_number()),
            (_, Value::String(text)) => text,
            (_, other) => other.to_string(),
        };
        object.put(&part, text)?;
    }
    object.finish()
}

/// A LoRA whose parts come one by one.
#[derive(Default)]
struct Object {
    name: Option<String>,
    scale: Option<f32>,
}

impl Object {
    fn put(&mut self, part: &str, text: String) -> Answer<()> {
        let is_new = match part {
            "name" => self.name.replace(text).is_none(),
            "scale" => self.scale.replace(scale(&text)?).is_none(),
            "path" => {
                return Err(wrong(
                    "no path of a client is opened; give the name of one of /v1/loras",
                ));
            }
            _ => return Err(wrong("it has a name and a scale, and nothing else")),
        };
        match is_new {
            true => Ok(()),
            false => Err(wrong("it has two names or two scales; give one, or a list")),
        }
    }

    fn finish(self) -> Answer<LoraAsk> {
        let name = self.name.ok_or_else(|| wrong("it has no name"))?;
        Ok(LoraAsk { name, scale: self.scale.unwrap_or(1.0) })
    }
}

/// A scale is kept as an f32, and one that is none there could not be kept.
fn scale(text: &str) -> Answer<f32> {
    let scale: Option<f32> = text.trim().parse().ok();
    scale.filter(|scale| scale.is_finite()).ok_or_else(no_number)
}

fn no_number() -> Refusal {
    wrong("its scale is no finite number; give one like 0.8")
}

fn wrong(reason: &str) -> Refusal {
    Refusal::field("lora", format!("lora: {reason}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::loras;
    use crate::fields::Fields;
    use crate::form::{Form, Value};

    fn read(all: &[(&str, &str)]) -> Option<Vec<(String, f32)>> {
        let own =
            |(name, text): &(&str, &str)| ((*name).to_owned(), Value::Text((*text).to_owned()));
        let mut fields = Fields::new(
            Form { fields: all.iter().map(own).collect(), held: Vec::new() },
            Path::new("."),
        );
        let found = loras(&mut fields).ok()?;
        Some(found.into_iter().map(|own| (own.name, own.scale)).collect())
    }

    fn named(all: &[(&str, f32)]) -> Option<Vec<(String, f32)>> {
        Some(all.iter().map(|(name, scale)| ((*name).to_owned(), *scale)).collect())
    }

    #[test]
    fn a_scale_is_that_of_its_own_name() {
        for (fields, want) in [
            (&[("lora", "a")][..], named(&[("a", 1.0)])),
            (&[("lora", "{\"name\": \"a\", \"scale\": 2}")], named(&[("a", 2.0)])),
            (&[("lora[name]", "a"), ("lora[scale]", "2")], named(&[("a", 2.0)])),
            (&[("lora[scale]", "2"), ("lora[name]", "a")], named(&[("a", 2.0)])),
            (&[("lora[]", "a"), ("lora[]", "b")], named(&[("a", 1.0), ("b", 1.0)])),
            (&[("lora[][name]", "a"), ("lora[][name]", "b")], named(&[("a", 1.0), ("b", 1.0)])),
            (
                &[
                    ("lora[][scale]", "2"),
                    ("lora[][name]", "a"),
                    ("lora[][name]", "b"),
                    ("lora[][scale]", "3"),
                ],
                named(&[("a", 2.0), ("b", 3.0)]),
            ),
            // Whose scale is it?
            (&[("lora[][name]", "a"), ("lora[][scale]", "2"), ("lora[][name]", "b")], None),
            (&[("lora[][name]", "a"), ("lora[][name]", "b"), ("lora[][scale]", "2")], None),
            (
                &[("lora[0][name]", "a"), ("lora[1][scale]", "2"), ("lora[1][name]", "b")],
                named(&[("a", 1.0), ("b", 2.0)]),
            ),
            (&[("lora[scale]", "2")], None),
            (&[("lora[name]", "a"), ("lora[name]", "b")], None),
        ] {
            assert_eq!(read(fields), want, "{fields:?}");
        }
    }

    #[test]
    fn a_scale_can_be_kept() {
        for scale in ["1e300", "-1e39", "NaN", "inf", "\"1\"", "", "1e40", "true"] {
            let text = format!("{{\"name\": \"a\", \"scale\": {scale}}}");
            assert_eq!(read(&[("lora", &text)]), None, "{text}");
            assert_eq!(read(&[("lora[name]", "a"), ("lora[scale]", scale)]), None, "{scale}");
        }
    }
}
