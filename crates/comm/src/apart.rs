//! Pieces of work in worlds of their own, one after another: what fails in one leaves the ranks together for the next.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use crate::call::Operation;
use crate::error::{Error, Result};
use crate::group::Group;
use crate::ranks::message;

impl Group {
    /// Does a piece of work in a world of its own, of the same ranks: what fails there wakes whoever waits there, and
    /// breaks nothing else. All ranks of the world come here together, as often; the first one comes back when all have
    /// ended the work, and the others when they have.
    ///
    /// A body that panics does so here, when all have ended.
    ///
    /// # Errors
    /// A rank does not come to the end of the work: this world is of no more use.
    pub fn apart<T, E: fmt::Display>(
        &self,
        what: &str,
        body: impl FnOnce(Group) -> Result<T, E>,
    ) -> Result<Result<T, E>> {
        let (rank, size) = (self.rank(), self.size());
        let call = self.named(what).call(Operation::Barrier, Vec::new());
        if !self.own.members.iter().copied().eq(0..self.link.size()) {
            let reason = format!("group `{}` is a part of its world", self.own.name);
            return Err(self.refuse(call.operation, reason));
        }
        let link = self.link.within(self.own.next_world());
        let world = Group::world(Arc::clone(&link), "world", size, rank);
        // What the body shares with others is the world, which is left and forgotten.
        let done = catch_unwind(AssertUnwindSafe(|| body(world)));
        match &done {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                link.fail(rank, Error::Elsewhere { rank, reason: error.to_string() });
            }
            Err(panic) => {
                link.fail(rank, Error::Panicked { rank, message: message(panic.as_ref()) });
            }
        }
        link.end(rank);
        let ended = if rank == 0 { link.wait_for_ends(rank, &call) } else { Ok(()) };
        self.link.forget_ended();
        match done {
            Ok(result) => ended.map(|()| result),
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Says to all ranks of the world that what is done there is not wanted any more: each stops when it looks.
    pub fn call_off(&self) {
        self.link.call_off();
    }

    /// Whether a rank has said so, or the world is broken.
    pub fn is_called_off(&self) -> bool {
        self.link.is_called_off()
    }
}
