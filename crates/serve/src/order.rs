//! A run as it is handed to whoever makes it, and to those who make it together.

use std::path::Path;

use engine::{Plan, Request};
use serde::{Deserialize, Serialize};

use crate::ask::Ask;
use crate::error::Refusal;
use crate::model::Loras;

/// A run of jobs that are alike.
pub struct Run<'a> {
    /// What the model is asked for.
    pub request: &'a Request,
    /// What that comes to.
    pub plan: &'a Plan,
    /// What each client asked for, and where its files are.
    pub(crate) asks: Vec<(&'a Ask, &'a Path)>,
    pub(crate) loras: &'a Loras,
}

/// A run as another process is told of it, which has the same models and LoRAs and none of the jobs: a text, and the
/// bytes of all files that are given.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// What is asked for.
    pub text: String,
    /// What is given, in the order in which it is named there.
    pub files: Vec<Vec<u8>>,
}

/// The text of an [`Order`].
#[derive(Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) asks: Vec<Ask>,
    /// Which files the LoRAs of the first are; the others have the same.
    pub(crate) loras: Vec<String>,
}

impl Run<'_> {
    /// What another process needs to make this run.
    ///
    /// # Errors
    /// A file cannot be read any more.
    pub fn order(&self) -> engine::Result<Order> {
        let unread = |refusal: Refusal| engine::Error::Unknown(refusal.message().to_owned());
        let loras = match self.asks.first() {
            Some((ask, _)) => self.loras.fingerprints(&ask.loras).map_err(unread)?,
            None => Vec::new(),
        };
        let asks = self.asks.iter().map(|(ask, _)| (*ask).clone()).collect();
        let told = serde_json::to_string(&Told { asks, loras });
        let text = told.map_err(|error| engine::Error::Unknown(error.to_string()))?;
        let mut files = Vec::new();
        for (ask, folder) in &self.asks {
            for own in &ask.given {
                let path = folder.join(&own.file);
                let bytes = kernels::read_file(&path, u64::MAX);
                files.push(bytes.map_err(|source| engine::Error::File {
                    verb: "read",
                    path,
                    source,
                })?);
            }
        }
        Ok(Order { text, files })
    }
}
