//! The thread that owns MPI: sends that complete later, and whatever has arrived.

#![expect(unsafe_code, reason = "requests that outlive a call are not in the safe interface")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi;
use mpi::raw::AsRaw;
use mpi::topology::{Communicator, SimpleCommunicator};

use super::wire::Message;
use crate::error::{Error, Result};

/// Messages of ours.
const TAG: c_int = 77;

/// The most bytes in one message of MPI, whose counts are 32 bits wide; what is longer goes in several.
const MOST: usize = 1 << 30;

/// The length of a message stands before it.
const LENGTH: usize = size_of::<u64>();

/// MPI, as the one thread that uses it sees it.
pub(super) struct Postman {
    pub(super) rank: usize,
    pub(super) size: usize,
    world: SimpleCommunicator,
    sends: Vec<Pending>,
    receives: Vec<Pending>,
    /// What came of messages that are not complete, by sender.
    partial: BTreeMap<usize, Vec<u8>>,
    universe: Universe,
}

/// A piece that is being sent or received.
struct Pending {
    request: ffi::MPI_Request,
    buffer: Vec<u8>,
    peer: usize,
}

impl Postman {
    pub(super) fn start() -> Result<Postman> {
        let Some((universe, _)) = mpi::initialize_with_threading(Threading::Funneled) else {
            return Err(Error::Launch { reason: "MPI was initialised before".to_owned() });
        };
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        let (sends, receives) = (Vec::new(), Vec::new());
        Ok(Postman { rank, size, world, sends, receives, partial: BTreeMap::new(), universe })
    }

    /// Sends a message about a world on its way.
    pub(super) fn send(&mut self, to: usize, (world, message): (u64, Message)) {
        let bytes = message.encode(world);
        let mut whole = (bytes.len() as u64).to_le_bytes().to_vec();
        whole.extend(bytes);
        for piece in whole.chunks(MOST) {
            let buffer = piece.to_vec();
            let (start, count) = (buffer.as_ptr().cast::<c_void>(), buffer.len() as c_int);
            let mut request = null_request();
            // SAFETY: the buffer is not touched until the request is complete: it is kept in `sends` and a Vec
            // does not move its elements when it moves. Only this thread calls MPI.
            unsafe {
                let byte = ffi::RSMPI_UINT8_T;
                let world = self.world.as_raw();
                ffi::MPI_Isend(start, count, byte, to as c_int, TAG, world, &mut request);
            }
            self.sends.push(Pending { request, buffer, peer: to });
        }
    }

    /// Whether anything is still on its way from here.
    pub(super) fn is_sending(&mut self) -> bool {
        self.sends.retain_mut(|pending| !pending.is_complete());
        !self.sends.is_empty()
    }

    /// Whether anything is known to be on its way to here.
    pub(super) fn is_receiving(&self) -> bool {
        !self.receives.is_empty() || !self.partial.is_empty()
    }

    /// The messages that are complete, with their senders.
    pub(super) fn receive(&mut self) -> Vec<(usize, Vec<u8>)> {
        while let Some(pending) = self.next() {
            self.receives.push(pending);
        }
        let mut messages = Vec::new();
        // Pieces of one sender were matched in order, and are read in order.
        let mut waiting: Vec<usize> = Vec::new();
        let mut left = Vec::new();
        for mut pending in std::mem::take(&mut self.receives) {
            if waiting.contains(&pending.peer) || !pending.is_complete() {
                waiting.push(pending.peer);
                left.push(pending);
                continue;
            }
            let whole = self.partial.entry(pending.peer).or_default();
            whole.extend(pending.buffer);
            if let Some(message) = complete(whole) {
                self.partial.remove(&pending.peer);
                messages.push((pending.peer, message));
            }
        }
        self.receives = left;
        messages
    }

    /// The next piece that somebody sends, if there is one.
    fn next(&mut self) -> Option<Pending> {
        // SAFETY: all out-parameters are valid for the calls; the message that was matched is received once,
        // into a buffer of its size that is kept until the request is complete.
        unsafe {
            let mut found: c_int = 0;
            let mut message: ffi::MPI_Message = ffi::RSMPI_MESSAGE_NULL;
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            let (any, world) = (ffi::RSMPI_ANY_SOURCE, self.world.as_raw());
            ffi::MPI_Improbe(any, TAG, world, &mut found, &mut message, &mut status);
            if found == 0 {
                return None;
            }
            let (mut count, byte) = (0, ffi::RSMPI_UINT8_T);
            ffi::MPI_Get_count(&status, byte, &mut count);
            let mut buffer = vec![0_u8; count as usize];
            let start = buffer.as_mut_ptr().cast::<c_void>();
            let mut request = null_request();
            ffi::MPI_Imrecv(start, count, byte, &mut message, &mut request);
            Some(Pending { request, buffer, peer: status.MPI_SOURCE as usize })
        }
    }

    /// Ends MPI; after a failure the process is to exit instead, since others may never end.
    pub(super) fn finish(self, broken: bool) {
        if broken {
            // Buffers of requests that never complete belong to MPI until the process is gone.
            std::mem::forget(self);
        } else {
            drop(self.universe);
        }
    }
}

impl Pending {
    fn is_complete(&mut self) -> bool {
        let mut flag: c_int = 0;
        // SAFETY: the request is one that MPI gave, or null once it is complete; a status is plain numbers.
        unsafe {
            let mut status: ffi::MPI_Status = std::mem::zeroed();
            ffi::MPI_Test(&mut self.request, &mut flag, &mut status);
        }
        flag != 0
    }
}

fn null_request() -> ffi::MPI_Request {
    // SAFETY: a constant of the library, read after it was initialised.
    unsafe { ffi::RSMPI_REQUEST_NULL }
}

/// The message of some bytes, if they are all there.
fn complete(whole: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = whole.split_first_chunk::<LENGTH>()?;
    (u64::from_le_bytes(*length) == rest.len() as u64).then(|| rest.to_vec())
}
