//! What carries posts from rank to rank: threads of one process, or processes of many machines.

use std::sync::Arc;
use std::time::Duration;

use crate::call::Call;
use crate::error::{Error, Result};
use crate::parcel::Parcel;

/// The way of a post. Ranks are those of the world.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    pub(crate) group: Arc<str>,
    pub(crate) channel: Channel,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

/// Collectives and messages do not overtake themselves, but each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Channel {
    Collectives,
    Messages,
}

/// A header with what it announces. Nothing is taken from a post whose header does not agree.
pub(crate) struct Post {
    pub(crate) call: Call,
    pub(crate) parcels: Vec<Parcel>,
}

/// What a rank does now and then while it waits, if anything.
pub(crate) type Meanwhile<'a> = Option<&'a mut dyn FnMut()>;

/// Ranks that can reach each other.
pub(crate) trait Link: Send + Sync {
    /// How many there are.
    fn size(&self) -> usize;

    /// Sends a post on its way and returns at once.
    ///
    /// # Errors
    /// The world is broken.
    fn post(&self, slot: Slot, post: Post) -> Result<()>;

    /// Waits for one post on each of the ways, all of which end at `rank`, compares their headers with
    /// `call`, and takes what they announce; does something now and then while it waits.
    ///
    /// # Errors
    /// A header differs, a rank does not come, or the world is broken.
    fn collect(
        &self,
        at: (usize, &[Slot]),
        call: &Call,
        meanwhile: Meanwhile<'_>,
    ) -> Result<Vec<Vec<Parcel>>>;

    /// The rank says how far it is.
    fn tell(&self, rank: usize, done: f64);

    /// How far a rank last said that it is, as far as that is known here.
    fn told(&self, rank: usize) -> Option<f64>;

    /// Breaks the world: whoever waits wakes up with the error. The first failure stays, and is returned.
    fn fail(&self, rank: usize, error: Error) -> Error;

    /// The rank enters work that may take up to `limit`.
    fn start_work(&self, rank: usize, what: &str, limit: Duration);

    /// The rank leaves the work it announced last.
    fn finish_work(&self, rank: usize);

    /// The same ranks in a world within this one, by its number from 1 on: what fails there leaves this one whole.
    fn within(&self, number: u64) -> Arc<dyn Link>;

    /// The rank makes no further calls here.
    fn end(&self, rank: usize);

    /// Waits until no other rank makes further calls here, for each as long as for one that is missed in `call`.
    ///
    /// # Errors
    /// A rank does not come to its end.
    fn wait_for_ends(&self, rank: usize, call: &Call) -> Result<()>;

    /// Lets go of the worlds within this one that all ranks have left.
    fn forget_ended(&self);

    /// Says to all ranks that what is done here is not wanted any more.
    fn call_off(&self);

    /// Whether a rank has said so, or the world is broken.
    fn is_called_off(&self) -> bool;
}
