//! A network's files, opened when it is needed.

use std::path::PathBuf;

use burn::tensor::Device;
use nn::{Merge, Precision, Result, Store, Weights};

use crate::lora::{self, LoraSource, Naming};

/// In which type a component's matrices are held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holding {
    /// The type asked for.
    pub(crate) precision: Precision,
    /// Modules, by name at any depth, that stay in the type they are stored in.
    pub(crate) kept: &'static [&'static str],
}

impl Holding {
    /// Everything as it is stored: for networks that run once, where a rounded weight saves no
    /// time and shows in the result.
    pub(crate) const STORED: Holding = Holding { precision: Precision::Stored, kept: &[] };
}

/// Where a component's parameters are, and in which type they are to be held.
pub(crate) struct Component {
    paths: Vec<PathBuf>,
    holding: Holding,
    loras: Loras,
    resident: Option<Store>,
    /// Whether its parameters were given and are nowhere else.
    given: bool,
}

/// Low-rank changes to a component, merged into its weights whenever it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Loras {
    pub(crate) sources: Vec<LoraSource>,
    pub(crate) naming: Naming,
}

impl Loras {
    /// No changes.
    const NONE: Loras = Loras { sources: Vec::new(), naming: Naming::Diffusers };
}

impl Component {
    /// Checks the files against the model; nothing of them is read yet.
    pub(crate) fn new(
        paths: Vec<PathBuf>,
        holding: Holding,
        ignored: &[&str],
        declare: impl FnOnce(&Weights<'_>) -> Result<()>,
    ) -> Result<Component> {
        let store = Store::open(&paths, Precision::Stored, &Device::flex())?;
        store.agree(ignored, declare)?;
        Ok(Component { paths, holding, loras: Loras::NONE, resident: None, given: false })
    }

    /// A component whose parameters are in memory and nowhere else.
    pub(crate) fn of(store: Store) -> Component {
        let (paths, holding, loras) = (Vec::new(), Holding::STORED, Loras::NONE);
        Component { paths, holding, loras, resident: Some(store), given: true }
    }

    /// Puts parameters from memory in the place of those of the files.
    ///
    /// # Errors
    /// They do not agree with what `declare` asks for.
    pub(crate) fn replace(
        &mut self,
        store: Store,
        declare: impl FnOnce(&Weights<'_>) -> Result<()>,
    ) -> Result<()> {
        store.agree(&[], declare)?;
        (self.resident, self.given) = (Some(store), true);
        Ok(())
    }

    /// The same with low-rank changes, which are checked against it now.
    ///
    /// # Errors
    /// One of them cannot be read or does not belong to this component.
    pub(crate) fn adapted(mut self, loras: Loras) -> crate::error::Result<Component> {
        if !loras.sources.is_empty() {
            let store = Store::open(&self.paths, Precision::Stored, &Device::flex())?;
            for source in &loras.sources {
                lora::patches(source, &store, loras.naming, &Device::flex())?;
            }
        }
        self.loras = loras;
        Ok(self)
    }

    /// Its parameters on `device`, opened now if they are not yet.
    ///
    /// # Errors
    /// Its files or those of its changes cannot be read any more.
    pub(crate) fn open(&mut self, device: &Device) -> crate::error::Result<&Store> {
        if self.resident.is_none() {
            let Holding { precision, kept } = self.holding;
            let mut store = Store::open_keeping(&self.paths, precision, kept, device)?;
            let Loras { sources, naming } = &self.loras;
            lora::load(sources, &mut store, *naming, Merge::Into, device)?;
            self.resident = Some(store);
        }
        Ok(self.resident.as_ref().expect("it was opened just now"))
    }

    /// Lets go of its parameters, unless they are nowhere else.
    pub(crate) fn close(&mut self) {
        if !self.given {
            self.resident = None;
        }
    }
}
