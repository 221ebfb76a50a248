//! A network that begins anew, of any family of the table that is small enough.

use families::{FAMILIES, Family, NewModel, Scratch, family};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::error::Result;

/// A family and its config with every default filled in.
#[derive(Clone, Debug)]
pub struct NewConfig {
    family: &'static Family,
    config: Value,
}

impl PartialEq for NewConfig {
    fn eq(&self, other: &NewConfig) -> bool {
        self.family.name == other.family.name && self.config == other.config
    }
}

impl NewConfig {
    /// Describes the model, and says which of its layers begin at zero.
    ///
    /// # Errors
    /// The family has become too large to begin anew, which a config that was read has not.
    pub(crate) fn make(&self) -> Result<(NewModel, &'static [&'static str])> {
        let scratch =
            scratch(self.family).expect("the config was read for a family that begins anew");
        Ok(((scratch.make)(self.family, &self.config)?, scratch.zero))
    }
}

fn scratch(family: &'static Family) -> Option<&'static Scratch> {
    family.scratch.as_ref()
}

/// Families that can begin anew.
fn beginners() -> impl Iterator<Item = (&'static Family, &'static Scratch)> {
    FAMILIES.into_iter().filter_map(|family| Some((family, scratch(family)?)))
}

impl Serialize for NewConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = Map::from_iter([("family".to_owned(), Value::from(self.family.name))]);
        map.extend(self.config.as_object().cloned().unwrap_or_default());
        map.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for NewConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NewConfig, D::Error> {
        let mut map = Map::deserialize(deserializer)?;
        let name = map.remove("family").unwrap_or_default();
        let known = || beginners().map(|(family, _)| family.name).collect::<Vec<_>>().join(", ");
        let unknown =
            || D::Error::custom(format!("`family` is {name}, but it is one of {}", known()));
        let family = name.as_str().and_then(family).ok_or_else(unknown)?;
        let scratch = scratch(family).ok_or_else(unknown)?;
        let made = (scratch.make)(family, &Value::Object(map)).map_err(D::Error::custom)?;
        Ok(NewConfig { family, config: made.config })
    }
}

impl JsonSchema for NewConfig {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let options: Vec<Value> = beginners()
            .map(|(family, scratch)| {
                let tag = json_schema!({
                    "type": "object",
                    "properties": { "family": { "type": "string", "const": family.name } },
                    "required": ["family"],
                });
                let own = (scratch.schema)(generator);
                json_schema!({ "allOf": [tag, own] }).to_value()
            })
            .collect();
        json_schema!({
            "description": "A network that begins anew, of a family that is small enough.",
            "oneOf": options,
        })
    }
}
