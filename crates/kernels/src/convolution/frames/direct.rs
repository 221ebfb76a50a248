//! The convolution as one product per result, taps of time before taps of space.

use std::ops::Range;

use super::{Layer, Output};
use crate::activation::Activation;
use crate::convolution::geometry::{Geometry, Image, NOTHING, tap_blocks};
use crate::convolution::run::reorder;
use crate::gemm::{Epilogue, Left, packed_product};
use crate::narrow::Stored;
use crate::pack::{Block, Order, Panels, Right, Scratch, Unpacked};

/// A layer with its weight packed.
pub(super) struct Plain<'a> {
    layer: Layer<'a>,
    panels: Panels,
    blocks: Vec<Block>,
}

impl<'a> Plain<'a> {
    pub(super) fn new(layer: &Layer<'a>) -> Plain<'a> {
        let (inner, outer) = (layer.geometry.input.channels, layer.geometry.output.channels);
        let taps = layer.depth * layer.geometry.taps();
        let by_tap =
            reorder(layer.weight, [outer, taps, inner], |[o, t, i]| (o * inner + i) * taps + t);
        let blocks = tap_blocks(taps, inner);
        let right = Unpacked {
            values: Stored::F32(&by_tap).into(),
            order: Order::ColumnsApart(taps * inner),
            blocks: &blocks,
            columns: outer,
        };
        Plain { layer: *layer, panels: right.pack(), blocks }
    }

    /// The values `[H', W', out]` of every result.
    pub(super) fn run(&self, outputs: &[Output<'_>]) -> Vec<Vec<f32>> {
        outputs.iter().map(|output| self.result(output)).collect()
    }

    fn result(&self, output: &Output<'_>) -> Vec<f32> {
        let geometry = self.layer.geometry;
        // Taps of time before the first frame are left out of the sum.
        let missing = self.layer.depth - output.sources.len();
        let skipped = self.blocks.len() / self.layer.depth * missing;
        let right = Later { panels: &self.panels, skipped };
        let left = UnderFrames { geometry, sources: &output.sources, missing };
        let epilogue = Epilogue {
            bias: self.layer.bias,
            activation: Activation::Identity,
            residual: output.residual,
            ..Epilogue::NONE
        };
        packed_product(&left, geometry.output.pixels(), &right, epilogue)
    }
}

/// A packed right-hand side without its first blocks.
struct Later<'a> {
    panels: &'a Panels,
    skipped: usize,
}

impl Right for Later<'_> {
    fn blocks(&self) -> &[Block] {
        &self.panels.blocks()[self.skipped..]
    }

    fn columns(&self) -> usize {
        self.panels.columns()
    }

    #[inline(always)]
    fn panels<'a>(&'a self, block: usize, panels: Range<usize>, _: &'a mut Scratch) -> &'a [f32] {
        self.panels.at(self.skipped + block, panels)
    }
}

/// Rows are output pixels; the depth is every tap's pixel of every frame, channel by channel.
struct UnderFrames<'a> {
    geometry: &'a Geometry,
    sources: &'a [&'a [f32]],
    missing: usize,
}

impl Left for UnderFrames<'_> {
    #[inline(always)]
    unsafe fn pointers(&self, rows: Range<usize>, (start, depth): Block, into: &mut [*const f32]) {
        let Image { width, channels, .. } = self.geometry.input;
        let (tap, first) = (start / channels, start % channels);
        let source = self.sources[tap / self.geometry.taps() - self.missing];
        let tap = tap % self.geometry.taps();
        self.geometry.output.each(rows, |index, (_, y, x)| {
            into[index] = match self.geometry.under(tap, (y, x)) {
                Some((y, x)) => source[(y * width + x) * channels + first..][..depth].as_ptr(),
                None => NOTHING[..depth].as_ptr(),
            };
        });
    }
}
