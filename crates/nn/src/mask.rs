//! Which queries see which keys.
//!
//! A mask is dense or structured. A structured one never becomes a tensor of all queries by all keys
//! (4.3 GB for a clip of 32,760 tokens): queries and keys are cut into pieces that see each other whole.

use std::ops::Range;

use burn::tensor::{Bool, Device, Tensor, TensorData};

use crate::attention::{Qkv, Reach, kernel};

/// Which queries see which keys, by their global indices.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one per attention, beside tensors that are far larger"
)]
pub enum Mask {
    /// Added to the scores, `[B | 1, N | 1, T | 1, S]`.
    Dense(Tensor<4>),
    /// Tokens are frames of so many, the last one perhaps shorter; a token sees its own frame and all
    /// before it. For self-attention.
    CausalFrames {
        /// How many tokens a frame has.
        tokens: usize,
    },
    /// The first so many keys of each sample count.
    Lengths(Vec<usize>),
    /// Queries and keys are cut into blocks, the last one perhaps shorter.
    Blocks {
        /// How many tokens a block has.
        size: usize,
        /// For each block of queries the blocks of keys that it sees, rising.
        visible: Vec<Vec<usize>>,
    },
}

impl Mask {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Mask::Dense(_) => "a dense mask",
            Mask::CausalFrames { .. } => "a mask causal by frame",
            Mask::Lengths(_) => "a mask of lengths",
            Mask::Blocks { .. } => "a block-sparse mask",
        }
    }

    /// Whether it fits whole queries and keys.
    pub(crate) fn check(&self, qkv: &Qkv, reach: Reach) -> Result<(), String> {
        let [batch, queries, heads, _] = qkv.q.dims();
        let [_, keys, _, _] = qkv.k.dims();
        let fits = match self {
            Mask::Dense(mask) => {
                let [b, n, t, s] = mask.dims();
                let fits = |own, whole| own == 1 || own == whole;
                fits(b, batch) && fits(n, heads) && fits(t, queries) && s == keys
            }
            Mask::CausalFrames { tokens } => *tokens > 0 && reach == Reach::Own,
            Mask::Lengths(lengths) => {
                let some = |length: &usize| (1..=keys).contains(length);
                lengths.len() == batch && lengths.iter().all(some)
            }
            Mask::Blocks { size, visible } => {
                let rises = |seen: &Vec<usize>| seen.windows(2).all(|pair| pair[0] < pair[1]);
                let blocks = |tokens: usize| tokens.div_ceil((*size).max(1));
                let ends = |seen: &Vec<usize>| seen.last().is_some_and(|last| *last < blocks(keys));
                *size > 0
                    && visible.len() == blocks(queries)
                    && visible.iter().all(|seen| rises(seen) && ends(seen))
            }
        };
        match fits {
            true => Ok(()),
            false => Err(format!(
                "{} does not fit {queries} queries and {keys} keys of {batch} samples with {reach:?}: {}",
                self.name(),
                self.wants()
            )),
        }
    }

    /// What the mask adds to the scores of some queries and some keys, by their global indices,
    /// `[B | 1, N | 1, T | 1, S]`; none where all of them see each other.
    ///
    /// A layout that holds some tokens only asks for no more than these, so that nothing of all queries
    /// by all keys need exist.
    pub fn piece(
        &self,
        queries: Range<usize>,
        keys: Range<usize>,
        device: &Device,
    ) -> Option<Tensor<4>> {
        let additive = |visible: Vec<bool>, shape: [usize; 4]| {
            visible.contains(&false).then(|| {
                let data = TensorData::new(visible, shape);
                kernels::additive_mask(Tensor::<4, Bool>::from_data(data, device))
            })
        };
        let by_token = |sees: &dyn Fn(usize, usize) -> bool| {
            let row = |query: usize| keys.clone().map(move |key| sees(query, key));
            let visible = queries.clone().flat_map(row).collect();
            additive(visible, [1, 1, queries.len(), keys.len()])
        };
        match self {
            Mask::Dense(mask) => {
                let [_, _, rows, _] = mask.dims();
                let own = match rows {
                    1 => mask.clone(),
                    _ => mask.clone().narrow(2, queries.start, queries.len()),
                };
                Some(own.narrow(3, keys.start, keys.len()))
            }
            Mask::CausalFrames { tokens } => by_token(&|query, key| key / tokens <= query / tokens),
            Mask::Lengths(lengths) => {
                let row =
                    |length: &usize| keys.clone().map(|key| key < *length).collect::<Vec<_>>();
                let visible = lengths.iter().flat_map(row).collect();
                additive(visible, [lengths.len(), 1, 1, keys.len()])
            }
            Mask::Blocks { size, visible } => {
                by_token(&|query, key| visible[query / size].contains(&(key / size)))
            }
        }
    }

    fn wants(&self) -> String {
        match self {
            Mask::Dense(mask) => format!("its shape is {:?}", mask.dims()),
            Mask::CausalFrames { tokens } => {
                format!("it is for self-attention over frames of {tokens} tokens")
            }
            Mask::Lengths(lengths) => {
                format!("it has {} lengths, each of which is at least 1", lengths.len())
            }
            Mask::Blocks { size, visible } => format!(
                "it has {} blocks of {size} queries, each of which sees some keys, in rising order",
                visible.len()
            ),
        }
    }

    /// What the queries find in the keys they see. The mask fits.
    pub(crate) fn attend(&self, qkv: Qkv) -> Tensor<4> {
        let [_, queries, _, _] = qkv.q.dims();
        let [_, keys, _, _] = qkv.k.dims();
        let seen = |block: usize, size: usize, seen: &[Range<usize>]| {
            let own = block * size..((block + 1) * size).min(queries);
            let k = pieces(&qkv.k, seen);
            kernel(Qkv { q: piece(&qkv.q, own), k, v: pieces(&qkv.v, seen) }, None)
        };
        match self {
            Mask::Dense(mask) => kernel(qkv, Some(mask.clone())),
            Mask::CausalFrames { tokens } => {
                let frame = |index: usize| {
                    let before = 0..((index + 1) * tokens).min(keys);
                    seen(index, *tokens, &[before])
                };
                Tensor::cat((0..queries.div_ceil(*tokens)).map(frame).collect(), 1)
            }
            Mask::Lengths(lengths) => {
                let samples = lengths.iter().enumerate().map(|(sample, length)| {
                    let own = |x: &Tensor<4>| x.clone().narrow(0, sample, 1);
                    let cut = |x: &Tensor<4>| own(x).narrow(1, 0, *length);
                    kernel(Qkv { q: own(&qkv.q), k: cut(&qkv.k), v: cut(&qkv.v) }, None)
                });
                Tensor::cat(samples.collect(), 0)
            }
            Mask::Blocks { size, visible } => {
                let blocks = visible.iter().enumerate();
                let blocks = blocks.map(|(index, own)| seen(index, *size, &runs(own, *size, keys)));
                Tensor::cat(blocks.collect(), 1)
            }
        }
    }
}

/// Blocks as ranges of tokens; neighbours are one range.
fn runs(blocks: &[usize], size: usize, tokens: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for block in blocks {
        let range = block * size..((block + 1) * size).min(tokens);
        match runs.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => runs.push(range),
        }
    }
    runs
}

/// Some tokens of `[B, T, N, H]`.
fn piece(x: &Tensor<4>, range: Range<usize>) -> Tensor<4> {
    x.clone().narrow(1, range.start, range.len())
}

/// Some ranges of tokens, one after the other.
fn pieces(x: &Tensor<4>, ranges: &[Range<usize>]) -> Tensor<4> {
    match ranges {
        [range] => piece(x, range.clone()),
        ranges => Tensor::cat(ranges.iter().map(|range| piece(x, range.clone())).collect(), 1),
    }
}
