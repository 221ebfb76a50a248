//! Which encoders these are, so that a dataset is never read or continued with others.

use std::path::PathBuf;

use data::store::Fingerprint;
use families::{Sound, TextRules};
use folder::ModelFolder;

use crate::error::Result;
use crate::sketch::hash_files;
use crate::text::names;

/// The files of a tokenizer that decide about ids.
const TOKENIZER: [&str; 3] = ["tokenizer_config.json", "tokenizer.json", "spiece.model"];

/// The fingerprint of a folder's encoders. Where the folder is does not matter; what its configs,
/// tokenizer and weights say does, and so do the rules for captions.
///
/// Of large weight files the length, the header and some blocks are hashed: another model or another
/// training of it differs in all of them, and reading them all would take minutes.
///
/// # Errors
/// A file cannot be read.
pub(super) fn of(
    folder: &ModelFolder,
    rules: TextRules,
    sees_pictures: bool,
    sound: Option<&Sound>,
) -> Result<Fingerprint> {
    let [encoder, tokenizer] = names(0);
    let class = |component: &str| folder.class_of(component).unwrap_or("unknown").to_owned();

    let video = hash_files(&network(folder, "vae")?)?;
    let video = format!("{} {video}", class("vae"));

    let mut files = network(folder, &encoder)?;
    if folder.has("connectors") {
        files.extend(network(folder, "connectors")?);
    }
    let tokenizer = folder.component(&tokenizer)?;
    files.extend(TOKENIZER.map(|file| tokenizer.join(file)).into_iter().filter(|it| it.is_file()));
    let TextRules { preparation, max_tokens, padding } = rules;
    let rules = format!("{preparation:?}, {padding:?}, {max_tokens} tokens").to_lowercase();
    let text = format!("{} {}, {rules}", class(&encoder), hash_files(&files)?);
    let mut all = Fingerprint::new([("video", video), ("text", text)]);
    if sees_pictures {
        let mut files = network(folder, "image_encoder")?;
        files.push(folder.component("image_processor")?.join("preprocessor_config.json"));
        let image = format!("{} {}", class("image_encoder"), hash_files(&files)?);
        all.0.insert("image".to_owned(), image);
    }
    if let Some([vae, _]) = sound.and_then(|own| own.components) {
        let audio = format!("{} {}", class(vae), hash_files(&network(folder, vae)?)?);
        all.0.insert("audio".to_owned(), audio);
    }
    Ok(all)
}

/// The config and the weights of a component.
fn network(folder: &ModelFolder, component: &str) -> Result<Vec<PathBuf>> {
    let mut files = vec![folder.component(component)?.join("config.json")];
    files.extend(folder.weights(component)?);
    Ok(files)
}
