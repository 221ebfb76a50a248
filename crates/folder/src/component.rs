//! A network's files, opened when it is needed.

use std::path::PathBuf;

use burn::tensor::Device;
use nn::{Merge, Precision, Quantization, Store, Weights};

use crate::error::Result;
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

/// Where a component's parameters are, and in which type they are to be held. Clones share what is open.
#[derive(Clone)]
pub struct Component {
    paths: Vec<PathBuf>,
    storage: Storage,
    /// The matrices of its linear layers that are not kept.
    linears: Vec<String>,
    loras: Loras,
    resident: Option<Store>,
    /// Whether its parameters were given and are nowhere else.
    given: bool,
}

/// Low-rank changes to a component, merged into its weights whenever it is opened.
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
        declare: impl FnOnce(&Weights<'_>) -> nn::Result<()>,
    ) -> Result<Component> {
        let store = Store::open(&paths, Precision::Stored, &Device::flex())?;
        let linears = store.agree(ignored, declare)?.into_iter();
        let kept = |name: &String| name.split('.').any(|module| storage.kept.contains(&module));
        let linears = linears.filter(|name| !kept(name)).collect();
        let loras = Loras::NONE;
        Ok(Component { paths, storage, linears, loras, resident: None, given: false })
    }

    /// A component whose parameters are in memory and nowhere else.
    pub fn of(store: Store) -> Component {
        Component {
            paths: Vec::new(),
            storage: Storage::STORED,
            linears: Vec::new(),
            loras: Loras::NONE,
            resident: Some(store),
            given: true,
        }
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
            let mut store = Store::open_keeping(&self.paths, precision, kept, device)?;
            let Loras { sources, names } = &self.loras;
            lora::load(sources, &mut store, *names, Merge::Into, device)?;
            if let Some(quantization) = quantization {
                store.quantize(self.linears.iter().map(String::as_str), quantization);
            }
            self.resident = Some(store);
        }
        Ok(self.resident.as_ref().expect("it was opened just now"))
    }

    /// Lets go of its parameters, unless they are nowhere else.
    pub fn close(&mut self) {
        if !self.given {
            self.resident = None;
        }
    }
}
