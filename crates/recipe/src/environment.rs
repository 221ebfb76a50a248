//! What is around a run: where it computes and with whom, and who looks on.

use std::path::Path;

use burn::tensor::Device;
use folder::Hub;
use nn::Context;
use train::{Callback, Ranks};

use crate::validation::{Recorder, Watched};

/// What building a run needs beside its recipe.
pub struct Environment<'a> {
    /// The folder of the run, if it leaves anything behind.
    pub folder: Option<&'a Path>,
    /// Where to compute.
    pub device: Device,
    /// The ranks of the run. All of them build it alike; the first one looks at the student and keeps checkpoints.
    pub ranks: Ranks,
    /// Where models that the recipe calls by hub id come from.
    pub hub: &'a Hub,
    /// The negative prompt `[1, L, D]`, as [`crate::Recipe::negative`] encodes it.
    pub negative: Option<Context>,
    /// Who looks on beside the recipe's own callbacks.
    pub callbacks: Vec<Box<dyn Callback>>,
    /// Who keeps the numbers of validation.
    pub record: Recorder,
    /// Who sees how far a look of validation is, and ends it when the run is to end.
    pub watched: Watched,
}
