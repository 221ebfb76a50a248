//! What only the whole system knows: runs, checkpoints and datasets.

use std::path::Path;

use data::store::{Bucket, Dataset};
use engine::{Fact, Inspection};
use recipe::{LearnsConfig, Recipe};
use train::checkpoint;
use train::checkpoint::Manifest;

use crate::failure::Outcome;

/// Tells what a path holds.
///
/// # Errors
/// There is nothing, it is nothing known, or it is damaged.
pub(crate) fn inspect(path: &Path) -> Outcome<Inspection> {
    if path.join("manifest.json").is_file() && path.join("state.safetensors").is_file() {
        return of_checkpoint(path);
    }
    if path.join("checkpoints").is_dir() {
        return of_run(path);
    }
    if path.join("dataset.json").is_file() {
        return of_dataset(path);
    }
    // What is a part of something is told as the whole, of which alone there is something to say.
    let whole = path.parent().filter(|_| path.exists());
    if let Some(whole) = whole.filter(|whole| whole.join("manifest.json").is_file())
        && path.file_name().is_some_and(|name| name == "state.safetensors")
    {
        return of_checkpoint(whole);
    }
    if let Some(whole) = whole.filter(|_| path.is_dir() && path.ends_with("checkpoints")) {
        return of_run(whole);
    }
    if path
        .extension()
        .is_some_and(|own| own.eq_ignore_ascii_case("yaml") || own.eq_ignore_ascii_case("yml"))
    {
        return of_recipe(path);
    }
    match folder::lora::file(path) {
        Ok(file) if path.is_dir() => Ok(engine::inspect(&file)?),
        _ => Ok(engine::inspect(path)?),
    }
}

fn of_recipe(path: &Path) -> Outcome<Inspection> {
    let recipe = Recipe::read(path, &[])?;
    let (title, about) = ("recipe".to_owned(), recipe_facts(&recipe));
    Ok(Inspection { title, about, ..Inspection::default() })
}

fn fact(name: &str, value: impl ToString) -> Fact {
    (name.to_owned(), value.to_string())
}

/// What a recipe is about.
fn recipe_facts(recipe: &Recipe) -> Vec<Fact> {
    let student = &recipe.models.student;
    let learns = match &student.learns {
        LearnsConfig::All => "all of it".to_owned(),
        LearnsConfig::Only { patterns } => patterns.join(", "),
        LearnsConfig::Lora(lora) => format!("a LoRA of rank {}", lora.rank),
    };
    let base = student.from.clone().unwrap_or_else(|| "nothing: it is new".to_owned());
    vec![
        fact("method", recipe.method.name()),
        fact("strategy", recipe.strategy.name()),
        fact("base model", base),
        fact("what learns", learns),
        fact("steps in all", recipe.run.steps),
    ]
}

fn of_checkpoint(path: &Path) -> Outcome<Inspection> {
    let manifest = checkpoint::read_manifest(path)?;
    let state = state_of(path, &manifest)?;
    let mut about = vec![fact("step", manifest.step)];
    if let Ok(recipe) = serde_json::from_value::<Recipe>(manifest.recipe.0) {
        about.extend(recipe_facts(&recipe));
    }
    about.extend(manifest.origins.iter().map(|(what, hash)| {
        fact(what, format!("hash {}", hash.chars().take(12).collect::<String>()))
    }));
    about.extend(manifest.facts.iter().map(|(key, value)| fact(key, value)));
    let title = "checkpoint of a run".to_owned();
    Ok(Inspection {
        title,
        about,
        components: state.components,
        tensors: state.tensors,
        ..Inspection::default()
    })
}

/// What the files of a checkpoint hold together.
fn state_of(path: &Path, manifest: &Manifest) -> Outcome<Inspection> {
    let mut all = Inspection::default();
    for file in checkpoint::files(path, manifest) {
        let part = engine::inspect(&file)?;
        all.components.extend(part.components);
        all.tensors.extend(part.tensors);
    }
    all.tensors.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

fn of_run(path: &Path) -> Outcome<Inspection> {
    let checkpoints = checkpoint::list(&path.join("checkpoints"))?;
    let mut about = Vec::new();
    let recipe = path.join(crate::session::RECIPE);
    if recipe.is_file() {
        about.extend(recipe_facts(&Recipe::read(&recipe, &[])?));
    }
    let steps: Vec<String> = checkpoints.iter().map(|(step, _)| step.to_string()).collect();
    let steps = if steps.is_empty() { "none".to_owned() } else { steps.join(", ") };
    about.push(fact("checkpoints after step", steps));
    let looks = recipe::looks(path, u64::MAX)?;
    if let Some((step, clips)) = looks.last() {
        about.push(fact("last validation", format!("after step {step}, {} clips", clips.len())));
    }
    about.extend(crate::changes::told(path)?.into_iter().map(|line| fact("changed", line)));
    if path.join(crate::report::FILE).is_file() {
        about.push(fact("page", path.join(crate::report::FILE).display()));
    }
    let newest = checkpoints.last().map(|(_, newest)| {
        let manifest = checkpoint::read_manifest(newest)?;
        state_of(newest, &manifest)
    });
    let (components, tensors) = match newest {
        Some(Ok(state)) => (state.components, state.tensors),
        _ => Default::default(),
    };
    let title = "training run".to_owned();
    Ok(Inspection { title, about, components, tensors, ..Inspection::default() })
}

fn of_dataset(path: &Path) -> Outcome<Inspection> {
    let dataset = Dataset::open(path)?;
    let mut about = vec![fact("samples", dataset.len())];
    let mut buckets: std::collections::BTreeMap<Bucket, usize> = Default::default();
    let mut rates: std::collections::BTreeMap<String, usize> = Default::default();
    for at in 0..dataset.len() {
        let origin = dataset.origin(at);
        *buckets.entry(origin.bucket).or_default() += 1;
        *rates.entry(origin.fps.to_string()).or_default() += 1;
    }
    about.extend(
        buckets.iter().map(|(bucket, count)| fact("bucket", format!("{bucket} ({count})"))),
    );
    about.extend(
        rates.iter().map(|(rate, count)| fact("frames a second", format!("{rate} ({count})"))),
    );
    if !dataset.is_empty() {
        let shapes = dataset.shapes(0).map(|(key, shape)| format!("{key} {shape:?}"));
        about.push(fact("the first sample holds", shapes.collect::<Vec<_>>().join(", ")));
        about.push(fact("its caption", &dataset.origin(0).caption));
    }
    about.extend(
        dataset.encoders().0.iter().map(|(role, text)| fact(&format!("{role} encoder"), text)),
    );
    Ok(Inspection { title: "dataset".to_owned(), about, ..Inspection::default() })
}
