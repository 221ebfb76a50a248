//! A diffusers folder: which components it has and where their files are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde::Deserialize;

use crate::error::{Error, Result};

/// A folder with a `model_index.json`.
#[derive(Clone, Debug)]
pub struct ModelFolder {
    path: PathBuf,
    class: String,
    components: BTreeMap<String, String>,
    options: BTreeMap<String, serde_json::Value>,
}

impl ModelFolder {
    /// Reads the index; weights are not touched.
    ///
    /// # Errors
    /// There is no such folder, or it has no readable index.
    pub fn open(path: &Path) -> Result<ModelFolder> {
        if !path.is_dir() {
            return Err(Error::NoFolder(path.to_owned()));
        }
        let index = path.join("model_index.json");
        if !index.is_file() {
            return Err(Error::NoModelIndex(path.to_owned()));
        }
        let text = read_text(&index)?;
        let wrong = |reason: String| Error::Json { path: index.clone(), reason };
        let value: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(&text).map_err(|err| wrong(err.to_string()))?;
        let class = value.get("_class_name").and_then(|class| class.as_str());
        let class = class.ok_or_else(|| wrong("it has no `_class_name`".to_owned()))?.to_owned();
        let components =
            value.iter().filter_map(|(name, value)| match value.as_array()?.as_slice() {
                [_, class] => Some((name.clone(), class.as_str()?.to_owned())),
                _ => None,
            });
        let components = components.collect();
        let options =
            value.iter().filter(|(name, value)| !name.starts_with('_') && !is_component(value));
        let options = options.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(ModelFolder { path: path.to_owned(), class, components, options })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The pipeline's class.
    pub fn class(&self) -> &str {
        &self.class
    }

    /// Its components and their classes.
    pub fn components(&self) -> impl Iterator<Item = (&str, &str)> {
        self.components.iter().map(|(name, class)| (name.as_str(), class.as_str()))
    }

    /// The class of a component, if the index lists it.
    pub fn class_of(&self, name: &str) -> Option<&str> {
        self.components.get(name).map(String::as_str)
    }

    /// Whether the index lists component `name`.
    pub fn has(&self, name: &str) -> bool {
        self.components.contains_key(name)
    }

    /// An option of the pipeline, such as `boundary_ratio`; none where it is missing or null.
    ///
    /// # Errors
    /// It has another type.
    pub fn option<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(value) = self.options.get(name) else { return Ok(None) };
        serde_json::from_value(value.clone()).map_err(|err| Error::Json {
            path: self.path.join("model_index.json"),
            reason: format!("`{name}`: {err}"),
        })
    }

    /// Refuses an option of the pipeline that is not among `known`: one that nobody reads would do
    /// nothing.
    ///
    /// # Errors
    /// There is one; the error names the nearest that is known.
    pub fn check_options(&self, known: &[&str]) -> Result<()> {
        let unknown = self.options.keys().find(|name| !known.contains(&name.as_str()));
        let Some(option) = unknown else { return Ok(()) };
        let near = nn::most_similar(option, known.iter().copied());
        let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
        Err(Error::Json {
            path: self.path.join("model_index.json"),
            reason: format!("`{option}` is no option of a {}{near}", self.class),
        })
    }

    /// The folder of a component.
    ///
    /// # Errors
    /// The index or the folder does not have it.
    pub fn component(&self, name: &str) -> Result<PathBuf> {
        if !self.components.contains_key(name) {
            let path = self.path.join("model_index.json");
            return Err(Error::Json { path, reason: format!("it lists no component `{name}`") });
        }
        let path = self.path.join(name);
        if path.is_dir() { Ok(path) } else { Err(Error::NoFile(path)) }
    }

    /// The text of a file of a component.
    ///
    /// # Errors
    /// It is not there or cannot be read.
    pub fn text(&self, component: &str, file: &str) -> Result<String> {
        let path = self.component(component)?.join(file);
        match path.is_file() {
            true => read_text(&path),
            false => Err(Error::NoFile(path)),
        }
    }

    /// The weight files of a component, one or many.
    ///
    /// # Errors
    /// There are none, or the list of a sharded component names one that is missing.
    pub fn weights(&self, component: &str) -> Result<Vec<PathBuf>> {
        weight_files(&self.component(component)?)
    }
}

/// Whether a value of an index stands for a component: its library and class, or two nulls.
fn is_component(value: &serde_json::Value) -> bool {
    let part = |part: &serde_json::Value| part.is_string() || part.is_null();
    value.as_array().is_some_and(|parts| parts.len() == 2 && parts.iter().all(part))
}

/// Checks that two components agree on a number, each given with its name.
///
/// # Errors
/// They do not.
pub fn agree(left: (&str, usize), right: (&str, usize)) -> Result<()> {
    if left.1 == right.1 {
        return Ok(());
    }
    Err(Error::Mixed(format!("{} is {}, but {} is {}", left.0, left.1, right.0, right.1)))
}

/// The safetensors files of a folder: a whole one, or the shards its index lists.
///
/// # Errors
/// There are none, or a shard is missing.
pub fn weight_files(folder: &Path) -> Result<Vec<PathBuf>> {
    const STEMS: [&str; 2] = ["diffusion_pytorch_model", "model"];
    for stem in STEMS {
        let whole = folder.join(format!("{stem}.safetensors"));
        if whole.is_file() {
            return Ok(vec![whole]);
        }
        let index = folder.join(format!("{stem}.safetensors.index.json"));
        if index.is_file() {
            return shards(folder, &index);
        }
    }
    // Folders that only have a variant, such as fp16.
    for stem in STEMS {
        for variant in ["fp16", "bf16"] {
            let whole = folder.join(format!("{stem}.{variant}.safetensors"));
            if whole.is_file() {
                return Ok(vec![whole]);
            }
        }
    }
    Err(Error::NoWeights(folder.to_owned()))
}

fn shards(folder: &Path, index: &Path) -> Result<Vec<PathBuf>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let parsed: Index = serde_json::from_str(&read_text(index)?)
        .map_err(|err| Error::Json { path: index.to_owned(), reason: err.to_string() })?;
    let names: BTreeSet<String> = parsed.weight_map.into_values().collect();
    let paths: Vec<PathBuf> = names.into_iter().map(|name| folder.join(name)).collect();
    match paths.iter().find(|path| !path.is_file()) {
        Some(missing) => Err(Error::NoFile(missing.clone())),
        None => Ok(paths),
    }
}

/// How the keys of a GGUF's metadata begin that would stand alone in a safetensors file.
pub const OWN_KEYS: &str = "moviola.";

/// The metadata of a safetensors file, or what a GGUF says under keys of our own.
///
/// # Errors
/// It cannot be read, or is no such file.
pub fn metadata(path: &Path) -> Result<BTreeMap<String, String>> {
    let file = kernels::map_file(path).map_err(|source| Error::read(path, source))?;
    if nn::GgufHeader::is_of(&file) {
        let header = nn::GgufHeader::parse(&file)
            .map_err(|reason| nn::Error::CorruptGguf { path: path.to_owned(), reason })?;
        let own = header.metadata.into_iter().filter_map(|(key, value)| {
            Some((key.strip_prefix(OWN_KEYS)?.to_owned(), value.to_string()))
        });
        return Ok(own.collect());
    }
    let (_, header) = SafeTensors::read_metadata(&file)
        .map_err(|err| nn::Error::Corrupt { path: path.to_owned(), reason: err.to_string() })?;
    Ok(header.metadata().clone().unwrap_or_default().into_iter().collect())
}

/// No config or index of a model is longer.
const LONGEST_TEXT: u64 = 64 << 20;

/// The bytes of a text without the mark that some editors begin one with, which is no part of it.
pub(crate) fn without_mark(mut bytes: Vec<u8>) -> Vec<u8> {
    const MARK: &[u8] = b"\xef\xbb\xbf";
    if bytes.starts_with(MARK) {
        bytes.drain(..MARK.len());
    }
    bytes
}

/// The text of a file.
///
/// # Errors
/// It cannot be read.
pub fn read_text(path: &Path) -> Result<String> {
    let text = kernels::read_file(path, LONGEST_TEXT).and_then(|bytes| {
        String::from_utf8(without_mark(bytes))
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
    });
    text.map_err(|source| Error::read(path, source))
}
