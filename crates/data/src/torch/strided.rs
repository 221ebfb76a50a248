//! The values of a tensor out of those of its storage.

use burn::tensor::{Bytes, TensorData};

use super::pickle::Strided;

impl Strided {
    /// Refuses a tensor that does not lie within its storage of so many bytes, or has more than `most` itself: a view may
    /// repeat the values of a small storage.
    pub(super) fn check(&self, bytes: usize, most: u64) -> Result<(), String> {
        let Strided { storage, offset, shape, strides } = self;
        let size = storage.stored.bytes;
        let has_all = storage.count.checked_mul(size).is_some_and(|all| all <= bytes);
        let all = shape.iter().try_fold(size, |all, own| all.checked_mul(*own));
        let last = shape.iter().zip(strides).try_fold(*offset, |last, (length, stride)| {
            last.checked_add(length.saturating_sub(1).checked_mul(*stride)?)
        });
        let is_within = all == Some(0) || last.is_some_and(|last| last < storage.count);
        match has_all && is_within && all.is_some_and(|all| all as u64 <= most) {
            true => Ok(()),
            false => {
                let key = super::short(&storage.key);
                Err(format!("a tensor of {shape:?} does not lie within its storage `{key}`"))
            }
        }
    }

    /// The tensor, its values in the order of its axes. It has been checked against these bytes.
    pub(super) fn gather(&self, bytes: &[u8]) -> TensorData {
        let size = self.storage.stored.bytes;
        let count: usize = self.shape.iter().product();
        let mut values = Vec::with_capacity(count * size);
        match self.is_dense() {
            _ if count == 0 => {}
            true => values.extend(&bytes[self.offset * size..][..count * size]),
            false => self.walk(&mut |place| values.extend(&bytes[place * size..][..size])),
        }
        let bytes = Bytes::from_bytes_vec(values);
        TensorData::from_bytes(bytes, self.shape.clone(), self.storage.stored.dtype)
    }

    /// Whether the values stand one after the other.
    fn is_dense(&self) -> bool {
        let mut next = 1;
        let mut axes = self.shape.iter().zip(&self.strides).rev();
        axes.all(|(length, stride)| {
            let is_next = *length == 1 || *stride == next;
            next *= length;
            is_next
        })
    }

    /// Hands out the places of all values, the last axis first.
    fn walk(&self, each: &mut dyn FnMut(usize)) {
        let mut at = vec![0; self.shape.len()];
        loop {
            let far = at.iter().zip(&self.strides).map(|(at, stride)| at * stride);
            each(self.offset + far.sum::<usize>());
            let Some(axis) = (0..at.len()).rev().find(|axis| at[*axis] + 1 < self.shape[*axis])
            else {
                return;
            };
            at[axis] += 1;
            at[axis + 1..].fill(0);
        }
    }
}
