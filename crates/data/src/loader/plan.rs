//! Which samples are in which batch of which epoch.

use std::collections::BTreeMap;

use diffusion::Draw;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LoaderOptions, Replica, Samples};
use crate::error::{Error, Result};

/// A place in the endless sequence of batches.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Cursor {
    /// How often all samples were seen.
    pub epoch: u64,
    /// The batch within the epoch.
    pub position: u64,
}

/// What becomes of the samples of a group that fill no batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Partial {
    /// They are a smaller batch: each sample is seen once per epoch.
    #[default]
    Keep,
    /// They wait for another epoch: each batch is full.
    Drop,
}

/// The order of all epochs.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Samples that can be stacked, by group.
    groups: BTreeMap<String, Vec<usize>>,
    batch: usize,
    partial: Partial,
    draw: Draw,
}

impl Plan {
    /// Groups the samples.
    ///
    /// # Errors
    /// There are none, a batch has none, or a part of some batch would have none.
    pub fn new(samples: &dyn Samples, options: LoaderOptions, replica: Replica) -> Result<Plan> {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for index in 0..samples.count() {
            groups.entry(samples.group(index)).or_default().push(index);
        }
        let draw = Draw::new(options.seed).stream("shuffle");
        let plan = Plan { groups, batch: options.batch, partial: options.partial, draw };
        plan.check_replicas(replica)?;
        Ok(plan)
    }

    fn check_replicas(&self, replica: Replica) -> Result<()> {
        let Replica { rank, world } = replica;
        let refuse = |reason: String| Err(Error::Loader { reason });
        if rank >= world {
            return refuse(format!("rank {rank} is not one of {world}"));
        }
        if self.batch < world {
            let batch = self.batch;
            return refuse(format!(
                "a batch of {batch} cannot be cut into {world} parts; set batch to at least {}",
                world.max(1)
            ));
        }
        if self.batches_per_epoch() == 0 {
            let largest = self.groups.values().map(Vec::len).max().unwrap_or(0);
            return refuse(match largest {
                0 => "there are no samples".to_owned(),
                _ => format!(
                    "no {} samples have the same size, the most are {largest}, so every batch would \
                     be dropped; lower batch, or set partial to keep",
                    self.batch
                ),
            });
        }
        let rest = |group: &Vec<usize>| group.len() % self.batch;
        let too_small = |group: &&Vec<usize>| (1..world).contains(&rest(group));
        match self.groups.values().find(too_small).filter(|_| self.partial == Partial::Keep) {
            Some(group) => refuse(format!(
                "the last batch of a group of {} has {} samples, too few for {world} parts; \
                 set partial to drop, or choose another batch than {}",
                group.len(),
                rest(group),
                self.batch
            )),
            None => Ok(()),
        }
    }

    /// How many batches an epoch has; all have the same.
    pub fn batches_per_epoch(&self) -> u64 {
        let batches = |group: &Vec<usize>| match self.partial {
            Partial::Keep => group.len().div_ceil(self.batch),
            Partial::Drop => group.len() / self.batch,
        };
        self.groups.values().map(batches).sum::<usize>() as u64
    }

    /// How many samples each group has, by the name of its shapes.
    pub fn groups(&self) -> impl Iterator<Item = (&str, usize)> {
        self.groups.iter().map(|(name, group)| (name.as_str(), group.len()))
    }

    /// The batches of an epoch, in order; each is a list of samples.
    pub fn epoch(&self, epoch: u64) -> Vec<Vec<usize>> {
        let draw = self.draw.step(epoch);
        let mut batches = Vec::new();
        for group in self.groups.values() {
            let group = shuffled(group, draw.stream("samples"));
            let chunks = group.chunks(self.batch).map(<[usize]>::to_vec);
            let is_wanted =
                |chunk: &Vec<usize>| self.partial == Partial::Keep || chunk.len() == self.batch;
            batches.extend(chunks.filter(is_wanted));
        }
        let order: Vec<usize> = (0..batches.len()).collect();
        let order = shuffled(&order, draw.stream("batches"));
        order.into_iter().map(|batch| std::mem::take(&mut batches[batch])).collect()
    }

    /// The place after this one.
    pub fn after(&self, cursor: Cursor) -> Cursor {
        match cursor.position + 1 < self.batches_per_epoch() {
            true => Cursor { position: cursor.position + 1, ..cursor },
            false => Cursor { epoch: cursor.epoch + 1, position: 0 },
        }
    }

    /// Refuses a cursor of another dataset or batch size.
    pub(super) fn check(&self, cursor: Cursor) -> Result<()> {
        let batches = self.batches_per_epoch();
        match cursor.position < batches {
            true => Ok(()),
            false => Err(Error::Loader {
                reason: format!(
                    "the run stopped before batch {} of an epoch, but an epoch has {batches}; resume \
                     with the same dataset and batch",
                    cursor.position
                ),
            }),
        }
    }
}

/// The items in a random order. An item's place depends on its own draw, so that nothing depends on
/// how the items came.
fn shuffled(items: &[usize], draw: Draw) -> Vec<usize> {
    let mut keyed: Vec<(u64, usize)> = items
        .iter()
        .map(|&item| {
            let drawn = draw.sample(item as u64).uniform(0..2);
            // Each has 24 random bits; together they hardly ever tie, and then the item decides.
            let [high, low] = [drawn[0], drawn[1]].map(|x| (x * (1 << 24) as f32) as u64);
            (high << 24 | low, item)
        })
        .collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, item)| item).collect()
}
