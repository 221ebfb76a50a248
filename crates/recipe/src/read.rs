//! From a YAML file and overrides to a checked recipe.

use std::collections::HashMap;
use std::path::Path;

use folder::Hub;
use serde_json::{Number, Value};

use crate::check::check;
use crate::document::Node;
use crate::error::{Error, Result};
use crate::idle::Idle;
use crate::schema::Recipe;

impl Recipe {
    /// Reads a file, applies overrides of the form `a.b=value` and checks every key and type.
    ///
    /// # Errors
    /// It cannot be read, is not YAML, or something in it is unknown, missing or of another type.
    pub fn read(path: &Path, overrides: &[String]) -> Result<Recipe> {
        Recipe::checked(Node::read(path)?, overrides, None)
    }

    /// The same, which also asks a student that is called by its hub id, if the cache of `hub` holds it.
    ///
    /// # Errors
    /// As [`Recipe::read`].
    pub fn read_beside(path: &Path, overrides: &[String], hub: &Hub) -> Result<Recipe> {
        let cached = Hub { offline: true, ..hub.clone() };
        Recipe::checked(Node::read(path)?, overrides, Some(&cached))
    }

    /// The same for the text of a file that is called `name`.
    ///
    /// # Errors
    /// As [`Recipe::read`].
    pub fn parse(text: &str, name: &Path, overrides: &[String]) -> Result<Recipe> {
        Recipe::checked(Node::parse(text, name)?, overrides, None)
    }

    fn checked(mut document: Node, overrides: &[String], hub: Option<&Hub>) -> Result<Recipe> {
        for argument in overrides {
            document.set(argument)?;
        }
        let mut complaints = match check(&document, &Recipe::schema()) {
            Ok(()) => Vec::new(),
            Err(Error::Several(all)) => all,
            Err(one) => vec![one],
        };
        let below = counts_below_zero(&complaints);
        let value = document.value_with(&|number, place| {
            let is_below = number.as_i64().is_some_and(|own| own < 0);
            let instead = || below.get(&(place.to_string(), number.to_string()));
            is_below.then(instead).flatten().map_or(number.clone(), |own| Number::from(*own))
        });
        let recipe: Recipe = match serde_json::from_value(value) {
            Ok(recipe) => recipe,
            Err(err) => {
                Error::unless_none(complaints)?;
                return Err(Error::Recipe(format!("the recipe cannot be read: {err}")));
            }
        };
        let place = |Idle { key, reason }: Idle| Error::At {
            location: document.place_of(&key).clone(),
            reason,
        };
        let keys = recipe.beyond().into_iter().chain(recipe.wrong_values()).chain(recipe.idle());
        let keys = keys.chain(recipe.size_of_looks(hub));
        for complaint in recipe.agree().err().into_iter().chain(keys.map(place)) {
            // What the schema says of a value is not said again.
            if !complaints.iter().any(|own| says_already(own, &complaint)) {
                complaints.push(complaint);
            }
        }
        Error::unless_none(complaints)?;
        Ok(recipe)
    }

    /// The JSON schema of recipes, for editors.
    pub fn schema() -> Value {
        schemars::schema_for!(Recipe).to_value()
    }

    /// The recipe with every default filled in, as JSON.
    ///
    /// # Errors
    /// A number in it is not finite.
    pub fn resolved(&self) -> Result<Value> {
        serde_json::to_value(self)
            .map_err(|err| Error::Recipe(format!("the recipe cannot be written: {err}")))
    }

    /// The same as YAML.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self)
            .map_err(|err| Error::Recipe(format!("the recipe cannot be written: {err}")))
    }
}

/// The counts below zero of which there is a complaint, by place and number (all values of one override have one place),
/// with what the rest can be looked at with: the least, or many of what there must be some of.
fn counts_below_zero(complaints: &[Error]) -> HashMap<(String, String), u32> {
    let below = complaints.iter().filter_map(|own| {
        let Error::At { location, reason } = own else { return None };
        let (said, least) = reason.rsplit_once(", but it is at least ")?;
        let (_, number) = said.rsplit_once(" is ").filter(|(_, number)| number.starts_with('-'))?;
        let instead = if least == "0" { 0 } else { MANY };
        Some(((location.to_string(), number.to_owned()), instead))
    });
    below.collect()
}

/// Whether one complaint is about the key of the other, or about a part of it that stands in the same place. Two keys
/// of one override are two things.
fn says_already(one: &Error, other: &Error) -> bool {
    let (
        Error::At { location: place, reason: said },
        Error::At { location: other_place, reason: other },
    ) = (one, other)
    else {
        return false;
    };
    // Either between backticks or before the first colon.
    let [own, other] = [said, other].map(|reason| match reason.split('`').nth(1) {
        Some(key) => key,
        None => reason.split(": ").next().unwrap_or_default(),
    });
    own == other || (place == other_place && own.starts_with(&format!("{other}.")))
}

/// More steps than any warm-up has, and no more samples than a batch may have.
const MANY: u32 = 60_000;
