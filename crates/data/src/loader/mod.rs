//! Batches for training: shuffled anew each epoch, only samples of one size together, read ahead.
//!
//! The order is a function of (seed, epoch) and of the dataset. A rank takes its part of every global
//! batch, so the global batches are the same at every world size; and a [`Cursor`] is all that is
//! needed to go on from any batch.
//!
//! What remains of a group of equal sizes that a batch does not divide is one smaller batch
//! ([`Partial::Keep`]), or is left out of this epoch ([`Partial::Drop`]); as each epoch shuffles anew,
//! others are left out in the next.

mod batch;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use burn::tensor::TensorData;
use diffusion::Draw;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use batch::{Drawn, LoadedBatch};
pub use plan::{Cursor, Partial, Plan};

use crate::error::{Error, Result};
use crate::store::{Dataset, Sample, TEXT};

/// Where samples come from.
pub trait Samples: Send + Sync {
    /// How many there are.
    fn count(&self) -> usize;

    /// Samples of one group can be stacked: all their tensors but the texts have the same shapes.
    fn group(&self, index: usize) -> String;

    /// A sample.
    ///
    /// # Errors
    /// It cannot be read.
    fn read(&self, index: usize) -> Result<Sample>;
}

impl Samples for Dataset {
    fn count(&self) -> usize {
        self.len()
    }

    fn group(&self, index: usize) -> String {
        group_name(self.shapes(index))
    }

    fn read(&self, index: usize) -> Result<Sample> {
        Dataset::read(self, index)
    }
}

/// Samples that are kept in memory.
impl Samples for Vec<Sample> {
    fn count(&self) -> usize {
        self.len()
    }

    fn group(&self, index: usize) -> String {
        let tensors = self[index].tensors.iter();
        group_name(tensors.map(|(key, tensor)| (key.as_str(), &tensor.shape()[..])))
    }

    fn read(&self, index: usize) -> Result<Sample> {
        Ok(self[index].clone())
    }
}

/// Texts may differ in length; they are padded when they are stacked.
fn is_text(key: &str) -> bool {
    key.starts_with(TEXT)
}

fn group_name<'a>(shapes: impl Iterator<Item = (&'a str, &'a [usize])>) -> String {
    let part = |(key, shape): (&str, &[usize])| match is_text(key) {
        true => key.to_owned(),
        false => format!("{key}{shape:?}"),
    };
    shapes.map(part).collect::<Vec<_>>().join(" ")
}

/// How batches are made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoaderOptions {
    /// Samples of a global batch.
    pub batch: usize,
    /// Decides the order and which captions are dropped.
    pub seed: u64,
    /// What becomes of a batch that is not full.
    pub partial: Partial,
    /// The share of samples whose caption is replaced by the null text.
    pub caption_dropout: f64,
    /// How many batches are read ahead.
    pub prefetch: usize,
}

impl Default for LoaderOptions {
    fn default() -> LoaderOptions {
        LoaderOptions {
            batch: 1,
            seed: 0,
            partial: Partial::Keep,
            caption_dropout: 0.0,
            prefetch: 2,
        }
    }
}

/// Which replica of the model we feed, and so which part of every batch is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Our place, from 0.
    pub rank: usize,
    /// How many replicas there are.
    pub world: usize,
}

impl Replica {
    /// The only one, which takes the whole batch.
    pub const ONLY: Replica = Replica { rank: 0, world: 1 };

    /// Our places in a batch of the given length: parts are contiguous, and the first ones are longer
    /// by one if it does not divide.
    pub fn places(self, length: usize) -> std::ops::Range<usize> {
        let start = |rank: usize| rank * (length / self.world) + rank.min(length % self.world);
        start(self.rank)..start(self.rank + 1)
    }
}

/// An endless sequence of batches.
pub struct Loader {
    plan: Plan,
    cursor: Cursor,
    replica: Replica,
    /// How many samples each of an epoch's global batches has, of the last epoch that was asked for.
    lengths: Option<(u64, Vec<usize>)>,
    /// Taken when the loader goes, so that the thread notices.
    batches: Option<Receiver<Result<LoadedBatch>>>,
    thread: Option<JoinHandle<()>>,
}

impl Loader {
    /// Batches from a cursor on. `null` holds, for each text key, what stands for a dropped caption,
    /// `[L, D]`.
    ///
    /// # Errors
    /// No samples, a batch of none or smaller than the number of parts, a share that is none, a cursor
    /// beyond the epoch, or captions to drop and nothing to put in their place.
    pub fn new(
        samples: Arc<dyn Samples>,
        null: BTreeMap<String, TensorData>,
        options: LoaderOptions,
        replica: Replica,
        cursor: Cursor,
    ) -> Result<Loader> {
        check_dropout(&*samples, &null, options.caption_dropout)?;
        check_prefetch(options.prefetch)?;
        let plan = Plan::new(&*samples, options, replica)?;
        plan.check(cursor)?;
        let (sender, batches) = sync_channel(options.prefetch.max(1));
        let reader = Reader { samples, null, options, replica, plan: plan.clone() };
        let thread = std::thread::Builder::new()
            .name("loader".to_owned())
            .spawn(move || reader.run(cursor, &sender))
            .map_err(|source| Error::Loader { reason: format!("no thread: {source}") })?;
        let (batches, thread) = (Some(batches), Some(thread));
        Ok(Loader { plan, cursor, replica, lengths: None, batches, thread })
    }

    /// The next batch. Wherever it is read ahead to, the order is that of the plan.
    ///
    /// # Errors
    /// A sample that cannot be read; the loader then stays where it is and gives no more.
    pub fn next_batch(&mut self) -> Result<LoadedBatch> {
        let stopped = || Error::Loader { reason: "it stopped after an earlier error".to_owned() };
        let batches = self.batches.as_ref().ok_or_else(stopped)?;
        let batch = batches.recv().map_err(|_| stopped())??;
        self.cursor = self.plan.after(self.cursor);
        Ok(batch)
    }

    /// How many samples each of the next `batches` global batches has, and where ours begin; none of them is read
    /// for it.
    pub fn ahead(&mut self, batches: usize) -> Vec<(usize, usize)> {
        let Cursor { mut epoch, position } = self.cursor;
        let (mut position, mut ahead) = (position as usize, Vec::new());
        while ahead.len() < batches {
            let (replica, left) = (self.replica, batches - ahead.len());
            let taken = self.lengths(epoch)[position..].iter().take(left);
            ahead.extend(taken.map(|length| (*length, replica.places(*length).start)));
            (position, epoch) = (0, epoch + 1);
        }
        ahead
    }

    fn lengths(&mut self, epoch: u64) -> &[usize] {
        let known = self.lengths.take().filter(|(own, _)| *own == epoch);
        let make = || (epoch, self.plan.epoch(epoch).iter().map(Vec::len).collect());
        let known = known.unwrap_or_else(make);
        &self.lengths.insert(known).1
    }

    /// Where the next batch is: save it with a checkpoint and begin there again.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The plan of all epochs.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // It ends at its next batch; a panic of it was reported by its missing batch.
            let _ = thread.join();
        }
    }
}

/// What the thread needs.
struct Reader {
    samples: Arc<dyn Samples>,
    null: BTreeMap<String, TensorData>,
    options: LoaderOptions,
    replica: Replica,
    plan: Plan,
}

impl Reader {
    /// Reads batches until nobody wants them.
    fn run(&self, mut cursor: Cursor, sender: &SyncSender<Result<LoadedBatch>>) {
        let mut batches = self.plan.epoch(cursor.epoch);
        loop {
            let batch = self.read(cursor, &batches[cursor.position as usize]);
            let failed = batch.is_err();
            if sender.send(batch).is_err() || failed {
                return;
            }
            let next = self.plan.after(cursor);
            if next.epoch != cursor.epoch {
                batches = self.plan.epoch(next.epoch);
            }
            cursor = next;
        }
    }

    fn read(&self, cursor: Cursor, batch: &[usize]) -> Result<LoadedBatch> {
        let places = self.replica.places(batch.len());
        let samples = batch[places.clone()].iter().map(|&index| {
            let dropped = self.drops(cursor.epoch, index);
            Ok((Drawn { index, dropped }, self.samples.read(index)?))
        });
        let samples = samples.collect::<Result<Vec<_>>>()?;
        LoadedBatch::stack(samples, &self.null, (cursor, places, batch.len()))
    }

    /// Whether a sample goes without its caption in an epoch.
    fn drops(&self, epoch: u64, index: usize) -> bool {
        let draw = Draw::new(self.options.seed).stream("caption-dropout");
        let drawn = draw.step(epoch).sample(index as u64).uniform(0..1)[0];
        f64::from(drawn) < self.options.caption_dropout
    }
}

/// No run reads so far ahead.
const MOST_PREFETCH: usize = 1024;

fn check_prefetch(prefetch: usize) -> Result<()> {
    match prefetch <= MOST_PREFETCH {
        true => Ok(()),
        false => {
            let reason =
                format!("prefetch is {prefetch}; read at most {MOST_PREFETCH} batches ahead");
            Err(Error::Loader { reason })
        }
    }
}

fn check_dropout(
    samples: &dyn Samples,
    null: &BTreeMap<String, TensorData>,
    share: f64,
) -> Result<()> {
    let refuse = |reason: String| Err(Error::Loader { reason });
    if !(0.0..=1.0).contains(&share) {
        return refuse(format!("caption dropout {share} is not a share from 0 to 1"));
    }
    if share == 0.0 || samples.count() == 0 {
        return Ok(());
    }
    let sample = samples.read(0)?;
    let mut texts = sample.tensors.keys().filter(|key| is_text(key));
    match texts.find(|key| !null.contains_key(*key)) {
        Some(key) => refuse(format!(
            "caption dropout {share} needs the null text of `{key}`; encode the empty caption, or \
             set caption_dropout to 0"
        )),
        None => Ok(()),
    }
}
