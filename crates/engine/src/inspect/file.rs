//! What a single safetensors file is, read off the names and shapes of its tensors.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use safetensors::SafeTensors;

use super::Fact;

/// Kinds of layers of a LoRA that are listed.
const MODULES: usize = 12;

/// What a file is, and what there is to say of it.
pub(super) fn about(
    path: &Path,
    file: &SafeTensors<'_>,
    metadata: &BTreeMap<String, String>,
) -> (String, Vec<Fact>) {
    let found = lora(path, file, metadata)
        .or_else(|| shard(file))
        .or_else(|| vae(file))
        .or_else(|| exported(metadata));
    found.unwrap_or_else(|| ("safetensors file".to_owned(), Vec::new()))
}

fn fact(name: &str, value: impl ToString) -> Fact {
    (name.to_owned(), value.to_string())
}

/// Numbers in a list.
fn listed(numbers: impl IntoIterator<Item = impl ToString>) -> String {
    numbers.into_iter().map(|own| own.to_string()).collect::<Vec<_>>().join(", ")
}

fn lora(
    path: &Path,
    file: &SafeTensors<'_>,
    metadata: &BTreeMap<String, String>,
) -> Option<(String, Vec<Fact>)> {
    let own = folder::lora::summary(path, file)?;
    let alphas = match own.alphas.is_empty() {
        true => "the rank, as nobody says another".to_owned(),
        false => listed(&own.alphas),
    };
    let mut facts = vec![
        fact("rank", listed(&own.ranks)),
        fact("alpha", alphas),
        fact("names", own.dialect),
        fact("layers", own.layers),
    ];
    if let Some(family) = families::foreign_lora(&own.first_key) {
        facts.push(fact("looks like one for", family));
    }
    let base =
        ["base_model", "ss_base_model_version", "ss_sd_model_name", "modelspec.architecture"];
    if let Some(base) = base.iter().find_map(|key| metadata.get(*key)) {
        facts.push(fact("base model", base));
    }
    let hidden = own.modules.len().saturating_sub(MODULES);
    facts.extend(
        own.modules
            .iter()
            .take(MODULES)
            .map(|(module, count)| fact("changes", format!("{module} ({count})"))),
    );
    if hidden > 0 {
        facts.push(fact("changes", format!("and {hidden} kinds of layers more")));
    }
    Some(("LoRA".to_owned(), facts))
}

/// A shard of a dataset: tensors by the place of their sample.
fn shard(file: &SafeTensors<'_>) -> Option<(String, Vec<Fact>)> {
    let names = file.names();
    let parts: Option<Vec<(usize, &str)>> = names
        .iter()
        .map(|name| {
            let (place, key) = name.split_once('.')?;
            let is_place = place.len() == 5 && place.bytes().all(|digit| digit.is_ascii_digit());
            Some((place.parse().ok().filter(|_| is_place)?, key))
        })
        .collect();
    let parts = parts.filter(|parts| !parts.is_empty())?;
    let samples: BTreeSet<usize> = parts.iter().map(|(place, _)| *place).collect();
    let keys: BTreeSet<&str> = parts.iter().map(|(_, key)| *key).collect();
    let facts = vec![fact("samples", samples.len()), fact("keys", listed(keys))];
    Some(("shard of a dataset".to_owned(), facts))
}

/// A VAE, by the ends of its decoder.
fn vae(file: &SafeTensors<'_>) -> Option<(String, Vec<Fact>)> {
    let ends = [
        ("decoder.conv_in.weight", "decoder.conv_out.weight"),
        ("decoder.conv1.weight", "decoder.head.2.weight"),
    ];
    let (first, last) = ends
        .iter()
        .find_map(|(first, last)| Some((file.tensor(first).ok()?, file.tensor(last).ok()?)))?;
    let made = match first.shape().len() {
        5 => "clips",
        _ => "pictures",
    };
    let both = file.names().iter().any(|name| name.starts_with("encoder."));
    let facts = vec![
        fact("decodes", format!("{made} from {} channels", first.shape().get(1)?)),
        fact("widest at its end", format!("{} channels", last.shape().get(1)?)),
        fact("encoder", if both { "is there" } else { "is missing" }),
    ];
    Some(("VAE".to_owned(), facts))
}

/// What `moviola export` wrote.
fn exported(metadata: &BTreeMap<String, String>) -> Option<(String, Vec<Fact>)> {
    let family = metadata.get("family").filter(|_| metadata.contains_key("made_by"))?;
    let keys = ["base_model", "role", "method", "strategy", "step", "made_by"];
    let own = keys.iter().filter_map(|key| Some(fact(&key.replace('_', " "), metadata.get(*key)?)));
    let facts = std::iter::once(fact("family", family)).chain(own);
    Some(("transformer".to_owned(), facts.collect()))
}
