//! One rank's view of a group, and the calls it can make.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::Tensor;

use crate::call::{Call, Extent, Operation, extents};
use crate::error::{Error, Result};
use crate::hall::Hall;
use crate::link::{Channel, Link, Meanwhile, Post, Slot};
use crate::membership::{Membership, Traffic};
use crate::parcel::{Parcel, Values};

/// How long a rank waits for another unless it is told otherwise.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// A cheap handle to a group, passed around like a device.
#[derive(Clone)]
pub struct Group {
    pub(crate) link: Arc<dyn Link>,
    pub(crate) own: Arc<Membership>,
    label: Option<Arc<str>>,
}

impl Group {
    /// A group of one: every exchange is the identity.
    pub fn solo() -> Group {
        Group::world(Arc::new(Hall::new(1, DEADLINE, true)), "solo", 1, 0)
    }

    /// All ranks of a link, as one of them sees it.
    pub(crate) fn world(link: Arc<dyn Link>, name: &str, size: usize, rank: usize) -> Group {
        let own = Membership::new(name.into(), (0..size).collect(), rank);
        Group { link, own: Arc::new(own), label: None }
    }

    /// This rank, below [`Group::size`].
    pub fn rank(&self) -> usize {
        self.own.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.own.members.len()
    }

    /// This rank in the world, which is what errors call it.
    pub fn world_rank(&self) -> usize {
        self.own.members[self.own.rank]
    }

    /// The group of some of these ranks, of which this is one. Nothing is exchanged: every member says
    /// the same, in the same order as its other splits.
    ///
    /// # Panics
    /// Panics if this rank is not among them, or one of them is not of this group.
    pub fn split(&self, name: &str, members: &[usize]) -> Group {
        let world: Vec<usize> = members.iter().map(|rank| self.own.members[*rank]).collect();
        let rank = members.iter().position(|rank| *rank == self.rank());
        let rank = rank.expect("a rank splits off groups that it belongs to");
        let name = self.own.unique(&format!("{name} {world:?}"));
        let own = Arc::new(Membership::new(name.into(), world, rank));
        Group { link: Arc::clone(&self.link), own, label: None }
    }

    /// The same group, whose calls say what they are about. Peers compare it, so that two exchanges
    /// of one shape cannot be mixed up.
    pub fn named(&self, label: impl Into<Arc<str>>) -> Group {
        Group { label: Some(label.into()), ..self.clone() }
    }

    /// What its calls are about.
    pub fn label(&self) -> Option<&str> {
        self.label.as_deref()
    }

    /// What this rank has sent to the others of the group, and how long it waited for them.
    pub fn traffic(&self) -> Traffic {
        self.own.traffic()
    }

    /// Announces long local work: until the guard is dropped, peers wait for this rank up to `limit`.
    #[must_use = "the work ends when the guard is dropped"]
    pub fn busy(&self, what: &str, limit: Duration) -> Busy {
        let rank = self.world_rank();
        self.link.start_work(rank, what, limit);
        Busy { link: Arc::clone(&self.link), rank }
    }

    /// Sends a tensor to `peer` and goes on at once.
    ///
    /// # Errors
    /// The world is broken, or there is no such peer.
    pub fn send<const D: usize>(&self, peer: usize, tensor: Tensor<D>) -> Result<()> {
        let shape = extents(&tensor, &[]);
        self.send_as(peer, shape, vec![Parcel::of(tensor)])
    }

    /// The next tensor that `peer` sent.
    ///
    /// # Errors
    /// The peer did not send within the deadline, or sent something of another rank or label.
    pub fn recv<const D: usize>(&self, peer: usize) -> Result<Tensor<D>> {
        self.expect(peer)?.wait()
    }

    /// Expects the next tensor of `peer`, to be waited for later: the receive is posted ahead.
    ///
    /// # Errors
    /// There is no such peer.
    pub fn expect<const D: usize>(&self, peer: usize) -> Result<Expected<D>> {
        let (slot, call) = self.incoming(peer, vec![Extent::Any; D])?;
        Ok(Expected { group: self.clone(), slot, call, rank: PhantomData })
    }

    /// Sends several parcels as one message.
    ///
    /// # Errors
    /// The world is broken, or there is no such peer.
    pub fn send_parcels(&self, peer: usize, parcels: Vec<Parcel>) -> Result<()> {
        self.send_as(peer, vec![Extent::Of(parcels.len())], parcels)
    }

    /// The parcels of the next message of `peer`.
    ///
    /// # Errors
    /// As [`Group::recv`].
    pub fn recv_parcels(&self, peer: usize) -> Result<Vec<Parcel>> {
        let (slot, call) = self.incoming(peer, vec![Extent::Any])?;
        self.take(&slot, &call, None)
    }

    /// The same, and does something a few times a second while it waits.
    ///
    /// # Errors
    /// As [`Group::recv`].
    pub fn recv_parcels_while(
        &self,
        peer: usize,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<Vec<Parcel>> {
        let (slot, call) = self.incoming(peer, vec![Extent::Any])?;
        self.take(&slot, &call, Some(meanwhile))
    }

    /// Says how far this rank is, to whoever wants to know: nobody waits for it.
    pub fn tell_progress(&self, done: f64) {
        self.link.tell(self.world_rank(), done);
    }

    /// How far each rank last said that it is, by rank.
    pub fn progress(&self) -> Vec<Option<f64>> {
        self.own.members.iter().map(|rank| self.link.told(*rank)).collect()
    }

    /// Gives `parts[i]` to rank `i`; returns what every rank gave to this one, in rank order.
    ///
    /// Parts may differ in their sizes along the `uneven` dims and in nothing else.
    ///
    /// # Errors
    /// The parts do not fit, or the ranks do not agree or do not come.
    pub fn all_to_all<const D: usize>(
        &self,
        parts: Vec<Tensor<D>>,
        uneven: &[usize],
    ) -> Result<Vec<Tensor<D>>> {
        let call = Operation::AllToAll;
        if parts.len() != self.size() {
            let reason =
                format!("{} parts for {} ranks; give one to each", parts.len(), self.size());
            return Err(self.refuse(call, reason));
        }
        let shapes: Vec<_> = parts.iter().map(|part| extents(part, uneven)).collect();
        let odd = parts
            .iter()
            .zip(&shapes)
            .find(|(part, shape)| **shape != shapes[0] || part.dtype() != parts[0].dtype());
        if let Some((part, _)) = odd {
            let describe = |part: &Tensor<D>| format!("{:?} {:?}", part.dtype(), part.dims());
            let dims: Vec<String> = uneven.iter().map(usize::to_string).collect();
            let reason = format!(
                "its parts {} and {} differ in more than dim {}",
                describe(&parts[0]),
                describe(part),
                dims.join(" and ")
            );
            return Err(self.refuse(call, reason));
        }
        let call = self.collective(call, &parts[0], uneven);
        self.exchange(&call, parts)
    }

    /// Gives `parcels[i]`, however many, to rank `i` as one message, and goes on at once: what every rank gave to
    /// this one is waited for later.
    ///
    /// # Errors
    /// There is not one list for each rank, or the world is broken.
    pub fn trade(&self, parcels: Vec<Vec<Parcel>>) -> Result<Trade> {
        let operation = Operation::AllToAll;
        if parcels.len() != self.size() {
            let (got, ranks) = (parcels.len(), self.size());
            let reason = format!("{got} lists of parcels for {ranks} ranks; give one to each");
            return Err(self.refuse(operation, reason));
        }
        let call = self.counted(self.call(operation, vec![Extent::Any]));
        self.post_all(&call, parcels)?;
        Ok(Trade { group: self.clone(), call })
    }

    /// What every rank gave, in rank order; the tensors may differ in their sizes along the `uneven`
    /// dims.
    ///
    /// # Errors
    /// The ranks do not agree or do not come.
    pub fn all_gather<const D: usize>(
        &self,
        tensor: Tensor<D>,
        uneven: &[usize],
    ) -> Result<Vec<Tensor<D>>> {
        let call = self.collective(Operation::AllGather, &tensor, uneven);
        self.exchange(&call, vec![tensor; self.size()])
    }

    /// The sum over all ranks, added up in rank order, so that all hold the same bits whoever adds: each
    /// rank adds a share, which the others get.
    ///
    /// # Errors
    /// The ranks do not agree or do not come.
    pub fn all_reduce<const D: usize>(&self, tensor: Tensor<D>) -> Result<Tensor<D>> {
        let call = self.collective(Operation::AllReduce, &tensor, &[]);
        let shape = tensor.dims();
        let count = shape.iter().product::<usize>();
        if count < self.size() {
            return self.reduce(&call, vec![tensor; self.size()]);
        }
        let flat = tensor.reshape([count]);
        let own = self.reduce(&call, self.cut(&flat))?;
        let all = self.exchange(&call, vec![own; self.size()])?;
        Ok(Tensor::cat(all, 0).reshape(shape))
    }

    /// Adds up what every rank gives for rank `i`, `parts[i]`, and returns what is this rank's; sums are in
    /// rank order. Parts may differ in their size along the `uneven` dims.
    ///
    /// # Errors
    /// The parts do not fit, or the ranks do not agree or do not come.
    pub fn reduce_scatter<const D: usize>(
        &self,
        parts: Vec<Tensor<D>>,
        uneven: &[usize],
    ) -> Result<Tensor<D>> {
        let operation = Operation::ReduceScatter;
        if parts.len() != self.size() {
            let reason =
                format!("{} parts for {} ranks; give one for each", parts.len(), self.size());
            return Err(self.refuse(operation, reason));
        }
        let call = self.collective(operation, &parts[0], uneven);
        self.reduce(&call, parts)
    }

    /// What rank `root` gives; the others give nothing.
    ///
    /// # Errors
    /// The root gave nothing, or the ranks do not agree or do not come.
    pub fn broadcast<const D: usize>(
        &self,
        root: usize,
        tensor: Option<Tensor<D>>,
    ) -> Result<Tensor<D>> {
        let operation = Operation::Broadcast { root };
        self.check_peer(root, operation)?;
        let parcel = match (self.rank() == root, tensor) {
            (true, Some(tensor)) => Parcel::of(tensor),
            (true, None) => {
                return Err(self.refuse(operation, "the root gives nothing".to_owned()));
            }
            (false, _) => Parcel { name: "".into(), shape: Vec::new(), values: Values::Nothing },
        };
        let call = self.counted(self.call(operation, vec![Extent::Any; D]));
        let mut all = self.swap(&call, vec![parcel; self.size()])?;
        Ok(all.swap_remove(root).open())
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// The ranks do not come.
    pub fn barrier(&self) -> Result<()> {
        let call = self.counted(self.call(Operation::Barrier, Vec::new()));
        let nothing = Parcel { name: "".into(), shape: Vec::new(), values: Values::Nothing };
        self.swap(&call, vec![nothing; self.size()]).map(drop)
    }

    /// The shares of a row that each rank adds up.
    fn cut(&self, flat: &Tensor<1>) -> Vec<Tensor<1>> {
        let [count] = flat.dims();
        let part = |rank: usize| {
            let Range { start, end } = share(count, rank, self.size());
            flat.clone().narrow(0, start, end - start)
        };
        (0..self.size()).map(part).collect()
    }

    /// The sum of what every rank gave to this one, in rank order.
    fn reduce<const D: usize>(&self, call: &Call, parts: Vec<Tensor<D>>) -> Result<Tensor<D>> {
        let sum = self.exchange(call, parts)?.into_iter().reduce(|sum, part| sum + part);
        Ok(sum.expect("a group has at least one rank"))
    }

    /// Gives `parts[i]` to rank `i`.
    fn exchange<const D: usize>(
        &self,
        call: &Call,
        parts: Vec<Tensor<D>>,
    ) -> Result<Vec<Tensor<D>>> {
        // What is sent is outside any graph: ranks must not share one.
        let received = self.swap(call, parts.into_iter().map(Parcel::of).collect())?;
        Ok(received.into_iter().map(Parcel::open).collect())
    }

    fn swap(&self, call: &Call, parcels: Vec<Parcel>) -> Result<Vec<Parcel>> {
        let parcels = parcels.into_iter().map(|parcel| vec![parcel]).collect();
        self.post_all(call, parcels)?;
        Ok(self.collect_all(call)?.into_iter().flatten().collect())
    }

    /// Posts `parcels[i]` to rank `i`.
    fn post_all(&self, call: &Call, parcels: Vec<Vec<Parcel>>) -> Result<()> {
        let own = self.world_rank();
        for (to, parcels) in self.own.members.iter().zip(parcels) {
            self.own.sent(*to, parcels.iter().map(Parcel::bytes).sum());
            let post = Post { call: call.clone(), parcels };
            self.link.post(self.slot(Channel::Collectives, own, *to), post)?;
        }
        Ok(())
    }

    /// What every rank has posted to this one, in rank order.
    fn collect_all(&self, call: &Call) -> Result<Vec<Vec<Parcel>>> {
        let own = self.world_rank();
        let slot = |from: &usize| self.slot(Channel::Collectives, *from, own);
        let slots: Vec<Slot> = self.own.members.iter().map(slot).collect();
        self.own.waiting(|| self.link.collect((own, &slots), call, None))
    }

    fn slot(&self, channel: Channel, from: usize, to: usize) -> Slot {
        Slot { group: self.own.name.clone(), channel, from, to }
    }

    fn send_as(&self, peer: usize, shape: Vec<Extent>, parcels: Vec<Parcel>) -> Result<()> {
        let operation = Operation::Message { from: self.rank(), to: peer };
        self.check_peer(peer, operation)?;
        let dtype = parcels.first().filter(|_| parcels.len() == 1).and_then(Parcel::dtype);
        let sequence = self.own.next_sent(peer);
        let call = Call { dtype, sequence, ..self.call(operation, shape) };
        let (from, to) = (self.world_rank(), self.own.members[peer]);
        self.own.sent(to, parcels.iter().map(Parcel::bytes).sum());
        self.link.post(self.slot(Channel::Messages, from, to), Post { call, parcels })
    }

    /// The way and the header of the next message of `peer`.
    fn incoming(&self, peer: usize, shape: Vec<Extent>) -> Result<(Slot, Call)> {
        let operation = Operation::Message { from: peer, to: self.rank() };
        self.check_peer(peer, operation)?;
        let sequence = self.own.next_received(peer);
        let call = Call { sequence, ..self.call(operation, shape) };
        let (from, to) = (self.own.members[peer], self.world_rank());
        Ok((self.slot(Channel::Messages, from, to), call))
    }

    fn take(&self, slot: &Slot, call: &Call, meanwhile: Meanwhile<'_>) -> Result<Vec<Parcel>> {
        let slots = std::slice::from_ref(slot);
        let mut posts =
            self.own.waiting(|| self.link.collect((slot.to, slots), call, meanwhile))?;
        Ok(posts.remove(0))
    }

    pub(crate) fn call(&self, operation: Operation, shape: Vec<Extent>) -> Call {
        let (group, label) = (self.own.name.clone(), self.label.clone());
        Call { operation, sequence: 0, group, label, dtype: None, shape }
    }

    /// The next collective, about tensors like this one.
    fn collective<const D: usize>(
        &self,
        operation: Operation,
        like: &Tensor<D>,
        uneven: &[usize],
    ) -> Call {
        let call = self.call(operation, extents(like, uneven));
        self.counted(Call { dtype: Some(like.dtype()), ..call })
    }

    fn counted(&self, call: Call) -> Call {
        Call { sequence: self.own.next_collective(), ..call }
    }

    /// Breaks the world, so that the peers need not wait for a call that will not come.
    pub(crate) fn refuse(&self, operation: Operation, reason: String) -> Error {
        let (rank, operation) = (self.world_rank(), operation.to_string());
        self.link.fail(rank, Error::Refused { rank, operation, reason })
    }

    fn check_peer(&self, peer: usize, operation: Operation) -> Result<()> {
        if peer < self.size() {
            return Ok(());
        }
        let reason = format!("there is no rank {peer} in a group of {}", self.size());
        Err(self.refuse(operation, reason))
    }
}

/// The part of `count` things that is `rank`'s of `ranks`: neighbours stay together, and the first ranks
/// have one more where it does not come out even.
pub fn share(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    let start = |rank: usize| rank * (count / ranks) + rank.min(count % ranks);
    start(rank)..start(rank + 1)
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} in group `{}`", self.rank(), self.size(), self.own.name)
    }
}

/// A tensor that is on its way.
#[must_use = "what is expected must be waited for"]
pub struct Expected<const D: usize> {
    group: Group,
    slot: Slot,
    call: Call,
    rank: PhantomData<Tensor<D>>,
}

impl<const D: usize> Expected<D> {
    /// The tensor.
    ///
    /// # Errors
    /// The peer did not send within the deadline, or sent something of another rank or label.
    pub fn wait(self) -> Result<Tensor<D>> {
        let mut parcels = self.group.take(&self.slot, &self.call, None)?;
        Ok(parcels.remove(0).open())
    }
}

/// Parcels that are on their way between all ranks of a group.
#[must_use = "what is given must be waited for"]
pub struct Trade {
    group: Group,
    call: Call,
}

impl Trade {
    /// What every rank gave to this one, in rank order.
    ///
    /// # Errors
    /// The ranks do not agree or do not come.
    pub fn wait(self) -> Result<Vec<Vec<Parcel>>> {
        self.group.collect_all(&self.call)
    }
}

/// Long work that was announced; it ends when this is dropped.
pub struct Busy {
    link: Arc<dyn Link>,
    rank: usize,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.link.finish_work(self.rank);
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_cover_everything_once_and_differ_by_one_at_most() {
        for (count, ranks) in [(8, 4), (13, 4), (3, 3), (7, 1), (5, 4), (2, 4), (0, 3)] {
            let shares: Vec<_> = (0..ranks).map(|rank| share(count, rank, ranks)).collect();
            assert_eq!(
                shares.iter().cloned().flatten().collect::<Vec<_>>(),
                Vec::from_iter(0..count)
            );
            assert!(shares.iter().all(|share| share.len().abs_diff(count / ranks) <= 1));
        }
        assert_eq!(share(13, 0, 4), 0..4);
    }
}
