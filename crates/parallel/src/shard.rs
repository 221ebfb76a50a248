//! Which tokens are whose.

use std::ops::Range;

use burn::tensor::Tensor;
use comm::{Group, share};
use nn::{Inputs, Levels, Modality, Tracks};

use crate::error::{Error, Result};

/// A sequence as pieces, each of which is shared out by itself: one, or the patches of PipeFusion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pieces(Vec<usize>);

impl Pieces {
    /// Pieces of these lengths.
    pub(crate) fn new(lengths: Vec<usize>) -> Pieces {
        Pieces(lengths)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Tokens in all.
    pub(crate) fn tokens(&self) -> usize {
        self.0.iter().sum()
    }

    /// Where a piece is in the whole.
    pub(crate) fn range(&self, piece: usize) -> Range<usize> {
        let start = self.0[..piece].iter().sum();
        start..start + self.0[piece]
    }

    /// The part of every piece that is `rank`'s of `ranks`, in the whole.
    pub(crate) fn own(&self, rank: usize, ranks: usize) -> Vec<Range<usize>> {
        (0..self.count()).map(|piece| self.part(piece, rank, ranks)).collect()
    }

    /// The part of one piece that is `rank`'s of `ranks`, in the whole.
    pub(crate) fn part(&self, piece: usize, rank: usize, ranks: usize) -> Range<usize> {
        let Range { start, .. } = self.range(piece);
        let own = share(self.0[piece], rank, ranks);
        start + own.start..start + own.end
    }

    /// Whether every rank has a token of every piece.
    fn check(&self, ranks: usize) -> Result<()> {
        match self.0.iter().min() {
            Some(tokens) if *tokens < ranks => Err(Error::FewTokens { tokens: *tokens, ranks }),
            _ => Ok(()),
        }
    }
}

/// This rank's part of the inputs: its tokens with their positions and levels. Conditions stay whole.
///
/// # Errors
/// There are fewer tokens than ranks. Every rank finds that out by itself, before any exchange.
pub fn shard(inputs: &Inputs, group: &Group) -> Result<Inputs> {
    let own = inputs.as_ref().try_map(|own| {
        let pieces = Pieces::new(vec![own.tokens.dims()[1]]);
        pieces.check(group.size())?;
        Ok::<_, Error>(pieces.own(group.rank(), group.size()))
    })?;
    Ok(select(inputs, &own))
}

/// Some of the tokens of every modality, range after range.
pub(crate) fn select(inputs: &Inputs, ranges: &Tracks<Vec<Range<usize>>>) -> Inputs {
    inputs.as_ref().zip(ranges.as_ref()).map(|(whole, ranges)| modality(whole, ranges))
}

fn modality(whole: &Modality, ranges: &[Range<usize>]) -> Modality {
    let index = whole.levels.index.clone().map(|index| {
        let cut = |range: &Range<usize>| index.clone().narrow(1, range.start, range.len());
        Tensor::cat(ranges.iter().map(cut).collect(), 1)
    });
    Modality {
        tokens: tokens(&whole.tokens, ranges),
        levels: Levels { distinct: whole.levels.distinct.clone(), index },
        positions: whole.positions.part(ranges),
        ..whole.clone()
    }
}

/// Some of the tokens of `[B, T, C]`.
pub(crate) fn tokens(whole: &Tensor<3>, ranges: &[Range<usize>]) -> Tensor<3> {
    let cut = |range: &Range<usize>| whole.clone().narrow(1, range.start, range.len());
    match ranges {
        [range] => cut(range),
        ranges => Tensor::cat(ranges.iter().map(cut).collect(), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::Pieces;

    /// Every token of every piece is somebody's once: xDiT's table gave ranks of one group different
    /// rows of the same patch where the last one was smaller.
    #[test]
    fn pieces_are_shared_out_one_by_one() {
        let pieces = Pieces::new(vec![22, 22, 20, 1]);
        for ranks in [1, 2, 3] {
            for piece in 0..3 {
                let parts: Vec<_> =
                    (0..ranks).map(|rank| pieces.part(piece, rank, ranks)).collect();
                let all: Vec<usize> = parts.iter().cloned().flatten().collect();
                assert_eq!(all, pieces.range(piece).collect::<Vec<_>>());
                let lengths = parts.iter().map(ExactSizeIterator::len);
                assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            }
            let mut all: Vec<usize> =
                (0..ranks).flat_map(|rank| pieces.own(rank, ranks)).flatten().collect();
            all.sort_unstable();
            assert_eq!(all, (0..65).collect::<Vec<_>>());
        }
        assert!(pieces.check(1).is_ok() && pieces.check(2).is_err());
    }
}
