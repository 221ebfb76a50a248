//! How large clips are cut into overlapping tiles, each decoded through all of its frames.

use nn::{Error, Result};

use super::config::WanVaeConfig;
use crate::vae::grid::Grid;

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
    let [tile, stride] = [tiling.tile, tiling.stride].map(|sides| sides.map(|side| side / factor));
    match (0..2).any(|axis| size[axis] > tile[axis]) {
        true => Ok(Grid::at_every_stride(size, [tile, stride], scale)),
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
    let [tile, stride] = [tiling.tile, tiling.stride].map(|sides| sides.map(|side| side / cell));
    match (0..2).any(|axis| size[axis] > tiling.tile[axis]) {
        true => Ok(Grid::at_every_stride(cells, [tile, stride], scale)),
        false => Ok(Grid::whole(cells, scale)),
    }
}
