//! Parts of a grid of tokens that a condition fixes.

use std::ops::Range;

/// Which tokens of a `[frames, rows, columns]` grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Region {
    /// The first frames.
    Prefix(usize),
    /// The last frames.
    Suffix(usize),
    /// Given frames, counted from 0: keyframes.
    Frames(Vec<usize>),
    /// A rectangle of every frame: rows and columns of tokens.
    Rectangle {
        /// Its rows.
        rows: Range<usize>,
        /// Its columns.
        columns: Range<usize>,
    },
}

impl Region {
    /// A rectangle given in pixels, rounded down to tokens of `[height, width]` pixels.
    pub fn rectangle(rows: Range<usize>, columns: Range<usize>, token: [usize; 2]) -> Region {
        let shrink = |range: Range<usize>, size: usize| range.start / size..range.end / size;
        Region::Rectangle { rows: shrink(rows, token[0]), columns: shrink(columns, token[1]) }
    }

    /// Whether each token belongs to it. What lies outside the grid is ignored.
    pub fn mask(&self, [frames, rows, columns]: [usize; 3]) -> Vec<bool> {
        let inside = |frame: usize, row: usize, column: usize| match self {
            Region::Prefix(count) => frame < *count,
            Region::Suffix(count) => frame + count >= frames,
            Region::Frames(list) => list.contains(&frame),
            Region::Rectangle { rows, columns } => rows.contains(&row) && columns.contains(&column),
        };
        let tokens = 0..frames * rows * columns;
        tokens
            .map(|token| inside(token / (rows * columns), token / columns % rows, token % columns))
            .collect()
    }
}

/// A mask over pixels `[frames, height, width]` as one over the tokens of a causal codec: a token is
/// masked if any pixel it holds is.
///
/// The first token frame holds picture 0, every later one `factors[0]` pictures: the grouping of the
/// codec, not of equal chunks from picture 0 on.
pub fn pool_mask(
    pixels: &[bool],
    [frames, height, width]: [usize; 3],
    factors: [usize; 3],
) -> Vec<bool> {
    let [deep, high, wide] = [
        frames.saturating_sub(1).div_ceil(factors[0]) + 1,
        height.div_ceil(factors[1]),
        width.div_ceil(factors[2]),
    ];
    let mut tokens = vec![false; deep * high * wide];
    for (index, masked) in pixels.iter().enumerate() {
        let (frame, row, column) =
            (index / (height * width), index / width % height, index % width);
        let place = frame.div_ceil(factors[0]);
        tokens[(place * high + row / factors[1]) * wide + column / factors[2]] |= masked;
    }
    tokens
}
