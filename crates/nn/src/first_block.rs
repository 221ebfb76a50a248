//! The first-block cache: where the first block does to its tokens nearly what it did a step ago, the other
//! blocks are taken to do what they did, too, and are not run.
//!
//! What the first block does is always computed and kept in the stream; what all others added is taken from
//! the last step that ran them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::Tensor;

use crate::error::Result;
use crate::fold::Forward;
use crate::inputs::{Inputs, Prediction};
use crate::network::Network;
use crate::packed::{EntryPart, EntryValues, Kind, Packed};
use crate::weights::Weights;

/// What is kept from step to step of one run of a sampler.
#[derive(Debug)]
pub struct FirstBlockCache {
    threshold: f64,
    own: Mutex<State>,
}

/// What a cache saved and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheReport {
    /// Passes through the network.
    pub passes: usize,
    /// Those of which only the first block was run.
    pub skipped: usize,
    /// By how much what was left out had changed when it was run again, of its own size; the largest.
    pub drift: f64,
}

impl CacheReport {
    /// Both together.
    #[must_use]
    pub fn and(self, other: CacheReport) -> CacheReport {
        CacheReport {
            passes: self.passes + other.passes,
            skipped: self.skipped + other.skipped,
            drift: self.drift.max(other.drift),
        }
    }
}

/// Adds up numbers over all who hold a part of the tokens.
pub type Sum<'a> = &'a (dyn Fn([f64; 2]) -> Result<[f64; 2]> + Send + Sync);

#[derive(Debug, Default)]
struct State {
    /// Who took the last step, and with how many branches.
    last: Option<(usize, usize)>,
    /// By the place of a branch in its step.
    branches: BTreeMap<usize, Kept>,
    /// Of steps of several branches, and of steps of one.
    reports: [CacheReport; 2],
}

impl State {
    /// Where the step at hand is counted.
    fn report(&mut self) -> &mut CacheReport {
        let is_lone = self.last.is_some_and(|(_, branches)| branches == 1);
        &mut self.reports[usize::from(is_lone)]
    }
}

/// What the last step that was run in full left of a branch.
#[derive(Clone, Debug)]
struct Kept {
    /// What the first block added.
    first: Vec<EntryPart>,
    /// What all others added, or made anew.
    rest: Vec<Rest>,
    /// Whether it was used since.
    was_used: bool,
}

#[derive(Clone, Debug)]
enum Rest {
    Added(EntryPart),
    Made(EntryPart),
}

impl FirstBlockCache {
    /// Leaves blocks out where the first one's change differs by less than `threshold` of itself.
    pub fn new(threshold: f64) -> FirstBlockCache {
        FirstBlockCache { threshold, own: Mutex::default() }
    }

    /// A step that network number `expert` takes with so many branches. The last of a run is taken in full:
    /// the end is what is seen, and it tells how far off the steps before were.
    pub fn step<'a>(
        &'a self,
        network: &'a dyn Network,
        (expert, branches): (usize, usize),
        is_last: bool,
        sum: Sum<'a>,
    ) -> CachedStep<'a> {
        let mut own = self.lock();
        if own.last != Some((expert, branches)) {
            own.branches.clear();
        }
        own.last = Some((expert, branches));
        CachedStep { network, cache: self, sum, is_last, pass: Mutex::default() }
    }

    /// What it saved so far, and what that cost. Of ranks that share branches, all take a step of one branch, and one of
    /// them `counts` it.
    pub fn report(&self, counts: bool) -> CacheReport {
        let [shared, lone] = self.lock().reports;
        if counts { shared.and(lone) } else { shared }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The network of one step.
pub struct CachedStep<'a> {
    network: &'a dyn Network,
    cache: &'a FirstBlockCache,
    sum: Sum<'a>,
    is_last: bool,
    pass: Mutex<Pass>,
}

/// Where a step is.
#[derive(Default)]
struct Pass {
    /// Branches that were begun.
    begun: usize,
    /// What the first block added, and the stream after it, if the other blocks are run.
    running: Option<(Vec<EntryPart>, Packed)>,
}

impl CachedStep<'_> {
    fn pass(&self) -> MutexGuard<'_, Pass> {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stream after the first block; decides whether the others are run.
    fn first(&self, stream: Packed, pass: Forward<'_, Packed>) -> Result<Packed> {
        let after = self.network.block(0, stream.clone(), pass)?;
        let added = added(&after, &stream);
        let branch = self.pass().begun - 1;
        let kept = self.cache.lock().branches.get(&branch).cloned();
        let is_near = match (&kept, self.is_last) {
            (Some(kept), false) => {
                let changed = (self.sum)(distance(&added, &kept.first))?;
                changed[0] < self.cache.threshold * changed[1]
            }
            _ => false,
        };
        let mut own = self.cache.lock();
        own.report().passes += 1;
        if is_near {
            own.report().skipped += 1;
            if let Some(kept) = own.branches.get_mut(&branch) {
                kept.was_used = true;
            }
        }
        self.pass().running = (!is_near).then(|| (added, after.clone()));
        Ok(after)
    }

    /// The stream after the last block, which was run: what all but the first did is kept.
    fn keep(&self, first: Vec<EntryPart>, after: Packed, end: &Packed) -> Result<()> {
        let branch = self.pass().begun - 1;
        let rest = rest(end, after);
        let before = self.cache.lock().branches.get(&branch).cloned();
        if let Some(before) = before.filter(|before| before.was_used) {
            let [off, size] = (self.sum)(drift(&rest, &before.rest))?;
            let mut own = self.cache.lock();
            let report = own.report();
            report.drift = report.drift.max(if size > 0.0 { off / size } else { 0.0 });
        }
        self.cache.lock().branches.insert(branch, Kept { first, rest, was_used: false });
        Ok(())
    }

    /// The stream as the blocks that were not run would have left it.
    fn end(&self, stream: Packed) -> Result<Packed> {
        let branch = self.pass().begun - 1;
        let kept = self.cache.lock().branches.get(&branch).cloned();
        let Some(kept) = kept else { return Ok(stream) };
        let now = stream.into_parts();
        let parts = kept.rest.into_iter().map(|rest| match rest {
            Rest::Made(part) => part,
            Rest::Added(part) => match (floats(&part), find(&now, &part.name)) {
                (Some(added), Some(own)) => {
                    EntryPart { values: EntryValues::Floats(own + added), ..part }
                }
                _ => part,
            },
        });
        Packed::of_parts(parts.collect())
    }
}

impl Network for CachedStep<'_> {
    fn depth(&self) -> usize {
        self.network.depth()
    }

    fn heads(&self) -> usize {
        self.network.heads()
    }

    fn declare(&self, weights: &Weights<'_>) -> Result<()> {
        self.network.declare(weights)
    }

    fn shared(&self, weights: &Weights<'_>, inputs: &Inputs) -> Result<Packed> {
        let begun = self.pass().begun + 1;
        *self.pass() = Pass { begun, running: None };
        self.network.shared(weights, inputs)
    }

    fn embed(&self, weights: &Weights<'_>, inputs: &Inputs, shared: &Packed) -> Result<Packed> {
        self.network.embed(weights, inputs, shared)
    }

    fn block(&self, index: usize, stream: Packed, pass: Forward<'_, Packed>) -> Result<Packed> {
        let is_last = index + 1 == self.network.depth();
        // A network of one block has nothing to leave out.
        if self.network.depth() == 1 {
            return self.network.block(index, stream, pass);
        }
        if index == 0 {
            return self.first(stream, pass);
        }
        let is_running = self.pass().running.is_some();
        match (is_running, is_last) {
            (false, false) => Ok(stream),
            (false, true) => self.end(stream),
            (true, false) => self.network.block(index, stream, pass),
            (true, true) => {
                let end = self.network.block(index, stream, pass)?;
                let run = self.pass().running.take();
                run.map_or(Ok(()), |(first, after)| self.keep(first, after, &end))?;
                Ok(end)
            }
        }
    }

    fn head(&self, weights: &Weights<'_>, stream: Packed, shared: &Packed) -> Result<Prediction> {
        self.network.head(weights, stream, shared)
    }
}

fn floats(part: &EntryPart) -> Option<Tensor<1>> {
    match (&part.values, part.kind) {
        (EntryValues::Floats(values), Kind::Differentiable) => Some(values.clone()),
        _ => None,
    }
}

/// The floats of an entry, by its name.
fn find(parts: &[EntryPart], name: &str) -> Option<Tensor<1>> {
    parts.iter().find(|part| part.name == name).and_then(floats)
}

/// What a block added to the entries that it was given, and what it made anew.
fn added(after: &Packed, before: &Packed) -> Vec<EntryPart> {
    let before = before.clone().into_parts();
    let parts = after.clone().into_parts().into_iter().filter(|part| floats(part).is_some());
    let change = |part: EntryPart| match (floats(&part), find(&before, &part.name)) {
        (Some(now), Some(then)) if now.dims() == then.dims() => {
            EntryPart { values: EntryValues::Floats(now - then), ..part }
        }
        _ => part,
    };
    parts.map(change).collect()
}

/// What the blocks between two streams did.
fn rest(end: &Packed, after: Packed) -> Vec<Rest> {
    let after = after.into_parts();
    let parts = end.clone().into_parts().into_iter();
    let change = |part: EntryPart| match (floats(&part), find(&after, &part.name)) {
        (Some(now), Some(then)) if now.dims() == then.dims() => {
            Rest::Added(EntryPart { values: EntryValues::Floats(now - then), ..part })
        }
        _ => Rest::Made(part),
    };
    parts.map(change).collect()
}

/// The sum of the differences, and of the sizes of the second.
fn distance(now: &[EntryPart], then: &[EntryPart]) -> [f64; 2] {
    let mut sums = [0.0; 2];
    for part in now {
        let (Some(now), Some(then)) = (floats(part), find(then, &part.name)) else { continue };
        sums[0] += size(now - then.clone());
        sums[1] += size(then);
    }
    sums
}

fn drift(now: &[Rest], then: &[Rest]) -> [f64; 2] {
    let parts = |rest: &[Rest]| -> Vec<EntryPart> {
        let part = |rest: &Rest| match rest {
            Rest::Added(part) | Rest::Made(part) => part.clone(),
        };
        rest.iter().map(part).collect()
    };
    // By the size of what should have been there.
    distance(&parts(then), &parts(now))
}

/// The sum of absolute values.
fn size(values: Tensor<1>) -> f64 {
    values.abs().into_data().iter::<f32>().map(f64::from).sum()
}
