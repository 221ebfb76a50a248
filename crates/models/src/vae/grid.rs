//! What is cut into overlapping tiles and blended at the end, in cells of latents: the unit both sides share.

use std::ops::Range;

use burn::tensor::Tensor;
use nn::Result;

use super::blend::blend;
use super::frames::FrameTensor;

/// A clip and the tiles it is cut into, in cells; heights, then widths.
pub(super) struct Grid {
    cells: [usize; 2],
    tile: [usize; 2],
    stride: [usize; 2],
    /// How many tiles there are in each direction.
    counts: [usize; 2],
    /// The side of a cell in the input and in the output.
    scale: [usize; 2],
}

impl Grid {
    /// One tile.
    pub(super) fn whole(cells: [usize; 2], scale: [usize; 2]) -> Grid {
        Grid { cells, tile: cells.map(|side| side + 1), stride: cells, counts: [1; 2], scale }
    }

    /// A tile at every stride, as diffusers has it: the last ones may lie wholly in the one before.
    pub(super) fn at_every_stride(
        cells: [usize; 2],
        [tile, stride]: [[usize; 2]; 2],
        scale: [usize; 2],
    ) -> Grid {
        let counts = [0, 1].map(|axis| cells[axis].div_ceil(stride[axis]));
        Grid { cells, tile, stride, counts, scale }
    }

    /// Tiles until one reaches the end, so that none is smaller than the overlap.
    pub(super) fn to_the_end(
        cells: [usize; 2],
        [tile, stride]: [[usize; 2]; 2],
        scale: [usize; 2],
    ) -> Grid {
        let count = |axis: usize| {
            let rest = cells[axis].saturating_sub(tile[axis]);
            1 + rest.div_ceil(stride[axis])
        };
        Grid { cells, tile, stride, counts: [count(0), count(1)], scale }
    }

    /// How many tiles there are.
    pub(super) fn tiles(&self) -> usize {
        self.counts.iter().product()
    }

    /// Runs `network` on every tile of all frames and puts the results together.
    pub(super) fn run(
        &self,
        frames: &[FrameTensor],
        mut network: impl FnMut(Vec<FrameTensor>) -> Result<Vec<FrameTensor>>,
    ) -> Result<Vec<FrameTensor>> {
        let mut out: Option<Tensor<4>> = None;
        let mut above: Vec<Option<Tensor<4>>> = Vec::new();
        for rows in self.spans(0) {
            let mut left = None;
            let mut below = Vec::new();
            for (index, columns) in self.spans(1).enumerate() {
                let cut = frames.iter().map(|frame| self.cut(frame, [&rows, &columns]));
                let mut tile: Tensor<4> = Tensor::stack(network(cut.collect())?, 0);
                tile = blend(above.get_mut(index).and_then(Option::take), tile, 1);
                tile = blend(left, tile, 2);
                below.push(self.beyond(&tile, 0));
                left = self.beyond(&tile, 1);
                let place = [rows.start, columns.start].map(|cell| cell * self.scale[1]);
                out = Some(self.place(out, tile, place));
            }
            above = below;
        }
        let frames = out.into_iter().flat_map(|out| out.iter_dim(0).collect::<Vec<_>>());
        Ok(frames.map(|frame| frame.squeeze_dim(0)).collect())
    }

    /// The cells of every tile in one direction.
    fn spans(&self, axis: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (cells, tile) = (self.cells[axis], self.tile[axis]);
        let stride = self.stride[axis];
        (0..self.counts[axis]).map(move |at| at * stride..cells.min(at * stride + tile))
    }

    /// One tile of a frame.
    fn cut(&self, frame: &FrameTensor, place: [&Range<usize>; 2]) -> FrameTensor {
        let size = frame.dims();
        // The last tile takes what pixels remain beyond the last whole cell, too.
        let [rows, columns] = [0, 1].map(|axis| {
            let start = place[axis].start * self.scale[0];
            start..size[axis].min(start + self.tile[axis] * self.scale[0])
        });
        frame.clone().slice([rows, columns])
    }

    /// The part of a finished tile `[F, h, w, C]` that the next tile in a direction covers, too.
    fn beyond(&self, tile: &Tensor<4>, axis: usize) -> Option<Tensor<4>> {
        let own = self.stride[axis] * self.scale[1];
        let side = tile.dims()[axis + 1];
        (side > own).then(|| tile.clone().slice_dim(axis + 1, own..side))
    }

    /// Writes the part of a tile `[F, h, w, C]` that no later tile covers.
    fn place(&self, out: Option<Tensor<4>>, tile: Tensor<4>, place: [usize; 2]) -> Tensor<4> {
        let [count, height, width, channels] = tile.dims();
        let [tall, wide] = self.cells.map(|side| side * self.scale[1]);
        let shape = [count, tall, wide, channels];
        let out = out.unwrap_or_else(|| Tensor::zeros(shape, &tile.device()));
        // The last tile of a row or column is followed by none.
        let own = |axis: usize, side: usize| {
            let last = place[axis] / self.scale[1] + self.stride[axis];
            match last >= self.stride[axis] * self.counts[axis] {
                true => side,
                false => side.min(self.stride[axis] * self.scale[1]),
            }
        };
        let (height, width) = (own(0, height), own(1, width));
        let tile = tile.slice([0..count, 0..height, 0..width]);
        let [row, column] = place;
        let target = [0..count, row..row + height, column..column + width, 0..channels];
        out.slice_assign(target, tile)
    }
}
