//! Keys and values of earlier patches and steps, as PipeFusion looks at them.
//!
//! While a patch is at step `i`, the patches before it are there too and those after it are still at step
//! `i - 1`: keys and values are kept by site, branch and patch, each with the step it is of, and nobody
//! may look at any that is older.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Tensor;
use nn::{Error, Result, Site};

/// Keys and values of all patches, by site and branch.
#[derive(Debug, Default)]
pub(crate) struct KeyValues {
    patches: BTreeMap<(Site, usize), Vec<Option<Kept>>>,
}

/// Those of one patch, `[B, S, N, H]` each.
#[derive(Clone, Debug)]
struct Kept {
    k: Tensor<4>,
    v: Tensor<4>,
    step: usize,
}

/// What a pass looks at beside its own tokens.
#[derive(Clone, Debug)]
pub(crate) struct Stale {
    pub(crate) kept: Arc<Mutex<KeyValues>>,
    /// The branch of guidance.
    pub(crate) branch: usize,
    pub(crate) step: usize,
    /// The patch at hand; none where all are.
    pub(crate) patch: Option<usize>,
    /// How many there are.
    pub(crate) patches: usize,
}

impl Stale {
    /// Keeps keys and values, and returns those that the queries at hand see: fresh ones of the patch at
    /// hand and of those before it, and the last ones of those after it. `lengths` are those of the patches
    /// where all of them are at hand.
    ///
    /// # Errors
    /// Those of a patch are missing or too old, which is our bug.
    pub(crate) fn look(
        &self,
        site: Site,
        [k, v]: [Tensor<4>; 2],
        lengths: &[usize],
    ) -> Result<[Tensor<4>; 2]> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let own = kept.patches.entry((site, self.branch)).or_default();
        own.resize(self.patches, None);
        let Some(patch) = self.patch else {
            let parts = [&k, &v].map(|x| x.clone().split_with_sizes(lengths.to_vec(), 1));
            let [ks, vs] = parts;
            for (slot, (k, v)) in own.iter_mut().zip(ks.into_iter().zip(vs)) {
                *slot = Some(Kept { k, v, step: self.step });
            }
            return Ok([k, v]);
        };
        own[patch] = Some(Kept { k, v, step: self.step });
        let mut all = [Vec::new(), Vec::new()];
        for (at, slot) in own.iter().enumerate() {
            let wanted = if at <= patch { self.step } else { self.step.wrapping_sub(1) };
            match slot {
                Some(Kept { k, v, step }) if *step == wanted => {
                    all[0].push(k.clone());
                    all[1].push(v.clone());
                }
                found => return Err(self.wrong(site, at, found.as_ref().map(|own| own.step))),
            }
        }
        Ok(all.map(|parts| Tensor::cat(parts, 1)))
    }

    fn wrong(&self, site: Site, patch: usize, found: Option<usize>) -> Error {
        let found =
            found.map_or("there are none".to_owned(), |step| format!("they are of step {step}"));
        let reason = format!(
            "patch {:?} at step {} wants the keys of patch {patch}, but {found}",
            self.patch, self.step
        );
        Error::Attention { layout: "PipeFusion", site: site.to_string(), reason }
    }
}
