//! Others who encode at the same time: what is written is the same, whoever made it.

use std::collections::{BTreeMap, VecDeque};

use burn::tensor::TensorData;

use super::{Cause, Encode};

/// The tensors of a sample by key.
pub type Tensors = BTreeMap<String, TensorData>;

/// Others who encode, each one thing at a time.
pub trait Helpers {
    /// How many there are.
    fn count(&self) -> usize;

    /// Lets each of the first ones encode one of these, which are known by their places in all that is to be done.
    ///
    /// # Errors
    /// They cannot be asked.
    fn begin(&mut self, places: &[usize]) -> Result<(), Cause>;

    /// What they made, in the order of the places. None where one could not: whoever asked finds out why by trying.
    ///
    /// # Errors
    /// One of them is gone.
    fn take(&mut self) -> Result<Vec<Option<Tensors>>, Cause>;
}

/// What is made at the same time: the first thing here, the others by helpers.
#[derive(Default)]
pub(super) struct Together {
    asked: usize,
    made: VecDeque<Option<Tensors>>,
}

impl Together {
    /// How many things are made at once.
    pub(super) fn width(encode: &mut dyn Encode) -> usize {
        1 + encode.helpers().map_or(0, |helpers| helpers.count())
    }

    /// Lets helpers begin with all of these places but the first.
    pub(super) fn begin(encode: &mut dyn Encode, places: &[usize]) -> Result<Together, Cause> {
        let rest = places.get(1..).unwrap_or_default();
        if let (Some(helpers), false) = (encode.helpers(), rest.is_empty()) {
            helpers.begin(rest)?;
            return Ok(Together { asked: rest.len(), made: VecDeque::new() });
        }
        Ok(Together::default())
    }

    /// What a helper made of the next place; none where it is to be made here. The first is made here always.
    pub(super) fn next(
        &mut self,
        encode: &mut dyn Encode,
        is_first: bool,
    ) -> Result<Option<Tensors>, Cause> {
        if is_first {
            return Ok(None);
        }
        self.take(encode)?;
        Ok(self.made.pop_front().flatten())
    }

    /// Takes what helpers made and nobody asked for: they are free again.
    pub(super) fn take(&mut self, encode: &mut dyn Encode) -> Result<(), Cause> {
        if let (Some(helpers), true) = (encode.helpers(), self.asked > 0) {
            self.made.extend(helpers.take()?);
            self.asked = 0;
        }
        Ok(())
    }
}
