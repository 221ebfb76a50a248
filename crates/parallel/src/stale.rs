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
    /// hand and of those before it, and the last ones of those after it. `lengths` are those of all patches.
    ///
    /// # Errors
    /// Those of a patch are missing, too old or of another number, which is our bug.
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
            let (found, wanted) = (k.dims()[1], lengths.iter().sum::<usize>());
            if found != wanted {
                return Err(refuse(site, format!("{found} keys are not {wanted} of all patches")));
            }
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
                Some(Kept { k, v, step }) if *step == wanted && k.dims()[1] == lengths[at] => {
                    all[0].push(k.clone());
                    all[1].push(v.clone());
                }
                found => return Err(self.wrong(site, (at, lengths[at]), found.as_ref())),
            }
        }
        Ok(all.map(|parts| Tensor::cat(parts, 1)))
    }

    fn wrong(&self, site: Site, (patch, length): (usize, usize), found: Option<&Kept>) -> Error {
        let found = found.map_or("there are none".to_owned(), |Kept { k, step, .. }| {
            format!("there are {} of step {step}", k.dims()[1])
        });
        let reason = format!(
            "patch {:?} at step {} wants the {length} keys of patch {patch}, but {found}",
            self.patch, self.step
        );
        refuse(site, reason)
    }
}

fn refuse(site: Site, reason: String) -> Error {
    Error::Attention { layout: "PipeFusion", site: site.to_string(), reason }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use burn::tensor::{Device, Tensor};
    use nn::{Site, TrackName};

    use super::Stale;

    const SITE: Site = Site { layer: 0, name: "own", track: TrackName::Video };

    /// One that is at hand at a step, of patches of five and three tokens.
    fn look(stale: &Stale, tokens: usize) -> Result<usize, String> {
        let x = Tensor::<4>::zeros([1, tokens, 1, 2], &Device::flex());
        let seen = stale.look(SITE, [x.clone(), x], &[5, 3]);
        seen.map(|[k, _]| k.dims()[1]).map_err(|err| err.to_string())
    }

    /// One rank and several look at the same keys by the same code, so that a law which compares them cannot see keys of
    /// another stream: their numbers can.
    #[test]
    fn keys_of_another_number_are_not_taken() {
        let all = Stale { kept: Arc::default(), branch: 0, step: 0, patch: None, patches: 2 };
        let at = |step, patch| Stale { step, patch: Some(patch), ..all.clone() };
        assert!(look(&at(0, 0), 5).unwrap_err().contains("but there are none"));
        assert!(look(&all, 9).unwrap_err().contains("9 keys are not 8 of all patches"));
        assert_eq!(look(&all, 8), Ok(8));
        let error = look(&at(1, 0), 4).unwrap_err();
        assert!(
            error.contains("wants the 5 keys of patch 0, but there are 4 of step 1"),
            "{error}"
        );
        assert_eq!(look(&at(1, 0), 5), Ok(8));
        let error = look(&at(2, 1), 3).unwrap_err();
        assert!(error.contains("but there are 5 of step 1"), "{error}");
        assert_eq!(look(&at(1, 1), 3), Ok(8));
    }
}
