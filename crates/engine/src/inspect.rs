//! What a path holds: a safetensors file, a diffusers folder, a component of one, a config.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use diffusion::Grouping;
use families::{Defaults, Description};
use folder::{ModelFolder, read_text, weight_files};
use safetensors::SafeTensors;

use crate::error::{Error, Result};

/// What was found, component by component.
#[derive(Debug)]
pub struct Inspection {
    /// What the whole is.
    pub title: String,
    /// What it can do here, or why nothing.
    pub about: Vec<String>,
    /// Its components.
    pub components: Vec<ComponentReport>,
}

/// One component or file.
#[derive(Debug)]
pub struct ComponentReport {
    /// Its name.
    pub name: String,
    /// The class its config states.
    pub class: Option<String>,
    /// Numbers of tensors, parameters and bytes; `None` where there are no weights.
    pub weights: Option<Totals>,
}

/// Sums over tensors.
#[derive(Debug, Default)]
pub struct Totals {
    /// Tensors.
    pub tensors: usize,
    /// Parameters.
    pub parameters: usize,
    /// Bytes.
    pub bytes: usize,
    /// Parameters by type.
    pub types: BTreeMap<String, usize>,
}

/// Tells what `path` is.
///
/// # Errors
/// It does not exist, or is none of the things we know.
pub fn inspect(path: &Path) -> Result<Inspection> {
    if path.is_dir() {
        return match path.join("model_index.json").is_file() {
            true => pipeline(path),
            false => component(path),
        };
    }
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") => {
            let weights = totals(&[path.to_owned()])?;
            let only = ComponentReport { name: name_of(path), class: None, weights: Some(weights) };
            let (title, about) = ("safetensors file".to_owned(), Vec::new());
            Ok(Inspection { title, about, components: vec![only] })
        }
        Some("json") => {
            let class = class_of(path)?;
            let title = class.clone().unwrap_or_else(|| "config without a class".to_owned());
            let components = vec![ComponentReport { name: name_of(path), class, weights: None }];
            Ok(Inspection { title, about: Vec::new(), components })
        }
        _ if !path.exists() => {
            Err(Error::Unknown(format!("there is no file or folder {}", path.display())))
        }
        _ => Err(unknown(path)),
    }
}

fn pipeline(path: &Path) -> Result<Inspection> {
    let folder = ModelFolder::open(path)?;
    let mut components = Vec::new();
    for (name, class) in folder.components() {
        let weights = weights_of(&path.join(name))?;
        components.push(ComponentReport {
            name: name.to_owned(),
            class: Some(class.to_owned()),
            weights,
        });
    }
    let about = match families::describe(&folder) {
        Ok(model) => about(&model),
        Err(err) => vec![format!("cannot be used here: {err}")],
    };
    Ok(Inspection { title: format!("diffusers pipeline {}", folder.class()), about, components })
}

fn component(path: &Path) -> Result<Inspection> {
    let names = ["config.json", "scheduler_config.json", "tokenizer_config.json"];
    let config = names.map(|name| path.join(name)).into_iter().find(|config| config.is_file());
    let class = config.map(|config| class_of(&config)).transpose()?.flatten();
    let weights = weights_of(path)?;
    if class.is_none() && weights.is_none() {
        return Err(unknown(path));
    }
    let title = class.clone().unwrap_or_else(|| "folder of weights".to_owned());
    let components = vec![ComponentReport { name: name_of(path), class, weights }];
    Ok(Inspection { title, about: Vec::new(), components })
}

/// What a model is for, line by line.
fn about(model: &Description) -> Vec<String> {
    let Defaults { steps, guidance, size: [frames, height, width], frame_rate } = model.defaults;
    let made = match model.geometry.grouping {
        Grouping::Picture => format!("pictures of {height} x {width}"),
        Grouping::Causal | Grouping::Even => {
            format!("clips of {frames} frames of {height} x {width}, {frame_rate} a second")
        }
    };
    let sound =
        model.sound.map_or(String::new(), |own| format!(", sound of {} Hz", own.sample_rate));
    let taken: Vec<String> = model.conditions.taken().map(|own| own.to_string()).collect();
    let sampled = match &model.timesteps {
        Some(timesteps) => format!("at the timesteps {timesteps:?}, without guidance"),
        None => format!("in {steps} steps by {}, guidance {guidance}", model.scheduler.class()),
    };
    let mut lines = vec![
        format!("family: {}", model.family.title),
        format!("makes: {made}{sound}, {sampled} unless told otherwise"),
    ];
    if model.transformers.len() > 1 {
        let boundary = model.boundary.unwrap_or_default();
        lines.push(format!("experts: {}, from timestep {boundary} on", model.transformers.len()));
    }
    if !taken.is_empty() {
        lines.push(format!("takes beside a prompt: {}", taken.join(", ")));
    }
    lines
}

/// The weights of a component, which a scheduler or a tokenizer does not have.
fn weights_of(folder: &Path) -> Result<Option<Totals>> {
    match weight_files(folder) {
        Err(folder::Error::NoWeights(_)) => Ok(None),
        files => Ok(Some(totals(&files?)?)),
    }
}

fn unknown(path: &Path) -> Error {
    Error::Unknown(format!(
        "{} is neither a safetensors file, a JSON config nor a model folder",
        path.display()
    ))
}

/// `_class_name` as diffusers writes it, or the first of `architectures` or the `tokenizer_class` as
/// transformers does.
fn class_of(path: &Path) -> Result<Option<String>> {
    let text = read_text(path)?;
    // diffusers writes a bare -Infinity, which is not JSON.
    let text = text.replace("-Infinity", "null").replace("Infinity", "null");
    let value: serde_json::Value = serde_json::from_str(&text)
        .map_err(|err| folder::Error::Json { path: path.to_owned(), reason: err.to_string() })?;
    let class = value.get("_class_name").or_else(|| value.get("architectures")?.get(0));
    let class = class.or_else(|| value.get("tokenizer_class"));
    Ok(class.and_then(|class| class.as_str()).map(str::to_owned))
}

fn totals(paths: &[PathBuf]) -> Result<Totals> {
    let mut sums = Totals::default();
    for path in paths {
        let wrong = |reason: String| nn::Error::Corrupt { path: path.to_owned(), reason };
        let file = kernels::map_file(path).map_err(|source| Error::read(path, source))?;
        let tensors = SafeTensors::deserialize(&file).map_err(|err| wrong(err.to_string()))?;
        for (_, view) in tensors.iter() {
            let parameters = view.shape().iter().product::<usize>();
            sums.tensors += 1;
            sums.parameters += parameters;
            sums.bytes += view.data().len();
            *sums.types.entry(format!("{:?}", view.dtype()).to_lowercase()).or_default() +=
                parameters;
        }
    }
    Ok(sums)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        self.about.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        for ComponentReport { name, class, weights } in &self.components {
            write!(f, "  {name:<16} {:<32}", class.as_deref().unwrap_or("-"))?;
            match weights {
                None => writeln!(f, " no weights")?,
                Some(sums) => {
                    let types: Vec<&str> = sums.types.keys().map(String::as_str).collect();
                    writeln!(
                        f,
                        " {:>6} tensors  {:>14} parameters  {:>15} bytes  {}",
                        sums.tensors,
                        sums.parameters,
                        sums.bytes,
                        types.join(", ")
                    )?;
                }
            }
        }
        Ok(())
    }
}
