//! Large images in overlapping tiles, blended where they overlap.
//!
//! Everything is counted in latent cells, the unit both sides share, so that tiles and their places
//! in the result cannot drift apart. An image that is not cut is one tile.

use std::ops::Range;

use burn::tensor::Tensor;
use nn::{Error, Result};

use super::config::KlConfig;
use crate::vae::blend::blend;

/// How to cut what is larger than a tile, as diffusers' `enable_tiling` does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tiling {
    /// The side of a tile in pixels.
    pub sample_min_size: usize,
    /// The share of a tile's side that the next tile covers again, below 1.
    pub overlap_factor: f64,
}

impl Tiling {
    /// Tiles of the size the model was trained on; a quarter overlaps.
    pub fn of(config: &KlConfig) -> Tiling {
        Tiling { sample_min_size: config.sample_size, overlap_factor: 0.25 }
    }

    /// Checks that tiles of a VAE with cells of `factor` pixels can be cut like this.
    ///
    /// # Errors
    /// They would be empty, or leave gaps.
    pub fn check(&self, factor: usize) -> Result<()> {
        self.in_cells(factor).map(drop)
    }

    /// The side of a tile and the way from one to the next, in cells of `factor` pixels.
    fn in_cells(&self, factor: usize) -> Result<(usize, usize)> {
        let tile = self.sample_min_size / factor;
        let stride = (tile as f64 * (1.0 - self.overlap_factor)) as usize;
        if stride == 0 || stride > tile {
            let Tiling { sample_min_size, overlap_factor } = self;
            return Err(Error::Shape {
                what: "a VAE tile",
                got: format!("{sample_min_size} pixels wide with an overlap of {overlap_factor}"),
                want: format!("needs at least {factor} pixels beside an overlap from 0 to below 1"),
            });
        }
        Ok((tile, stride))
    }
}

/// The size of a latent cell on either side: `{ 1, factor }` to decode, `{ factor, 1 }` to encode.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) input: usize,
    pub(super) output: usize,
}

/// An image and the tiles it is cut into, in cells; heights, then widths.
pub(super) struct Grid {
    cells: [usize; 2],
    tile: [usize; 2],
    stride: [usize; 2],
    scale: Scale,
}

impl Grid {
    /// The tiles of an image of the given height and width.
    pub(super) fn new(size: [usize; 2], scale: Scale, tiling: Option<&Tiling>) -> Result<Grid> {
        let cells = size.map(|side| side / scale.input);
        let whole = Grid { cells, tile: cells.map(|side| side + 1), stride: cells, scale };
        let Some(tiling) = tiling else { return Ok(whole) };
        let (tile, stride) = tiling.in_cells(scale.input * scale.output)?;
        if size.iter().all(|&side| side <= tile * scale.input) {
            return Ok(whole);
        }
        Ok(Grid { cells, tile: [tile; 2], stride: [stride; 2], scale })
    }

    /// How many tiles there are.
    pub(super) fn tiles(&self) -> usize {
        (0..2).map(|axis| self.cells[axis].div_ceil(self.stride[axis])).product()
    }

    /// Runs `network` on every tile of every sample and puts the results together: `[B, C, H, W]`
    /// to `[B, channels, H', W']`, while the network works on `[1, h, w, C]`.
    pub(super) fn run(
        &self,
        x: &Tensor<4>,
        channels: usize,
        mut network: impl FnMut(Tensor<4>) -> Result<Tensor<4>>,
    ) -> Result<Tensor<4>> {
        let batch = x.dims()[0];
        let [height, width] = self.cells.map(|side| side * self.scale.output);
        let mut out = Tensor::zeros([batch, channels, height, width], &x.device());
        for sample in 0..batch {
            let mut above: Vec<Option<Tensor<4>>> = Vec::new();
            for rows in self.spans(0) {
                let mut left = None;
                let mut below = Vec::new();
                for (index, columns) in self.spans(1).enumerate() {
                    let place = Place { sample, rows: rows.clone(), columns };
                    let mut tile = network(self.cut(x, &place))?;
                    let corner = above.get_mut(index).and_then(Option::take);
                    tile = blend(corner, tile, 1);
                    tile = blend(left, tile, 2);
                    below.push(self.beyond(&tile, 0));
                    left = self.beyond(&tile, 1);
                    out = self.place(out, tile, &place);
                }
                above = below;
            }
        }
        Ok(out)
    }

    /// The cells of every tile in one direction.
    fn spans(&self, axis: usize) -> impl Iterator<Item = Range<usize>> + use<> {
        let (cells, tile) = (self.cells[axis], self.tile[axis]);
        (0..cells).step_by(self.stride[axis]).map(move |start| start..cells.min(start + tile))
    }

    /// One tile of the input `[B, C, H, W]`, as `[1, h, w, C]`.
    fn cut(&self, x: &Tensor<4>, place: &Place) -> Tensor<4> {
        let [_, channels, height, width] = x.dims();
        // The last tile takes what pixels remain beyond the last whole cell, too.
        let pixels = |span: &Range<usize>, axis: usize, side: usize| {
            let start = span.start * self.scale.input;
            start..side.min(start + self.tile[axis] * self.scale.input)
        };
        let rows = pixels(&place.rows, 0, height);
        let columns = pixels(&place.columns, 1, width);
        let tile = x.clone().slice([place.samples(), 0..channels, rows, columns]);
        tile.permute([0, 2, 3, 1])
    }

    /// The part of a finished tile `[1, h, w, C]` that the next tile in a direction covers, too.
    fn beyond(&self, tile: &Tensor<4>, axis: usize) -> Option<Tensor<4>> {
        let own = self.stride[axis] * self.scale.output;
        let side = tile.dims()[axis + 1];
        (side > own).then(|| tile.clone().slice_dim(axis + 1, own..side))
    }

    /// Writes the part of a tile `[1, h, w, C]` that no later tile covers into `[B, C, H', W']`.
    fn place(&self, out: Tensor<4>, tile: Tensor<4>, place: &Place) -> Tensor<4> {
        let [_, height, width, channels] = tile.dims();
        let own = |axis: usize, side: usize| side.min(self.stride[axis] * self.scale.output);
        let (height, width) = (own(0, height), own(1, width));
        let tile = tile.slice([0..1, 0..height, 0..width]).permute([0, 3, 1, 2]);
        let row = place.rows.start * self.scale.output;
        let column = place.columns.start * self.scale.output;
        let target = [place.samples(), 0..channels, row..row + height, column..column + width];
        out.slice_assign(target, tile)
    }
}

/// Which tile of which sample, in cells.
struct Place {
    sample: usize,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Place {
    fn samples(&self) -> Range<usize> {
        self.sample..self.sample + 1
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Int};

    use super::*;

    /// Where a network sees no more than its own cell, tiles agree where they overlap, so any cut
    /// must give the whole again: only the geometry is left to be wrong.
    fn check(size: [usize; 2], scale: Scale, tiling: Tiling) {
        let [height, width] = size;
        let elements = 2 * 3 * height * width;
        let image = Tensor::<1, Int>::arange(0..elements as i64, &Device::flex());
        let image = image.float().reshape([2, 3, height, width]);
        let run = |tiling: Option<&Tiling>| {
            let grid = Grid::new(size, scale, tiling).unwrap();
            let mut calls = 0;
            let out = grid.run(&image, 3, |tile| {
                calls += 1;
                Ok(resize(tile, scale))
            });
            assert_eq!(calls, 2 * grid.tiles(), "{size:?}, {tiling:?}");
            out.unwrap().into_data().try_to_vec::<f32>().unwrap()
        };
        let (whole, tiled) = (run(None), run(Some(&tiling)));
        for (index, (whole, tiled)) in whole.iter().zip(&tiled).enumerate() {
            let off = (whole - tiled).abs();
            assert!(off < 0.05, "{size:?}, {tiling:?}: element {index} is {tiled}, not {whole}");
        }
    }

    /// Each cell repeated, or the first pixel of each cell.
    fn resize(x: Tensor<4>, Scale { input, output }: Scale) -> Tensor<4> {
        let [batch, height, width, channels] = x.dims();
        let [height, width] = [height / input, width / input];
        x.slice([0..batch, 0..height * input, 0..width * input])
            .reshape([batch, height, input, width, input, channels])
            .slice([0..batch, 0..height, 0..1, 0..width, 0..1])
            .expand([batch, height, output, width, output, channels])
            .reshape([batch, height * output, width * output, channels])
    }

    #[test]
    fn any_cut_gives_the_whole_again() {
        for (tile, overlap_factor) in [(4, 0.25), (5, 0.4), (7, 0.8), (3, 0.0), (30, 0.5)] {
            for size in [[1, 13], [9, 8], [17, 6], [12, 25], [31, 30]] {
                let tiling = Tiling { sample_min_size: 2 * tile, overlap_factor };
                check(size, Scale { input: 1, output: 2 }, tiling);
                check(size.map(|side| side + 2), Scale { input: 2, output: 1 }, tiling);
                let tiling = Tiling { sample_min_size: 3 * tile, overlap_factor };
                check(size.map(|side| 2 * side + 1), Scale { input: 3, output: 1 }, tiling);
            }
        }
    }
}
