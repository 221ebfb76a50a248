//! Where ranks meet in a step. One rank meets nobody.

use crate::error::Result;
use crate::role::Trained;

/// Adds up over all ranks; every rank gets the same bits.
pub trait Reduce {
    /// Adds up the gradients of a role.
    ///
    /// # Errors
    /// The ranks cannot exchange.
    fn gradients(&mut self, role: &mut Trained) -> Result<()>;

    /// Adds up numbers.
    ///
    /// # Errors
    /// The ranks cannot exchange.
    fn numbers(&mut self, numbers: &mut [f64]) -> Result<()>;

    /// How many samples of the step belong to lower ranks, given how many are this rank's.
    ///
    /// # Errors
    /// The ranks cannot exchange.
    fn samples_before(&mut self, own: u64) -> Result<u64>;
}

/// One rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Reduce for Alone {
    fn gradients(&mut self, _: &mut Trained) -> Result<()> {
        Ok(())
    }

    fn numbers(&mut self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }

    fn samples_before(&mut self, _: u64) -> Result<u64> {
        Ok(0)
    }
}
