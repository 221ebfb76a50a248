//! A network's files, opened when it is needed.

use std::path::PathBuf;

use burn::tensor::Device;
use nn::{Precision, Result, Store, Weights};

/// Where a component's parameters are, and in which type they are to be held.
pub(crate) struct Component {
    paths: Vec<PathBuf>,
    precision: Precision,
    resident: Option<Store>,
}

impl Component {
    /// Checks the files against the model; nothing of them is read yet.
    pub(crate) fn new(
        paths: Vec<PathBuf>,
        precision: Precision,
        ignored: &[&str],
        declare: impl FnOnce(&Weights<'_>) -> Result<()>,
    ) -> Result<Component> {
        let store = Store::open(&paths, Precision::Stored, &Device::flex())?;
        store.agree(ignored, declare)?;
        Ok(Component { paths, precision, resident: None })
    }

    /// Its parameters on `device`, opened now if they are not yet.
    pub(crate) fn open(&mut self, device: &Device) -> Result<&Store> {
        if self.resident.is_none() {
            self.resident = Some(Store::open(&self.paths, self.precision, device)?);
        }
        Ok(self.resident.as_ref().expect("it was opened just now"))
    }

    /// Lets go of its parameters.
    pub(crate) fn close(&mut self) {
        self.resident = None;
    }
}
