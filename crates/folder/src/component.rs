//! A network's files, opened when it is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use burn::tensor::Device;
use nn::{Merge, Precision, Quantization, Store, Weights};

use crate::error::{Error, Result};
use crate::lora::{self, LoraSource, Names};

/// In which type a component's matrices are held.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    /// The type asked for.
    pub precision: Precision,
    /// Modules, by name at any depth, that stay in the type they are stored in.
    pub kept: &'static [&'static str],
    /// How the matrices of its linear layers are held instead, but for those of kept modules.
    pub quantization: Option<Quantization>,
}

impl Storage {
    /// Everything as it is stored: for networks that run once, where a rounded weight saves no
    /// time and shows in the result.
    pub const STORED: Storage =
        Storage { precision: Precision::Stored, kept: &[], quantization: None };
}

/// One tensor of a component, as its file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weight {
    /// Its name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Its bytes.
    pub bytes: u64,
}

impl Weight {
    /// Outputs and inputs, if it is a matrix.
    pub fn matrix(&self) -> Option<(usize, usize)> {
        match self.shape[..] {
            [outputs, inputs] => Some((outputs, inputs)),
            _ => None,
        }
    }

    /// Its bytes if it were held in two bytes a value.
    pub fn rounded(&self) -> u64 {
        2 * self.shape.iter().product::<usize>() as u64
    }

    /// All of a store.
    fn all(store: &Store) -> Vec<Weight> {
        let weight = |(name, own): (&str, &nn::Parameter)| Weight {
            name: name.to_owned(),
            shape: own.shape.clone(),
            bytes: own.bytes() as u64,
        };
        let quantized = store.quantized_matrices().map(|(name, own)| Weight {
            name: name.to_owned(),
            shape: own.shape().to_vec(),
            bytes: own.bytes() as u64,
        });
        store.iter().map(weight).chain(quantized).collect()
    }
}

/// Where a component's parameters are, and in which type they are to be held. Clones share what is open.
#[derive(Clone)]
pub struct Component {
    paths: Vec<PathBuf>,
    storage: Storage,
    /// The matrices of its linear layers that are not kept.
    linears: Vec<String>,
    loras: Loras,
    /// What its tensors may be called in its files, as a model calls them.
    rename: Option<Rename>,
    /// What its tensors are reshaped to.
    shapes: BTreeMap<String, Vec<usize>>,
    resident: Option<Store>,
    /// The parameters that are to be open, if not all.
    needed: Option<BTreeSet<String>>,
    weights: Vec<Weight>,
    /// Whether its parameters were given and are nowhere else.
    given: bool,
}

/// A model's name for a tensor that a file may call otherwise; none for what belongs to something else.
pub type Rename = std::sync::Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Low-rank changes to a component, merged into its weights whenever it is opened, or beside those that are quantized.
#[derive(Clone, Debug)]
pub struct Loras {
    /// The files.
    pub sources: Vec<LoraSource>,
    /// What their layers may be called.
    pub names: Names,
}

impl Loras {
    /// No changes.
    const NONE: Loras = Loras { sources: Vec::new(), names: Names::DIFFUSERS };
}

impl Component {
    /// Checks the files against the model; nothing of them is read yet.
    ///
    /// # Errors
    /// A file cannot be mapped, or its tensors are not what `declare` asks for.
    pub fn new(
        paths: Vec<PathBuf>,
        storage: Storage,
        ignored: &[&str],
        declare: impl Fn(&Weights<'_>) -> nn::Result<()>,
    ) -> Result<Component> {
        Component::renaming(paths, storage, ignored, None, declare)
    }

    /// The same for files that may call their tensors by other names than the model does.
    ///
    /// # Errors
    /// As [`Component::new`].
    pub fn renaming(
        paths: Vec<PathBuf>,
        storage: Storage,
        ignored: &[&str],
        rename: Option<Rename>,
        declare: impl Fn(&Weights<'_>) -> nn::Result<()>,
    ) -> Result<Component> {
        let store = Store::open(&paths, Precision::Stored, &Device::flex())?;
        let mut store = renamed(store, rename.as_ref())?;
        let shapes = store.take_shapes(&declare)?;
        let linears = store.agree(ignored, declare)?.into_iter();
        let kept = |name: &String| name.split('.').any(|module| storage.kept.contains(&module));
        let linears = linears.filter(|name| !kept(name)).collect();
        let (loras, weights, resident) = (Loras::NONE, Weight::all(&store), None);
        Ok(Component {
            paths,
            storage,
            linears,
            loras,
            rename,
            shapes,
            resident,
            needed: None,
            weights,
            given: false,
        })
    }

    /// A component whose parameters are in memory and nowhere else.
    pub fn of(store: Store) -> Component {
        let (paths, storage, loras) = (Vec::new(), Storage::STORED, Loras::NONE);
        let weights = Weight::all(&store);
        let (rename, resident) = (None, Some(store));
        let (linears, shapes) = (Vec::new(), BTreeMap::new());
        Component {
            paths,
            storage,
            linears,
            loras,
            rename,
            shapes,
            resident,
            needed: None,
            weights,
            given: true,
        }
    }

    /// Its tensors, as they are stored.
    pub fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// Puts parameters from memory in the place of those of the files.
    ///
    /// # Errors
    /// They do not agree with what `declare` asks for.
    pub fn replace(
        &mut self,
        store: Store,
        declare: impl FnOnce(&Weights<'_>) -> nn::Result<()>,
    ) -> Result<()> {
        store.agree(&[], declare)?;
        (self.resident, self.given) = (Some(store), true);
        Ok(())
    }

    /// The same with low-rank changes, which are checked against it now.
    ///
    /// # Errors
    /// One of them cannot be read or does not belong to this component.
    pub fn adapted(mut self, loras: Loras) -> Result<Component> {
        if !loras.sources.is_empty() {
            let store = Store::open(&self.paths, Precision::Stored, &Device::flex())?;
            let mut store = renamed(store, self.rename.as_ref())?;
            store.with_shapes(&self.shapes);
            for source in &loras.sources {
                lora::patches(source, &store, loras.names, &Device::flex())?;
            }
        }
        self.loras = loras;
        Ok(self)
    }

    /// Its parameters on `device`, opened now if they are not yet.
    ///
    /// # Errors
    /// Its files or those of its changes cannot be read any more.
    pub fn open(&mut self, device: &Device) -> Result<&Store> {
        if self.resident.is_none() {
            let Storage { precision, kept, quantization } = self.storage;
            // What becomes bytes is not rounded to anything else before.
            let precision = if quantization.is_some() { Precision::Stored } else { precision };
            // What a LoRA changes is looked for among all.
            let some = self.needed.as_ref().filter(|_| self.loras.sources.is_empty());
            let own = |file: &str| match &self.rename {
                Some(rename) => rename(file),
                None => Some(file.to_owned()),
            };
            let is_needed = |file: &str| {
                some.is_none_or(|needed| own(file).is_none_or(|name| needed.contains(&name)))
            };
            let store = Store::open_some(&self.paths, (precision, kept), &is_needed, device)?;
            let mut store = renamed(store, self.rename.as_ref())?;
            store.with_shapes(&self.shapes);
            if let Some(quantization) = quantization {
                store.quantize(self.linears.iter().map(String::as_str), quantization);
            }
            // Beside what is quantized, in f32, and merged into the rest.
            let Loras { sources, names } = &self.loras;
            lora::load(sources, &mut store, *names, Merge::Into, device)?;
            if let Some(needed) = &self.needed {
                store = store.renamed(|name| needed.contains(name).then(|| name.to_owned()));
            }
            self.resident = Some(store);
        }
        Ok(self.resident.as_ref().expect("it was opened just now"))
    }

    /// Holds these parameters alone from now on, or all. What is open stays so, where it is all of them: others may
    /// share it.
    pub fn hold(&mut self, needed: Option<BTreeSet<String>>) {
        if self.needed != needed {
            if self.needed.is_some() {
                self.close();
            }
            self.needed = needed;
        }
    }

    /// The names of the parameters that are open.
    pub fn held(&self) -> impl Iterator<Item = &str> {
        self.resident.iter().flat_map(Store::names)
    }

    /// Lets go of its parameters, unless they are nowhere else.
    pub fn close(&mut self) {
        if !self.given {
            self.resident = None;
        }
    }
}

/// A store under the names of the model.
fn renamed(store: Store, rename: Option<&Rename>) -> Result<Store> {
    let Some(rename) = rename else { return Ok(store) };
    let count = store.names().into_iter().filter(|name| rename(name).is_some()).count();
    let origin = store.origin().to_owned();
    let store = store.renamed(|name| rename(name));
    match store.names().len() == count {
        true => Ok(store),
        false => Err(Error::Unfit(format!("{origin} holds a tensor under two of its names"))),
    }
}
