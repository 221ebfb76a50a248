//! Several datasets as one, some of them seen more often than others.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use burn::tensor::TensorData;
use data::loader::Samples;
use data::store::{Dataset, LATENTS, Sample, hash_parts};
use methods::Rollout;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use train::Strategy;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::schema::{MethodConfig, Recipe};

/// Several folders of samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// The folders. Samples are held out at the end of the last.
    pub of: Vec<PartConfig>,
}

/// A folder of samples, and how often it is seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PartConfig {
    /// The folder, which `moviola preprocess` made.
    pub path: String,
    /// How often each of its samples is seen in an epoch; 1 if it is not said.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub repeats: Option<u64>,
    /// Its share of all samples that are seen, beside the weights of the others. It becomes whole repeats, within
    /// a twentieth.
    #[serde(default)]
    pub weight: Option<f64>,
}

/// No sample is seen more often in an epoch.
const MOST_REPEATS: u64 = 10_000;

/// How far a share may be from what its weight asks for.
const TOLERANCE: f64 = 0.05;

impl MixConfig {
    /// # Errors
    /// There is nothing, or repeats and weights that cannot be.
    pub(crate) fn check(&self) -> std::result::Result<(), String> {
        let of = "`data.source.of`";
        if self.of.is_empty() {
            return Err(format!("{of} is empty; it lists folders"));
        }
        let weighed = self.of.iter().filter(|part| part.weight.is_some()).count();
        let repeated = self.of.iter().any(|part| part.repeats.is_some());
        if weighed > 0 && (repeated || weighed < self.of.len()) {
            return Err(format!(
                "{of} has weights; then every folder has one, and none has repeats"
            ));
        }
        for part in &self.of {
            let repeats = part.repeats.unwrap_or(1);
            if !(1..=MOST_REPEATS).contains(&repeats) {
                return Err(format!("{of} has repeats {repeats}; they are 1 to {MOST_REPEATS}"));
            }
            let weight = part.weight.unwrap_or(1.0);
            if !(weight.is_finite() && weight > 0.0) {
                return Err(format!("{of} has a weight of {weight}; it is a number above 0"));
            }
        }
        Ok(())
    }
}

/// Samples as they lie in their folders.
pub(crate) struct Stored {
    /// All of them, once.
    pub(crate) samples: Arc<dyn Samples>,
    /// What stands for a dropped caption, by key.
    pub(crate) null: BTreeMap<String, TensorData>,
    /// The hash of what they are.
    pub(crate) identity: String,
    /// How many samples each folder has, and how often each is seen.
    pub(crate) parts: Vec<(usize, u64)>,
}

impl Recipe {
    /// The samples of several folders, each of which must serve the student.
    ///
    /// # Errors
    /// A folder is none, is of other encoders, or lacks what is needed.
    pub(crate) fn stored(&self, parts: &[PartConfig], student: &Model) -> Result<Stored> {
        let strategy = self.strategy(student)?;
        let keys = strategy.sources();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        let (mut all, mut samples): (Vec<Arc<Dataset>>, Vec<Arc<dyn Samples>>) = Default::default();
        for part in parts {
            let dataset = Arc::new(Dataset::open(Path::new(&part.path))?);
            if let Some(encoders) = &student.encoders {
                dataset.check_served(encoders)?;
            }
            dataset.require(&student.shown(), "the student, which is shown pictures,")?;
            let blank = self.blank(&dataset, part, student)?;
            let is_there = |key: &&str| blank.is_none() || *key != LATENTS;
            let keys: Vec<&str> = keys.iter().copied().filter(is_there).collect();
            dataset.require(&keys, &format!("the strategy `{}`", strategy.name()))?;
            let own: Arc<dyn Samples> = Arc::<Dataset>::clone(&dataset);
            samples.push(match blank {
                Some(shape) => Arc::new(Blank { samples: own, shape }),
                None => own,
            });
            all.push(dataset);
        }
        let identities = all.iter().map(|own| own.identity()).collect::<data::Result<Vec<_>>>()?;
        let identity = match &identities[..] {
            [one] => one.clone(),
            several => {
                let texts: Vec<&[u8]> = several.iter().map(|own| own.as_bytes()).collect();
                hash_parts(&texts)
            }
        };
        let counts: Vec<usize> = all.iter().map(|own| own.len()).collect();
        let repeats = repeats(parts, &counts);
        let null = all[0].null_text()?;
        let samples: Arc<dyn Samples> = match samples.len() {
            1 => samples.remove(0),
            _ => Arc::new(Joined(samples)),
        };
        Ok(Stored { samples, null, identity, parts: counts.into_iter().zip(repeats).collect() })
    }
}

impl Recipe {
    /// The shape of the latents that a dataset of texts alone does not have; none if it has latents.
    ///
    /// # Errors
    /// The method learns from clips, or the texts are for clips of several sizes.
    fn blank(
        &self,
        dataset: &Dataset,
        part: &PartConfig,
        student: &Model,
    ) -> Result<Option<[usize; 4]>> {
        if dataset.is_empty() || dataset.shapes(0).any(|(key, _)| key == LATENTS) {
            return Ok(None);
        }
        let makes_its_own =
            matches!(&self.method, MethodConfig::Dmd2(own) if own.rollout == Rollout::Simulate);
        if !makes_its_own {
            return Err(Error::Recipe(format!(
                "{} holds texts alone, and method {} learns from clips; they are for method dmd2 with \
                 `rollout: simulate`, whose student makes its own",
                part.path,
                self.method.name()
            )));
        }
        let bucket = dataset.origin(0).bucket;
        if (0..dataset.len()).any(|at| dataset.origin(at).bucket != bucket) {
            let reason =
                format!("{} holds texts for clips of several sizes; make one for each", part.path);
            return Err(Error::Recipe(reason));
        }
        let size = [bucket.frames, bucket.height, bucket.width];
        let [frames, rows, columns] = student.description.geometry.latents(size)?;
        Ok(Some([student.description.vae.latent_channels(), frames, rows, columns]))
    }
}

/// Texts as samples of clips that nobody has seen: their latents are zeros, of which only the shape is used.
struct Blank {
    samples: Arc<dyn Samples>,
    shape: [usize; 4],
}

impl Samples for Blank {
    fn count(&self) -> usize {
        self.samples.count()
    }

    fn group(&self, index: usize) -> String {
        format!("{LATENTS}{:?} {}", self.shape, self.samples.group(index))
    }

    fn read(&self, index: usize) -> data::Result<Sample> {
        let mut sample = self.samples.read(index)?;
        let values = vec![0f32; self.shape.iter().product()];
        sample.tensors.insert(LATENTS.to_owned(), TensorData::new(values, self.shape));
        Ok(sample)
    }
}

/// How often each folder is seen: what is said, or the fewest whole numbers that come near the weights.
fn repeats(parts: &[PartConfig], counts: &[usize]) -> Vec<u64> {
    let weights: Option<Vec<f64>> = parts.iter().map(|part| part.weight).collect();
    let Some(weights) = weights else {
        return parts.iter().map(|part| part.repeats.unwrap_or(1)).collect();
    };
    let each = weights.iter().zip(counts).map(|(weight, count)| weight / (*count).max(1) as f64);
    let each: Vec<f64> = each.collect();
    let least = each.iter().copied().fold(f64::INFINITY, f64::min);
    let of =
        |times: u64| -> Vec<f64> { each.iter().map(|own| own / least * times as f64).collect() };
    let near = |wanted: &f64| (wanted.round() / wanted - 1.0).abs() <= TOLERANCE;
    let found = (1..=100).map(of).find(|all| all.iter().all(near));
    let found = found.unwrap_or_else(|| of(100));
    found.iter().map(|wanted| (wanted.round() as u64).clamp(1, MOST_REPEATS)).collect()
}

/// The places of the first `learnt` samples, each as often as its folder is seen.
pub(crate) fn places(parts: &[(usize, u64)], learnt: usize) -> Vec<usize> {
    let mut places = Vec::new();
    let mut first = 0;
    for (count, repeats) in parts {
        for _ in 0..*repeats {
            places.extend(first..(first + count).min(learnt).max(first));
        }
        first += count;
    }
    // A source that is no folder is seen once.
    if parts.is_empty() {
        places.extend(0..learnt);
    }
    places
}

/// Datasets one after the other.
struct Joined(Vec<Arc<dyn Samples>>);

impl Joined {
    fn find(&self, mut index: usize) -> (&dyn Samples, usize) {
        let mut all = self.0.iter();
        let mut own = all.next().expect("there is one");
        for next in all {
            if index < own.count() {
                break;
            }
            index -= own.count();
            own = next;
        }
        (&**own, index)
    }
}

impl Samples for Joined {
    fn count(&self) -> usize {
        self.0.iter().map(|own| own.count()).sum()
    }

    fn group(&self, index: usize) -> String {
        let (own, index) = self.find(index);
        own.group(index)
    }

    fn read(&self, index: usize) -> data::Result<Sample> {
        let (own, index) = self.find(index);
        own.read(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(repeats: Option<u64>, weight: Option<f64>) -> PartConfig {
        PartConfig { path: String::new(), repeats, weight }
    }

    #[test]
    fn weights_become_whole_repeats() {
        let of = |weights: &[f64], counts: &[usize]| {
            let parts: Vec<PartConfig> =
                weights.iter().map(|weight| part(None, Some(*weight))).collect();
            repeats(&parts, counts)
        };
        assert_eq!(of(&[1.0, 1.0], &[100, 100]), [1, 1]);
        assert_eq!(of(&[1.0, 1.0], &[100, 20]), [1, 5]);
        assert_eq!(of(&[0.7, 0.3], &[10, 10]), [7, 3]);
        for (weights, counts) in [([0.61, 0.39], [313, 57]), ([3.0, 1.0], [1000, 999])] {
            let found = of(&weights, &counts);
            let seen: Vec<f64> = found
                .iter()
                .zip(counts)
                .map(|(own, count)| (*own as usize * count) as f64)
                .collect();
            let (share, want) = (seen[0] / seen[1], weights[0] / weights[1]);
            assert!((share / want - 1.0).abs() < 2.5 * TOLERANCE, "{found:?}: {share}, not {want}");
        }
        assert_eq!(repeats(&[part(Some(3), None), part(None, None)], &[5, 5]), [3, 1]);
    }

    #[test]
    fn what_is_held_out_is_never_repeated() {
        assert_eq!(places(&[(2, 2), (3, 1)], 4), [0, 1, 0, 1, 2, 3]);
        assert_eq!(places(&[(3, 1)], 3), [0, 1, 2]);
        assert_eq!(places(&[], 3), [0, 1, 2]);
        assert_eq!(places(&[(2, 1), (2, 3)], 1), [0]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let check = |of: Vec<PartConfig>| MixConfig { of }.check();
        assert!(check(vec![]).is_err());
        assert!(check(vec![part(Some(0), None)]).is_err());
        assert!(check(vec![part(None, Some(1.0)), part(None, None)]).is_err());
        assert!(check(vec![part(Some(2), Some(1.0))]).is_err());
        assert!(check(vec![part(None, Some(-1.0))]).is_err());
        assert!(check(vec![part(Some(2), None), part(None, None)]).is_ok());
    }
}
