//! How large and long clips are cut into overlapping tiles, in space and in time.

use std::ops::Range;

use nn::{Error, Result};

use super::config::Ltx2VideoVaeConfig;
use crate::vae::frames::FrameTensor;
use crate::vae::grid::Grid;

/// How to cut what is larger than a tile, in space and in time. Sides are in pixels, heights first.
///
/// In space this is diffusers' `enable_tiling`, but that no tile follows one that reaches the border. In time,
/// diffusers puts decoded tiles together one frame late; here they lie where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// The sides of a tile.
    pub tile: [usize; 2],
    /// The way from one tile to the next.
    pub stride: [usize; 2],
    /// Frames of a tile, the first aside.
    pub tile_frames: usize,
    /// Frames from one tile to the next.
    pub stride_frames: usize,
}

impl Default for Tiling {
    /// The sides are diffusers', the frames those of LTX-2's own code: 80 that share 24.
    fn default() -> Tiling {
        Tiling { tile: [512; 2], stride: [448; 2], tile_frames: 80, stride_frames: 56 }
    }
}

impl Tiling {
    /// Refuses tiles that are not made of whole cells.
    pub(super) fn check(&self, config: &Ltx2VideoVaeConfig) -> Result<()> {
        let (space, time) = (config.spatial_factor(), config.temporal_factor());
        let fits = |tile: usize, stride: usize, factor: usize| {
            let whole = tile.is_multiple_of(factor) && stride.is_multiple_of(factor);
            0 < stride && stride <= tile && whole
        };
        let sides = (0..2).all(|axis| fits(self.tile[axis], self.stride[axis], space));
        if sides && fits(self.tile_frames, self.stride_frames, time) {
            return Ok(());
        }
        Err(Error::Shape {
            what: "a VAE tile",
            got: format!(
                "{:?} with a stride of {:?}, {} frames with a stride of {}",
                self.tile, self.stride, self.tile_frames, self.stride_frames
            ),
            want: format!(
                "sides must be multiples of {space}, frames of {time}, a stride no more than its tile"
            ),
        })
    }

    /// The tiles in space of so many cells, which are `scale` wide in the input and in the output.
    pub(super) fn grid(
        tiling: Option<&Tiling>,
        config: &Ltx2VideoVaeConfig,
        cells: [usize; 2],
        scale: [usize; 2],
    ) -> Grid {
        let factor = config.spatial_factor();
        let Some(tiling) = tiling else { return Grid::whole(cells, scale) };
        let [tile, stride] =
            [tiling.tile, tiling.stride].map(|sides| sides.map(|side| side / factor));
        match (0..2).any(|axis| cells[axis] > tile[axis]) {
            true => Grid::to_the_end(cells, [tile, stride], scale),
            false => Grid::whole(cells, scale),
        }
    }

    /// The latent frames of the tiles in time; all but the first begin with one frame that is only looked at.
    pub(super) fn spans(
        tiling: Option<&Tiling>,
        config: &Ltx2VideoVaeConfig,
        frames: usize,
    ) -> Vec<Range<usize>> {
        let factor = config.temporal_factor();
        let Some(tiling) = tiling else { return std::iter::once(0..frames).collect() };
        let [tile, stride] =
            [tiling.tile_frames, tiling.stride_frames].map(|frames| frames / factor);
        let count = 1 + frames.saturating_sub(tile + 1).div_ceil(stride);
        (0..count).map(|at| at * stride..frames.min(at * stride + tile + 1)).collect()
    }
}

/// Puts tiles in time together, handing on what no later tile changes.
#[derive(Default)]
pub(super) struct Splice {
    /// What the next tile begins with, as the one before sees it.
    waiting: Vec<FrameTensor>,
}

impl Splice {
    /// The frames that are done once a tile is. The next tile shares the last `shared` of it.
    pub(super) fn push(&mut self, mut tile: Vec<FrameTensor>, shared: usize) -> Vec<FrameTensor> {
        let before = std::mem::take(&mut self.waiting);
        let extent = before.len();
        for (at, (before, own)) in before.into_iter().zip(&mut tile).enumerate() {
            let share = at as f64 / extent as f64;
            *own = before * (1.0 - share) + own.clone() * share;
        }
        self.waiting = tile.split_off(tile.len() - shared.min(tile.len()));
        tile
    }
}
