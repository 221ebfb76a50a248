//! Negative prompts for training: embedded once, exactly as inference embeds them, by an encoder that
//! is gone afterwards.
//!
//! Every rank does this for itself. Nothing here waits for another rank, so no rank can be left
//! waiting for one that does not take part.

use std::path::Path;

use burn::tensor::{Device, FloatDType};

use folder::ModelFolder;

use super::{PromptEmbedding, TextEncoder, names};
use crate::error::{Error, Result};

/// Which encoder embeds a prompt, and what the embedding is to be.
#[derive(Clone, Debug)]
pub struct PromptSetup {
    /// 0 is `text_encoder` with `tokenizer`, 1 is `text_encoder_2` with `tokenizer_2`, and so on.
    pub encoder_index: usize,
    /// Where to compute, and where the embedding is.
    pub device: Device,
    /// The type of the embedding and its mask. The encoder computes in its own.
    pub dtype: FloatDType,
}

/// Embeds a prompt with an encoder of a model folder: its tokenizer's settings, what is done to the
/// caption before and to the embedding after, and the mask are those of inference. The encoder is
/// opened for this call and freed when it returns.
///
/// # Errors
/// The folder has no such encoder or no `model_index.json` (the error lists the encoders there are),
/// or the encoder is damaged or unsupported.
pub fn encode_negative_prompt(
    model: &Path,
    prompt: &str,
    setup: &PromptSetup,
) -> Result<PromptEmbedding> {
    let folder = open(model, setup.encoder_index)?;
    let mut encoder = TextEncoder::open(&folder, setup.encoder_index)?;
    let rules = encoder.rules();
    Ok(encoder.embed(prompt, &rules, &setup.device)?.cast(setup.dtype))
}

/// Opens a folder that must have the encoder of this index.
fn open(model: &Path, index: usize) -> Result<ModelFolder> {
    let refused = |reason: String, folder: Option<&ModelFolder>| {
        let encoders = existing(model, folder);
        let encoders = if encoders.is_empty() { "none".to_owned() } else { encoders.join(", ") };
        Error::NoEncoder { path: model.to_owned(), index, reason, encoders }
    };
    let folder = match ModelFolder::open(model) {
        Err(folder::Error::NoModelIndex(_)) => {
            return Err(refused("it has no model_index.json".to_owned(), None));
        }
        folder => folder?,
    };
    for name in names(index) {
        if !folder.has(&name) {
            let reason = format!("its model_index.json lists no `{name}`");
            return Err(refused(reason, Some(&folder)));
        }
        if !model.join(&name).is_dir() {
            return Err(refused(format!("its folder `{name}` is missing"), Some(&folder)));
        }
    }
    Ok(folder)
}

/// The encoders of a folder whose parts are there and, if it has an index, listed in it.
fn existing(model: &Path, folder: Option<&ModelFolder>) -> Vec<String> {
    let Ok(entries) = model.read_dir() else { return Vec::new() };
    // No folder has more encoders than entries.
    let indices = 0..entries.count();
    let is_there = |index: &usize| {
        names(*index)
            .iter()
            .all(|name| model.join(name).is_dir() && folder.is_none_or(|folder| folder.has(name)))
    };
    let described = |index: usize| format!("{index} (`{}`)", names(index)[0]);
    indices.filter(is_there).map(described).collect()
}
