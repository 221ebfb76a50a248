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
use crate::feed::Picked;
use crate::model::Model;
use crate::schema::{MethodConfig, Recipe};

/// Several folders of samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MixConfig {
    /// The folders. Each holds out its share of `data.held_out`, at its end.
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
    #[schemars(extend("exclusiveMinimum" = 0))]
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
    /// All of them, once; those that are held out come last.
    pub(crate) samples: Arc<dyn Samples>,
    /// What stands for a dropped caption, by key.
    pub(crate) null: BTreeMap<String, TensorData>,
    /// The hash of what they are.
    pub(crate) identity: String,
    /// How many samples of each folder come first, and how often each is seen.
    pub(crate) parts: Vec<(usize, u64)>,
    /// What there is to say of them.
    pub(crate) notes: Vec<String>,
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
            let optional = strategy.optional();
            let is_there = |key: &&str| {
                (blank.is_none() || *key != LATENTS) && optional.as_deref() != Some(*key)
            };
            let keys: Vec<&str> = keys.iter().copied().filter(is_there).collect();
            dataset.require(&keys, &format!("the strategy `{}`", strategy.name()))?;
            let own: Arc<dyn Samples> = Arc::<Dataset>::clone(&dataset);
            samples.push(match blank {
                Some(shape) => Arc::new(Blank { samples: own, shape }),
                None => own,
            });
            all.push(dataset);
        }
        let notes = lacking(&all, &strategy)?;
        let identities = all.iter().map(|own| own.identity()).collect::<data::Result<Vec<_>>>()?;
        let identity = match &identities[..] {
            [one] => one.clone(),
            several => {
                let texts: Vec<&[u8]> = several.iter().map(|own| own.as_bytes()).collect();
                hash_parts(&texts)
            }
        };
        let counts: Vec<usize> = all.iter().map(|own| own.len()).collect();
        let null = all[0].null_text()?;
        if samples.len() == 1 {
            let parts = counts.iter().copied().zip(repeats(parts, &counts)?).collect();
            return Ok(Stored { samples: samples.remove(0), null, identity, parts, notes });
        }
        let held_out = shares(parts, &counts, self.data.held_out)?;
        let samples: Arc<dyn Samples> = Arc::new(Joined(samples));
        // What is held out decides what is learnt: a run goes on with the same only.
        let (samples, identity) = match self.data.held_out {
            0 => (samples, identity),
            _ => (
                Picked::of(&samples, held_out_last(&counts, &held_out)),
                hash_parts(&[identity.as_bytes(), format!("held out {held_out:?}").as_bytes()]),
            ),
        };
        let learnt: Vec<usize> =
            counts.iter().zip(&held_out).map(|(count, held_out)| count - held_out).collect();
        let repeats = repeats(parts, &learnt)?;
        let parts = learnt.into_iter().zip(repeats).collect();
        Ok(Stored { samples, null, identity, parts, notes })
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

/// Says how many samples lack what may be lacking.
///
/// # Errors
/// All of them do.
fn lacking(all: &[Arc<Dataset>], strategy: &dyn Strategy) -> Result<Vec<String>> {
    let Some(key) = strategy.optional() else { return Ok(Vec::new()) };
    let samples: usize = all.iter().map(|own| own.len()).sum();
    let lacking = samples - all.iter().map(|own| own.holding(&key)).sum::<usize>();
    if lacking == samples {
        all.iter().try_for_each(|own| {
            own.require(&[&key], &format!("the strategy `{}`", strategy.name()))
        })?;
    }
    let note = format!("{lacking} of {samples} samples have no `{key}` and teach the video alone");
    Ok(if lacking > 0 { vec![note] } else { Vec::new() })
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

/// How many samples each folder holds out: as many of `held_out` as it has of all, to the nearest, and never its last.
///
/// # Errors
/// A folder would be left without a sample to learn from.
fn shares(parts: &[PartConfig], counts: &[usize], held_out: usize) -> Result<Vec<usize>> {
    let all: usize = counts.iter().sum();
    let most: usize = counts.iter().map(|count| count.saturating_sub(1)).sum();
    if held_out > most {
        let (_, part) = counts.iter().zip(parts).min_by_key(|(count, _)| **count).expect("one");
        return Err(Error::Recipe(format!(
            "data.held_out is {held_out} of {all} samples, which would leave folders of `data.source.of` without any to \
             learn from, like {}; hold out {most} at the most",
            part.path
        )));
    }
    let mut shares = vec![0; counts.len()];
    for _ in 0..held_out {
        // The one that is furthest behind its share; of equals the first.
        let behind = |at: usize| {
            let (own, count) = (shares[at], counts[at]);
            (held_out * count) as f64 / all as f64 - own as f64
        };
        let free = (0..counts.len()).rev().filter(|at| shares[*at] + 1 < counts[*at]);
        let next = free.max_by(|a, b| behind(*a).total_cmp(&behind(*b)));
        shares[next.expect("there are enough")] += 1;
    }
    Ok(shares)
}

/// The places of the samples of all folders, those that are held out behind those that are learnt from.
fn held_out_last(counts: &[usize], held_out: &[usize]) -> Vec<usize> {
    let (mut places, mut last) = (Vec::new(), Vec::new());
    let mut first = 0;
    for (count, held_out) in counts.iter().zip(held_out) {
        let end = first + count;
        places.extend(first..end - held_out);
        last.extend(end - held_out..end);
        first = end;
    }
    places.extend(last);
    places
}

/// How often each folder is seen: what is said, or the fewest whole numbers that come near the weights, where each has
/// so many samples to learn from.
///
/// # Errors
/// One would have to be seen too often.
fn repeats(parts: &[PartConfig], counts: &[usize]) -> Result<Vec<u64>> {
    let weights: Option<Vec<f64>> = parts.iter().map(|part| part.weight).collect();
    let Some(weights) = weights else {
        return Ok(parts.iter().map(|part| part.repeats.unwrap_or(1)).collect());
    };
    let each = weights.iter().zip(counts).map(|(weight, count)| weight / (*count).max(1) as f64);
    let each: Vec<f64> = each.collect();
    let least = each.iter().copied().fold(f64::INFINITY, f64::min);
    let of =
        |times: u64| -> Vec<f64> { each.iter().map(|own| own / least * times as f64).collect() };
    let fits = |wanted: &f64| {
        (wanted.round() / wanted - 1.0).abs() <= TOLERANCE && wanted.round() <= MOST_REPEATS as f64
    };
    match (1..=100).map(of).find(|all| all.iter().all(fits)) {
        Some(found) => Ok(found.iter().map(|wanted| wanted.round() as u64).collect()),
        None => {
            let own = each.iter().zip(parts).max_by(|(a, _), (b, _)| a.total_cmp(b));
            let path = own.map_or("", |(_, part)| part.path.as_str());
            Err(Error::Recipe(format!(
                "data.source.of: the weights ask for each sample of {path} more than {MOST_REPEATS} times as often as \
                 for others, which no epoch holds; give it a smaller weight, or others a larger one"
            )))
        }
    }
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
            repeats(&parts, counts).unwrap()
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
        let said = repeats(&[part(Some(3), None), part(None, None)], &[5, 5]);
        assert_eq!(said.unwrap(), [3, 1]);
    }

    /// A ratio that no epoch holds is refused by the name of the folder, and not cut down.
    #[test]
    fn ratios_beyond_all_repeats_are_refused() {
        let of = |weights: [f64; 2], counts: [usize; 2]| {
            let [mut a, mut b] = weights.map(|weight| part(None, Some(weight)));
            (a.path, b.path) = ("a".to_owned(), "b".to_owned());
            repeats(&[a, b], &counts)
        };
        assert_eq!(of([1.0, 10_000.0], [3, 3]).unwrap(), [1, 10_000]);
        assert_eq!(of([1.0, 150.3], [1, 1]).unwrap(), [1, 150]);
        for (weights, counts) in [
            ([1.0, 10_001.0], [3, 3]),
            ([1.0, 1.0], [30_000, 2]),
            ([1e-300, 1e300], [1, 1]),
            ([5e-324, 1.0], [2, 2]),
        ] {
            let refused = of(weights, counts).unwrap_err().to_string();
            assert!(refused.contains("sample of b more than 10000 times"), "{refused}");
        }
    }

    /// Every folder holds out its share, so that weights are those of what is learnt.
    #[test]
    fn folders_hold_out_their_shares() {
        let parts = [part(None, Some(0.5)), part(None, Some(0.5))];
        let share = |counts: [usize; 2], held_out| shares(&parts, &counts, held_out);
        for (counts, held_out, wanted) in [
            ([15, 6], 0, [0, 0]),
            ([15, 6], 5, [4, 1]),
            ([15, 6], 6, [4, 2]),
            ([15, 6], 19, [14, 5]),
            ([1, 9], 5, [0, 5]),
            ([4, 4], 1, [1, 0]),
        ] {
            let found = share(counts, held_out).unwrap();
            assert_eq!(found, wanted, "{held_out} of {counts:?}");
            let learnt = [counts[0] - found[0], counts[1] - found[1]];
            let repeats = repeats(&parts, &learnt).unwrap();
            let seen = [0, 1].map(|at| learnt[at] as f64 * repeats[at] as f64);
            assert!((seen[0] / seen[1] - 1.0).abs() <= 2.5 * TOLERANCE, "{held_out}: {seen:?}");
        }
        let refused = share([15, 6], 20).unwrap_err().to_string();
        assert!(refused.contains("hold out 19 at the most"), "{refused}");
        assert_eq!(held_out_last(&[3, 2], &[1, 1]), [0, 1, 3, 2, 4]);
        assert_eq!(held_out_last(&[3, 2], &[0, 0]), [0, 1, 2, 3, 4]);
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
