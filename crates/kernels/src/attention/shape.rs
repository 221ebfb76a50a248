//! Extents and masks of an attention call.

/// The sizes of `q [B, T, N, H]` and `k`, `v` `[B, S, N, H]`, and the factor on their products.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) width: usize,
    pub(super) scale: f32,
}

impl Extents {
    /// Heads of all samples together; head `n` of sample `b` is number `b * heads + n`.
    pub(super) fn batch_heads(&self) -> usize {
        self.batch * self.heads
    }

    /// Distance between two tokens.
    pub(super) fn token_stride(&self) -> usize {
        self.heads * self.width
    }

    /// Elements of `q` and of the output.
    pub(super) fn query_elements(&self) -> usize {
        self.batch * self.queries * self.token_stride()
    }

    /// Elements of `k` and of `v`.
    pub(super) fn key_elements(&self) -> usize {
        self.batch * self.keys * self.token_stride()
    }

    /// Where the queries of a head begin.
    pub(super) fn query_start(&self, head: usize) -> usize {
        head / self.heads * self.queries * self.token_stride() + head % self.heads * self.width
    }

    /// Where the keys of a head begin.
    pub(super) fn key_start(&self, head: usize) -> usize {
        head / self.heads * self.keys * self.token_stride() + head % self.heads * self.width
    }
}

/// An additive mask `[B | 1, N | 1, T | 1, S]`, contiguous.
pub(super) struct Mask<'a> {
    pub(super) values: &'a [f32],
    pub(super) sizes: [usize; 4],
    pub(super) heads: usize,
}

impl Mask<'_> {
    /// The mask of one query over all keys.
    #[inline(always)]
    pub(super) fn row(&self, head: usize, query: usize) -> &[f32] {
        let [samples, heads, queries, keys] = self.sizes;
        let sample = if samples == 1 { 0 } else { head / self.heads };
        let head = if heads == 1 { 0 } else { head % self.heads };
        let query = if queries == 1 { 0 } else { query };
        &self.values[((sample * heads + head) * queries + query) * keys..][..keys]
    }
}
