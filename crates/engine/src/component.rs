//! A network's files, opened when it is needed.

use std::path::PathBuf;

use burn::tensor::Device;
use nn::{Precision, Result, Store, Weights};

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
    resident: Option<Store>,
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
        Ok(Component { paths, holding, resident: None })
    }

    /// Its parameters on `device`, opened now if they are not yet.
    pub(crate) fn open(&mut self, device: &Device) -> Result<&Store> {
        if self.resident.is_none() {
            let Holding { precision, kept } = self.holding;
            self.resident = Some(Store::open_keeping(&self.paths, precision, kept, device)?);
        }
        Ok(self.resident.as_ref().expect("it was opened just now"))
    }

    /// Lets go of its parameters.
    pub(crate) fn close(&mut self) {
        self.resident = None;
    }
}
