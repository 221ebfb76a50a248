//! *How* something is learnt: which networks there are, what each is taught, and when.

use std::collections::BTreeMap;

use crate::batch::Batch;
use crate::draws::Draws;
use crate::error::{Error, Result};
use crate::role::Trained;

/// The role of the network that is wanted in the end, where there is one.
pub const STUDENT: &str = "student";

/// An algorithm over roles, which are fields of its type.
pub trait Method {
    /// What it is called in recipes and messages.
    fn name(&self) -> &'static str;

    /// Adds the gradients of one micro-batch to the roles; touches no optimizer.
    ///
    /// # Errors
    /// The batch does not fit the strategy or a network.
    fn accumulate(&mut self, batch: &Batch, pass: &Pass) -> Result<MethodReport>;

    /// The roles that are updated at this iteration, which counts from 1. It must not depend on data.
    fn updates(&self, iteration: u64) -> Vec<&'static str>;

    /// The roles whose gradients are clipped at this iteration.
    fn clipped(&self, _iteration: u64) -> Vec<&'static str> {
        vec![STUDENT]
    }

    /// What whoever uses the student must know, for the metadata of its file.
    fn metadata(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    /// All roles that learn, always in the same order.
    fn trained(&self) -> Vec<&Trained>;

    /// The same, to be changed.
    fn trained_mut(&mut self) -> Vec<&mut Trained>;

    /// A role that learns.
    ///
    /// # Errors
    /// There is no such role.
    fn role(&self, name: &str) -> Result<&Trained> {
        let known = || self.trained().iter().map(|role| role.name().to_owned()).collect();
        let found = self.trained().into_iter().find(|role| role.name() == name);
        found.ok_or_else(|| Error::NoRole { role: name.to_owned(), known: known() })
    }
}

/// What a method is given along with a micro-batch.
pub struct Pass {
    /// The iteration, from 1.
    pub iteration: u64,
    /// The random numbers of these samples.
    pub draws: Draws,
    /// The share of the step's samples that this micro-batch holds.
    pub share: f64,
    /// Whether it is the last of the step: gradients may be added up over ranks as they are found.
    pub is_last: bool,
}

/// What a method says about a micro-batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MethodReport {
    /// Losses.
    pub losses: Vec<LossReport>,
    /// Tokens that went through a backward pass.
    pub tokens: u64,
}

/// One loss of every sample.
#[derive(Clone, Debug, PartialEq)]
pub struct LossReport {
    /// The role that learns from it.
    pub role: &'static str,
    /// What it is called: unique within a method.
    pub name: &'static str,
    /// Sample by sample.
    pub values: Vec<f32>,
    /// The noise level of each sample, where the loss is of one track: losses are shown by level.
    pub sigmas: Option<Vec<f32>>,
}
