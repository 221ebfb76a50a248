//! Which tokens are whose.

use std::ops::Range;

use comm::{Group, share};
use nn::{Inputs, Levels, Modality};

use crate::error::{Error, Result};

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
