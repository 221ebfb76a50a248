//! Which tokens are whose.

use std::ops::Range;

use comm::Group;
use nn::{Inputs, Levels, Modality};

use crate::error::{Error, Result};

/// The tokens of `rank` when `tokens` of them are spread over `ranks`: neighbours stay together, and
/// the first ranks hold one more where it does not come out even.
pub fn share(tokens: usize, rank: usize, ranks: usize) -> Range<usize> {
    let start = |rank: usize| rank * (tokens / ranks) + rank.min(tokens % ranks);
    start(rank)..start(rank + 1)
}

/// This rank's part of the inputs: its tokens with their positions and levels. Conditions stay whole.
///
/// # Errors
/// There are fewer tokens than ranks. Every rank finds that out by itself, before any exchange.
pub fn shard(inputs: &Inputs, group: &Group) -> Result<Inputs> {
    inputs.as_ref().try_map(|own| modality(own, group))
}

fn modality(whole: &Modality, group: &Group) -> Result<Modality> {
    let [_, tokens, _] = whole.tokens.dims();
    let ranks = group.size();
    if tokens < ranks {
        return Err(Error::FewTokens { tokens, ranks });
    }
    let Range { start, end } = share(tokens, group.rank(), ranks);
    let length = end - start;
    let index = whole.levels.index.clone().map(|index| index.narrow(1, start, length));
    Ok(Modality {
        tokens: whole.tokens.clone().narrow(1, start, length),
        levels: Levels { distinct: whole.levels.distinct.clone(), index },
        positions: whole.positions.part(start..end),
        ..whole.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_cover_every_token_once_and_differ_by_one_at_most() {
        for (tokens, ranks) in [(8, 4), (13, 4), (3, 3), (7, 1), (5, 4)] {
            let shares: Vec<_> = (0..ranks).map(|rank| share(tokens, rank, ranks)).collect();
            assert_eq!(
                shares.iter().cloned().flatten().collect::<Vec<_>>(),
                Vec::from_iter(0..tokens)
            );
            assert!(shares.iter().all(|share| share.len().abs_diff(tokens / ranks) <= 1));
        }
        assert_eq!(share(13, 0, 4), 0..4);
    }
}
