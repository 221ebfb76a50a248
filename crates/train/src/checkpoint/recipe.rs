//! The recipe of a run, inside its checkpoints.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A resolved recipe as JSON, whatever it was written in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recipe(pub Value);

/// Characters of a value that are told.
const LONGEST_TOLD: usize = 60;

impl Recipe {
    /// The value of a key by its dotted name, in few words.
    pub fn told(&self, key: &str) -> String {
        let below = |value: &Value, part: &str| match part.parse::<usize>() {
            Ok(index) if value.is_array() => value.get(index).cloned(),
            _ => value.get(part).cloned(),
        };
        let value = key.split('.').try_fold(self.0.clone(), |value, part| below(&value, part));
        let text = value.filter(|value| !value.is_null()).map(|value| value.to_string());
        let text = text.unwrap_or_else(|| "nothing".to_owned());
        match text.chars().count() > LONGEST_TOLD {
            true => text.chars().take(LONGEST_TOLD).chain(['\u{2026}']).collect(),
            false => text,
        }
    }

    /// The keys in which two recipes differ, apart from those that begin with one of `free`: what may
    /// change between the parts of one run, like the number of steps.
    pub fn differs(&self, other: &Recipe, free: &[&str]) -> Vec<String> {
        let is_free = |key: &str| {
            let below = |free: &&str| {
                key.strip_prefix(*free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            free.iter().any(below)
        };
        differences(&self.0, &other.0).into_iter().filter(|key| !is_free(key)).collect()
    }
}

/// The dotted names of all values in which two documents differ.
pub fn differences(left: &Value, right: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare(String::new(), left, right, &mut found);
    found
}

fn compare(place: String, left: &Value, right: &Value, found: &mut Vec<String>) {
    let below = |key: &str| match place.is_empty() {
        true => key.to_owned(),
        false => format!("{place}.{key}"),
    };
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let mut keys: Vec<&String> = left.keys().chain(right.keys()).collect();
            keys.sort_unstable();
            keys.dedup();
            for key in keys {
                let [left, right] = [left, right].map(|map| map.get(key).unwrap_or(&Value::Null));
                compare(below(key), left, right, found);
            }
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (index, (left, right)) in left.iter().zip(right).enumerate() {
                compare(below(&index.to_string()), left, right, found);
            }
        }
        _ if left == right => {}
        _ => found.push(place),
    }
}

#[cfg(test)]
mod tests {
    use super::Recipe;
    use serde_json::json;

    #[test]
    fn differing_keys_are_named_by_their_place() {
        let old = Recipe(json!({ "loop": { "steps": 10, "seed": 1 }, "models": [{ "width": 4 }] }));
        let new = Recipe(
            json!({ "loop": { "steps": 20, "seed": 2 }, "models": [{ "width": 8 }], "data": "x" }),
        );
        assert_eq!(old.differs(&new, &["loop.steps"]), ["data", "loop.seed", "models.0.width"]);
        assert_eq!(old.differs(&new, &["loop", "data"]), ["models.0.width"]);
        assert!(old.differs(&old, &[]).is_empty());
        // A prefix is whole parts of a name.
        assert_eq!(old.differs(&new, &["lo", "models", "dat"]).len(), 3);
    }
}
