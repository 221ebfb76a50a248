//! From a YAML file and overrides to a checked recipe.

use std::path::Path;

use serde_json::Value;

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
        Recipe::checked(Node::read(path)?, overrides)
    }

    /// The same for the text of a file that is called `name`.
    ///
    /// # Errors
    /// As [`Recipe::read`].
    pub fn parse(text: &str, name: &Path, overrides: &[String]) -> Result<Recipe> {
        Recipe::checked(Node::parse(text, name)?, overrides)
    }

    fn checked(mut document: Node, overrides: &[String]) -> Result<Recipe> {
        for argument in overrides {
            document.set(argument)?;
        }
        let mut complaints = match check(&document, &Recipe::schema()) {
            Ok(()) => Vec::new(),
            Err(Error::Several(all)) => all,
            Err(one) => vec![one],
        };
        let recipe: Recipe = match serde_json::from_value(document.value()) {
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
        for complaint in recipe.agree().err().into_iter().chain(keys.map(place)) {
            // What the schema says of a value is not said again.
            let is_new = |own: &Error| match (own, &complaint) {
                (Error::At { location: own, .. }, Error::At { location, .. }) => own != location,
                _ => true,
            };
            if complaints.iter().all(is_new) {
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
