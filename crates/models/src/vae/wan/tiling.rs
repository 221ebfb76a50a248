//! Large clips in overlapping tiles, each decoded through all of its frames, blended at the end.
//!
//! Everything is counted in latent cells, the unit both sides share.

use std::ops::Range;

use burn::tensor::Tensor;
use nn::{Error, Result};

use super::config::WanVaeConfig;
use super::layers::FrameTensor;
use crate::vae::blend::blend;

/// How to cut what is larger than a tile, as diffusers' `enable_tiling` does. Heights, then widths.
///
/// A tile takes the memory of a small clip, but frames can be handed out only after the last tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// The sides of a tile in pixels: where a patch of several pixels is one to the network, of
    /// such pixels to the encoder.
    pub tile: [usize; 2],
    /// The way from one tile to the next, in the same unit.
    pub stride: [usize; 2],
}

impl Default for Tiling {
    /// The tiles of diffusers.
    fn default() -> Tiling {
        Tiling { tile: [256; 2], stride: [192; 2] }
    }
}

impl Tiling {
    fn check(&self, config: &WanVaeConfig) -> Result<()> {
        let factor = config.spatial_factor();
        let fits = |tile: usize, stride: usize| {
            0 < stride
                && stride <= tile
                && tile.is_multiple_of(factor)
                && stride.is_multiple_of(factor)
        };
        if (0..2).all(|axis| fits(self.tile[axis], self.stride[axis])) {
            return Ok(());
        }
        Err(Error::Shape {
            what: "a VAE tile",
            got: format!("{:?} with a stride of {:?}", self.tile, self.stride),
            want: format!("both must be multiples of {factor}, the stride no more than the tile"),
        })
    }
}

/// A clip and the tiles it is cut into, in cells; heights, then widths.
pub(super) struct Grid {
    cells: [usize; 2],
    tile: [usize; 2],
    stride: [usize; 2],
    /// The side of a cell in the input and in the output.
    scale: [usize; 2],
}

impl Grid {
    /// The tiles of latents of the given height and width.
    pub(super) fn of_latents(
        size: [usize; 2],
        config: &WanVaeConfig,
        tiling: Option<&Tiling>,
    ) -> Result<Grid> {
        let factor = config.spatial_factor();
        let scale = [1, factor / config.patch];
        let Some(tiling) = tiling else { return Ok(Grid::whole(size, scale)) };
        tiling.check(config)?;
        let [tile, stride] =
            [tiling.tile, tiling.stride].map(|sides| sides.map(|side| side / factor));
        match (0..2).any(|axis| size[axis] > tile[axis]) {
            true => Ok(Grid { cells: size, tile, stride, scale }),
            false => Ok(Grid::whole(size, scale)),
        }
    }

    /// The tiles of frames of the given height and width in pixels, which are patched already when
    /// they are cut.
    pub(super) fn of_pixels(
        size: [usize; 2],
        config: &WanVaeConfig,
        tiling: Option<&Tiling>,
    ) -> Result<Grid> {
        let factor = config.spatial_factor();
        let cell = factor / config.patch;
        let scale = [cell, 1];
        let cells = size.map(|side| side / factor);
        let Some(tiling) = tiling else { return Ok(Grid::whole(cells, scale)) };
        tiling.check(config)?;
        let [tile, stride] =
            [tiling.tile, tiling.stride].map(|sides| sides.map(|side| side / cell));
        match (0..2).any(|axis| size[axis] > tiling.tile[axis]) {
            true => Ok(Grid { cells, tile, stride, scale }),
            false => Ok(Grid::whole(cells, scale)),
        }
    }

    fn whole(cells: [usize; 2], scale: [usize; 2]) -> Grid {
        Grid { cells, tile: cells.map(|side| side + 1), stride: cells, scale }
    }

    /// How many tiles there are.
    pub(super) fn tiles(&self) -> usize {
        (0..2).map(|axis| self.cells[axis].div_ceil(self.stride[axis])).product()
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
        (0..cells).step_by(self.stride[axis]).map(move |start| start..cells.min(start + tile))
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
        let own = |axis: usize, side: usize| side.min(self.stride[axis] * self.scale[1]);
        let (height, width) = (own(0, height), own(1, width));
        let tile = tile.slice([0..count, 0..height, 0..width]);
        let [row, column] = place;
        let target = [0..count, row..row + height, column..column + width, 0..channels];
        out.slice_assign(target, tile)
    }
}
