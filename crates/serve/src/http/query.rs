//! Parameters of a URL.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::extract::Query;
use nn::most_similar;

use crate::error::{Answer, Refusal};

/// Named parameters, each of which is known.
#[derive(Debug, Default)]
pub(crate) struct Parameters(BTreeMap<String, String>);

impl Parameters {
    /// Those of a URL.
    ///
    /// # Errors
    /// One is not among `known`.
    pub(crate) fn of(
        query: Result<Query<BTreeMap<String, String>>, axum::extract::rejection::QueryRejection>,
        known: &[&str],
    ) -> Answer<Parameters> {
        let Query(all) = query.map_err(|error| Refusal::body(error.body_text()))?;
        if let Some(name) = all.keys().find(|name| !known.contains(&name.as_str())) {
            let near = most_similar(name, known.iter().copied());
            let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            return Err(Refusal::unknown_field(
                name,
                format!("{name}: there is no such parameter here{near}"),
            ));
        }
        Ok(Parameters(all))
    }

    /// A text.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A value of another kind.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn parsed<T: FromStr>(&self, name: &str, what: &str) -> Answer<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let refuse = || {
            let shown: String = text.chars().take(40).collect();
            Refusal::field(name, format!("{name}: it is `{shown}`; give {what}"))
        };
        text.parse().map(Some).map_err(|_| refuse())
    }
}

/// The query of a URL, as handlers take it.
pub(crate) type Asked =
    Result<Query<BTreeMap<String, String>>, axum::extract::rejection::QueryRejection>;
