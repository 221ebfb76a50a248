//! What stages make of a context once, for all patches and steps that see it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::Tensor;
use nn::{Make, Provider, Result};

/// What was made, by branch and name. An exact step makes all of it anew: another network may have taken over.
#[derive(Debug, Default)]
pub(super) struct Made(Mutex<BTreeMap<(usize, String), Vec<Tensor<3>>>>);

impl Made {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(usize, String), Vec<Tensor<3>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A provider whose networks make of a context what they did not make before.
pub(super) struct Remembering<'a> {
    pub(super) inner: &'a dyn Provider,
    pub(super) made: &'a Made,
    pub(super) branch: usize,
    /// Whether the step is one of patches, which take what was made.
    pub(super) is_patched: bool,
}

impl Provider for Remembering<'_> {
    fn values(&self, name: &str, shape: &[usize]) -> Result<Tensor<1>> {
        self.inner.values(name, shape)
    }

    fn has(&self, name: &str) -> bool {
        self.inner.has(name)
    }

    fn inner(&self) -> Option<&dyn Provider> {
        Some(self.inner)
    }

    fn remembered(&self, name: &str, make: Make<'_>) -> Result<Vec<Tensor<3>>> {
        let key = (self.branch, name.to_owned());
        if self.is_patched
            && let Some(made) = self.made.lock().get(&key)
        {
            return Ok(made.clone());
        }
        let made = make()?;
        self.made.lock().insert(key, made.clone());
        Ok(made)
    }
}
