//! What a path holds: a safetensors or GGUF file, a diffusers folder, a component of one, a config.

mod file;
mod gguf;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use diffusion::Grouping;
use families::{Defaults, Description};
use folder::{ModelFolder, read_text, weight_files};
use safetensors::SafeTensors;
use serde::Serialize;

use crate::error::{Error, Result};

/// Something to say of what was found: of what, and what.
pub type Fact = (String, String);

/// What was found, component by component.
#[derive(Debug, Default, Serialize)]
pub struct Inspection {
    /// What the whole is.
    pub title: String,
    /// What there is to say of it, in order: what it can do here, or why nothing.
    pub about: Vec<Fact>,
    /// Its components.
    pub components: Vec<ComponentReport>,
    /// What a file says of itself.
    pub metadata: BTreeMap<String, String>,
    /// Its tensors, or those of all of its components.
    pub tensors: Vec<TensorReport>,
}

/// One tensor.
#[derive(Debug, Serialize)]
pub struct TensorReport {
    /// Its name; of a folder with its component before it.
    pub name: String,
    /// Its type.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// One component or file.
#[derive(Debug, Serialize)]
pub struct ComponentReport {
    /// Its name.
    pub name: String,
    /// The class its config states.
    pub class: Option<String>,
    /// Numbers of tensors, parameters and bytes; `None` where there are no weights.
    pub weights: Option<Totals>,
}

/// Sums over tensors.
#[derive(Debug, Default, Serialize)]
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
    let extension = path.extension().unwrap_or_default().to_ascii_lowercase();
    match extension.to_str() {
        Some("safetensors") => {
            let (weights, tensors) = totals(&[path.to_owned()], "")?;
            let only = ComponentReport { name: name_of(path), class: None, weights: Some(weights) };
            let mapped = kernels::map_file(path).map_err(|source| Error::read(path, source))?;
            let wrong = |err: safetensors::SafeTensorError| nn::Error::Corrupt {
                path: path.to_owned(),
                reason: err.to_string(),
            };
            let (_, header) = SafeTensors::read_metadata(&mapped).map_err(wrong)?;
            let metadata: BTreeMap<String, String> =
                header.metadata().clone().unwrap_or_default().into_iter().collect();
            let file = SafeTensors::deserialize(&mapped).map_err(wrong)?;
            let (title, about) = file::about(path, &file, &metadata);
            Ok(Inspection { title, about, components: vec![only], metadata, tensors })
        }
        Some("gguf") => gguf::inspect(path),
        Some("json") => {
            let class = class_of(path)?;
            let title = class.clone().unwrap_or_else(|| "config without a class".to_owned());
            let components = vec![ComponentReport { name: name_of(path), class, weights: None }];
            Ok(Inspection { title, components, ..Inspection::default() })
        }
        _ if !path.exists() => {
            Err(Error::Unknown(format!("there is no file or folder {}", path.display())))
        }
        _ => Err(unknown(path)),
    }
}

fn pipeline(path: &Path) -> Result<Inspection> {
    let folder = ModelFolder::open(path)?;
    let (mut components, mut tensors) = (Vec::new(), Vec::new());
    for (name, class) in folder.components() {
        let (weights, own) = weights_of(&path.join(name), name)?;
        tensors.extend(own);
        components.push(ComponentReport {
            name: name.to_owned(),
            class: Some(class.to_owned()),
            weights,
        });
    }
    let about = match families::describe(&folder) {
        Ok(model) => about(&model),
        Err(err) => vec![("cannot be used here".to_owned(), err.to_string())],
    };
    let title = format!("diffusers pipeline {}", folder.class());
    Ok(Inspection { title, about, components, tensors, ..Inspection::default() })
}

fn component(path: &Path) -> Result<Inspection> {
    let names = ["config.json", "scheduler_config.json", "tokenizer_config.json"];
    let config = names.map(|name| path.join(name)).into_iter().find(|config| config.is_file());
    let class = config.map(|config| class_of(&config)).transpose()?.flatten();
    let (weights, tensors) = weights_of(path, "")?;
    if class.is_none() && weights.is_none() {
        return Err(unknown(path));
    }
    let title = class.clone().unwrap_or_else(|| "folder of weights".to_owned());
    let components = vec![ComponentReport { name: name_of(path), class, weights }];
    Ok(Inspection { title, components, tensors, ..Inspection::default() })
}

/// What a model is for, line by line.
fn about(model: &Description) -> Vec<Fact> {
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let Defaults { steps, guidance, size: [frames, height, width], frame_rate, .. } =
        model.defaults;
    let made = match model.geometry.grouping {
        Grouping::Picture => format!("pictures of {height} x {width}"),
        Grouping::Causal | Grouping::Even => {
            format!("clips of {frames} frames of {height} x {width}, {frame_rate} a second")
        }
    };
    let sound = model
        .sound
        .as_ref()
        .map_or(String::new(), |own| format!(", sound of {} Hz", own.codec.decoded().0));
    let taken: Vec<String> = model.conditions.taken().map(|own| own.to_string()).collect();
    let sampled = match &model.timesteps {
        Some(timesteps) => format!("at the timesteps {timesteps:?}, without guidance"),
        None => format!("in {steps} steps by {}, guidance {guidance}", model.scheduler.class()),
    };
    let mut lines = vec![
        fact("family", model.family.title.to_owned()),
        fact("makes", format!("{made}{sound}, {sampled} unless told otherwise")),
    ];
    if model.transformers.len() > 1 {
        let boundary = model.boundary.unwrap_or_default();
        let count = model.transformers.len();
        lines.push(fact("experts", format!("{count}, from timestep {boundary} on")));
    }
    if !taken.is_empty() {
        lines.push(fact("takes beside a prompt", taken.join(", ")));
    }
    lines
}

/// The weights of a component, which a scheduler or a tokenizer does not have.
fn weights_of(folder: &Path, name: &str) -> Result<(Option<Totals>, Vec<TensorReport>)> {
    match weight_files(folder) {
        Err(folder::Error::NoWeights(_)) => Ok((None, Vec::new())),
        files => {
            let (sums, tensors) = totals(&files?, name)?;
            Ok((Some(sums), tensors))
        }
    }
}

fn unknown(path: &Path) -> Error {
    Error::Unknown(format!(
        "{} is neither a safetensors or GGUF file, a JSON config nor a folder of a model, a dataset or a \
         run; of clips `moviola doctor --data` tells",
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
    Ok(class.and_then(|class| class.as_str()).map(shortened))
}

/// Sums over the tensors of files, and the tensors by name, below `folder` if it has one.
fn totals(paths: &[PathBuf], folder: &str) -> Result<(Totals, Vec<TensorReport>)> {
    let (mut sums, mut all) = (Totals::default(), Vec::new());
    for path in paths {
        let wrong = |reason: String| nn::Error::Corrupt { path: path.to_owned(), reason };
        let file = kernels::map_file(path).map_err(|source| Error::read(path, source))?;
        let tensors = SafeTensors::deserialize(&file).map_err(|err| wrong(err.to_string()))?;
        for (name, view) in tensors.iter() {
            let parameters = view.shape().iter().product::<usize>();
            let name =
                if folder.is_empty() { name.to_owned() } else { format!("{folder}: {name}") };
            let dtype = format!("{:?}", view.dtype()).to_lowercase();
            all.push(TensorReport { name, dtype: dtype.clone(), shape: view.shape().to_vec() });
            sums.tensors += 1;
            sums.parameters += parameters;
            sums.bytes += view.data().len();
            *sums.types.entry(dtype).or_default() += parameters;
        }
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok((sums, all))
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title)?;
        self.about.iter().try_for_each(|(name, value)| writeln!(f, "  {name}: {value}"))?;
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
        for (key, value) in &self.metadata {
            writeln!(f, "  metadata {key}: {}", shortened(value))?;
        }
        Ok(())
    }
}

/// Characters of a value of the metadata that are shown.
const LONGEST: usize = 100;

/// A text on one line, cut where it is too long; what is no letter is escaped.
fn shortened(text: &str) -> String {
    let plain: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    if text.chars().count() > LONGEST { plain + "…" } else { plain }
}
