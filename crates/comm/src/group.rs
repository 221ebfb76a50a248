//! One rank's view of a group, and the calls it can make.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use burn::tensor::Tensor;

use crate::call::{Call, Extent, Operation, extents};
use crate::error::{Error, Result};
use crate::hall::{Hall, Payload};

/// How long a rank waits for another unless it is told otherwise.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// A cheap handle to a group, passed around like a device.
#[derive(Clone)]
pub struct Group {
    hall: Arc<Hall>,
    rank: usize,
    label: Option<Arc<str>>,
}

impl Group {
    /// A group of one: every exchange is the identity.
    pub fn solo() -> Group {
        Group::seat(Arc::new(Hall::new("solo", 1, DEADLINE)), 0)
    }

    pub(crate) fn seat(hall: Arc<Hall>, rank: usize) -> Group {
        Group { hall, rank, label: None }
    }

    /// This rank, below [`Group::size`].
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.hall.size
    }

    /// The same group, whose calls say what they are about. Peers compare it, so that two exchanges
    /// of one shape cannot be mixed up.
    pub fn named(&self, label: impl Into<Arc<str>>) -> Group {
        Group { label: Some(label.into()), ..self.clone() }
    }

    /// Announces long local work: until the guard is dropped, peers wait for this rank up to `limit`.
    #[must_use = "the work ends when the guard is dropped"]
    pub fn busy(&self, what: &str, limit: Duration) -> Busy {
        self.hall.start_work(self.rank, what, limit);
        Busy { hall: self.hall.clone(), rank: self.rank }
    }

    /// Sends a tensor to `peer` and goes on at once.
    ///
    /// # Errors
    /// The group is broken, or there is no such peer.
    pub fn send<const D: usize>(&self, peer: usize, tensor: Tensor<D>) -> Result<()> {
        let call = Operation::Message { from: self.rank, to: peer };
        self.check_peer(peer)?;
        let tensor = tensor.inner();
        let call = Call { dtype: Some(tensor.dtype()), ..self.call(call, extents(&tensor, None)) };
        self.hall.send(self.rank, peer, call, Box::new(tensor))
    }

    /// The next tensor that `peer` sent.
    ///
    /// # Errors
    /// The peer did not send within the deadline, or sent something of another rank or label.
    pub fn recv<const D: usize>(&self, peer: usize) -> Result<Tensor<D>> {
        let call = Operation::Message { from: peer, to: self.rank };
        self.check_peer(peer)?;
        let call = self.call(call, vec![Extent::Any; D]);
        Ok(open(self.hall.receive(self.rank, peer, call)?))
    }

    /// Gives `parts[i]` to rank `i`; returns what every rank gave to this one, in rank order.
    ///
    /// Parts may differ in their size along dim `uneven` and in nothing else.
    ///
    /// # Errors
    /// The parts do not fit, or the ranks do not agree or do not come.
    pub fn all_to_all<const D: usize>(
        &self,
        parts: Vec<Tensor<D>>,
        uneven: usize,
    ) -> Result<Vec<Tensor<D>>> {
        let call = Operation::AllToAll;
        if parts.len() != self.size() {
            let reason =
                format!("{} parts for {} ranks; give one to each", parts.len(), self.size());
            return Err(self.refuse(call, reason));
        }
        let shapes: Vec<_> = parts.iter().map(|part| extents(part, Some(uneven))).collect();
        let odd = parts
            .iter()
            .zip(&shapes)
            .find(|(part, shape)| **shape != shapes[0] || part.dtype() != parts[0].dtype());
        if let Some((part, _)) = odd {
            let describe = |part: &Tensor<D>| format!("{:?} {:?}", part.dtype(), part.dims());
            let reason = format!(
                "its parts {} and {} differ in more than dim {uneven}",
                describe(&parts[0]),
                describe(part)
            );
            return Err(self.refuse(call, reason));
        }
        self.exchange(call, parts, Some(uneven))
    }

    /// What every rank gave, in rank order; the tensors may differ in their size along dim `uneven`.
    ///
    /// # Errors
    /// The ranks do not agree or do not come.
    pub fn all_gather<const D: usize>(
        &self,
        tensor: Tensor<D>,
        uneven: usize,
    ) -> Result<Vec<Tensor<D>>> {
        self.exchange(Operation::AllGather, vec![tensor; self.size()], Some(uneven))
    }

    /// The sum over all ranks, added up in rank order on every rank, so that all hold the same bits.
    ///
    /// # Errors
    /// The ranks do not agree or do not come.
    pub fn all_reduce<const D: usize>(&self, tensor: Tensor<D>) -> Result<Tensor<D>> {
        let parts = self.exchange(Operation::AllReduce, vec![tensor; self.size()], None)?;
        let sum = parts.into_iter().reduce(|sum, part| sum + part);
        Ok(sum.expect("a group has at least one rank"))
    }

    /// Gives `parts[i]` to rank `i`, all of one shape but for dim `uneven`.
    fn exchange<const D: usize>(
        &self,
        operation: Operation,
        parts: Vec<Tensor<D>>,
        uneven: Option<usize>,
    ) -> Result<Vec<Tensor<D>>> {
        // A graph must not be shared between ranks.
        let parts: Vec<Tensor<D>> = parts.into_iter().map(Tensor::inner).collect();
        let call = self.call(operation, extents(&parts[0], uneven));
        let call = Call { dtype: Some(parts[0].dtype()), ..call };
        let payloads = parts.into_iter().map(|part| Box::new(part) as Payload).collect();
        let received = self.hall.exchange(self.rank, call, payloads)?;
        Ok(received.into_iter().map(open).collect())
    }

    fn call(&self, operation: Operation, shape: Vec<Extent>) -> Call {
        let (group, label) = (self.hall.name.clone(), self.label.clone());
        Call { operation, sequence: 0, group, label, dtype: None, shape }
    }

    /// Breaks the group, so that the peers need not wait for a call that will not come.
    fn refuse(&self, operation: Operation, reason: String) -> Error {
        let operation = operation.to_string();
        self.hall.fail(self.rank, Error::Refused { rank: self.rank, operation, reason })
    }

    fn check_peer(&self, peer: usize) -> Result<()> {
        if peer < self.size() {
            return Ok(());
        }
        let call = Operation::Message { from: self.rank, to: peer };
        let reason = format!("there is no rank {peer} in a group of {}", self.size());
        Err(self.refuse(call, reason))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} in group `{}`", self.rank, self.size(), self.hall.name)
    }
}

fn open<const D: usize>(payload: Payload) -> Tensor<D> {
    let tensor = payload.downcast::<Tensor<D>>();
    *tensor.unwrap_or_else(|_| unreachable!("the headers agree on {D} dims"))
}

/// Long work that was announced; it ends when this is dropped.
pub struct Busy {
    hall: Arc<Hall>,
    rank: usize,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.hall.finish_work(self.rank);
    }
}
