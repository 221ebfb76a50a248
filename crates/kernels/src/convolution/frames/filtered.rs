//! Convolutions with three taps in a row by Winograd's filter: half the products of the plain sum.
//!
//! A *strip* is four output pixels side by side. For each of the filter's six products there is a
//! matrix product of its own, whose rows are strips and whose depth runs over taps of time, rows of
//! the kernel and channels; the six results of a strip then make its four pixels. The inputs' side
//! is computed block by block into memory that stays in the second-level cache, with the rows of an
//! image side by side, so that all rows of the kernel are one piece of depth.

use std::ops::Range;

use rayon::prelude::*;

use super::winograd::{PRODUCTS, RESULTS, TAPS, of_inputs, of_taps, results};
use super::{Layer, Output};
use crate::convolution::Convolution;
use crate::convolution::geometry::{Geometry, Image};
use crate::gemm::Shared;
use crate::micro::{COLUMNS, HALF, Kernels, ROWS, Tile as Product, Write};
use crate::narrow::{Narrow, Stored};
use crate::work::{Work, vectorised};

/// Channels of the input that are transformed at a time, at most.
const CHANNELS: usize = 96;
/// Columns of the result that one task computes, at most.
const TASK_COLUMNS: usize = 96;
/// Strips side by side that one task computes, at most.
const STRIPS: usize = 8;
/// Output rows of a task for so many strips; half as many strips get twice as many rows.
const LINES: usize = ROWS;

/// Whether this way saves anything: the kernel is three wide, and strips are mostly full.
pub(super) fn suits(geometry: &Geometry) -> bool {
    let [tall, wide] = geometry.kernel;
    let same = Convolution { stride: 1, padding: [tall / 2, 1, tall / 2, 1], upsample: 1 };
    wide == TAPS && tall % 2 == 1 && geometry.convolution == same && geometry.input.width >= 6
}

/// The values `[H, W, out]` of every result.
pub(super) fn run(layer: &Layer<'_>, outputs: &[Output<'_>]) -> Vec<Vec<f32>> {
    let plan = Plan::new(layer);
    let length = layer.geometry.output.pixels() * plan.outer;
    let mut frames: Vec<Vec<f32>> = outputs.iter().map(|_| Vec::with_capacity(length)).collect();
    let places: Vec<Shared> = frames.iter_mut().map(|frame| Shared(frame.as_mut_ptr())).collect();
    // One range of columns after the other, so that the taps' side takes little memory.
    let mut packed = Vec::new();
    for columns in parts(plan.outer, plan.columns) {
        plan.pack(layer.weight, columns.clone(), &mut packed);
        let panels = Panels { values: &packed, columns };
        let tiles: Vec<Tile> = plan.tiles().collect();
        let tasks = outputs.iter().zip(&places).flat_map(|(output, place)| {
            tiles.iter().map(move |tile| (output, *place, tile.clone()))
        });
        tasks.collect::<Vec<_>>().into_par_iter().for_each_init(
            || plan.scratch(),
            |scratch, (output, place, tile)| {
                let (plan, panels, bias) = (&plan, &panels, layer.bias);
                vectorised(Task { plan, panels, output, bias, place, tile, scratch });
            },
        );
    }
    for frame in &mut frames {
        // SAFETY: the tiles cover every row and strip of every range of columns, and a task writes
        // all of its tile.
        unsafe { frame.set_len(length) };
    }
    frames
}

/// How the work is cut, by shape alone.
struct Plan {
    image: Image,
    /// Taps of time, and rows of the kernel.
    depth: usize,
    tall: usize,
    outer: usize,
    /// The channels of every block of the depth.
    blocks: Vec<Range<usize>>,
    /// Strips, rows and columns of a tile.
    strips: usize,
    lines: usize,
    columns: usize,
}

/// A part of one result.
#[derive(Clone)]
struct Tile {
    strips: Range<usize>,
    lines: Range<usize>,
}

/// The taps' side for some columns, as [`Plan::pack`] leaves it.
struct Panels<'a> {
    values: &'a [f32],
    columns: Range<usize>,
}

/// Equal parts of at most `most`, each but the last a multiple of `grain`.
fn part(whole: usize, most: usize, grain: usize) -> usize {
    whole.div_ceil(whole.div_ceil(most).max(1)).next_multiple_of(grain)
}

fn parts(whole: usize, part: usize) -> impl Iterator<Item = Range<usize>> + Clone {
    (0..whole).step_by(part.max(1)).map(move |start| start..whole.min(start + part))
}

impl Plan {
    fn new(layer: &Layer<'_>) -> Plan {
        let Geometry { input: image, output, kernel, .. } = *layer.geometry;
        let channels = part(image.channels, CHANNELS, 1);
        let strips = part(image.width.div_ceil(RESULTS), STRIPS, 1);
        Plan {
            image,
            depth: layer.depth,
            tall: kernel[0],
            outer: output.channels,
            blocks: parts(image.channels, channels).collect(),
            strips,
            lines: if strips > STRIPS / 2 { LINES } else { 2 * LINES },
            columns: part(output.channels, TASK_COLUMNS, COLUMNS),
        }
    }

    fn tiles(&self) -> impl Iterator<Item = Tile> + '_ {
        let strips = parts(self.image.width.div_ceil(RESULTS), self.strips);
        parts(self.image.height, self.lines).flat_map(move |lines| {
            strips.clone().map(move |strips| Tile { strips, lines: lines.clone() })
        })
    }

    fn scratch(&self) -> Scratch {
        let channels = self.blocks.iter().map(Range::len).max().unwrap_or(0);
        let rows = (self.strips * self.lines).next_multiple_of(ROWS);
        Scratch {
            inputs: vec![0.0; PRODUCTS * self.strips * (self.lines + self.tall - 1) * channels],
            products: vec![0.0; PRODUCTS * rows * self.columns],
            pointers: Vec::with_capacity(rows),
        }
    }

    /// The depth of a panel of block `block`.
    fn panel_depth(&self, block: usize) -> usize {
        self.tall * self.blocks[block].len()
    }

    /// Where the panels of a tap of time, a block and panel number `panel` of `panels` begin, the
    /// first product's first.
    fn panel(&self, tap: usize, block: usize, (panel, panels): (usize, usize)) -> usize {
        let before = (tap * self.image.channels + self.blocks[block].start) * self.tall * panels;
        (before + panel * self.panel_depth(block)) * PRODUCTS * COLUMNS
    }

    /// The taps' side of all products for some columns, in the order in which a task reads it.
    fn pack(&self, weight: Stored<'_>, columns: Range<usize>, into: &mut Vec<f32>) {
        let panels = columns.len().div_ceil(COLUMNS);
        let length = self.depth * self.image.channels * self.tall * PRODUCTS * panels * COLUMNS;
        into.clear();
        into.reserve(length);
        let place = Shared(into.as_mut_ptr());
        let tasks: Vec<_> = (0..panels)
            .flat_map(|panel| (0..self.blocks.len()).map(move |block| (panel, block)))
            .collect();
        tasks.into_par_iter().for_each(|(panel, block)| {
            let first = columns.start + panel * COLUMNS;
            vectorised(Pack { plan: self, weight, place, first, panel: (panel, panels), block });
        });
        // SAFETY: the panels of all columns and blocks make up the whole.
        unsafe { into.set_len(length) };
    }
}

/// One panel of columns of one block, for all taps of time and all products.
struct Pack<'a> {
    plan: &'a Plan,
    weight: Stored<'a>,
    place: Shared,
    /// The first column, and which of how many panels this is.
    first: usize,
    panel: (usize, usize),
    block: usize,
}

impl Work for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.weight {
            Stored::F32(values) => self.pack(values),
            Stored::Bf16(values) => self.pack(values),
            Stored::F16(values) => self.pack(values),
        }
    }
}

impl Pack<'_> {
    #[inline(always)]
    fn pack<T: Narrow>(&self, weight: &[T]) {
        let plan = self.plan;
        let channels = &plan.blocks[self.block];
        let lines = plan.depth * plan.tall;
        for channel in channels.clone() {
            for line in 0..lines {
                let mut taps = [[0.0; COLUMNS]; TAPS];
                (0..COLUMNS.min(plan.outer - self.first)).for_each(|column| {
                    let kernel = (self.first + column) * plan.image.channels + channel;
                    let from = &weight[(kernel * lines + line) * TAPS..][..TAPS];
                    (0..TAPS).for_each(|tap| taps[tap][column] = from[tap].widen());
                });
                let (time, row) = (line / plan.tall, line % plan.tall);
                let depth = row * channels.len() + channel - channels.start;
                self.write(time, depth, &taps);
            }
        }
    }

    /// Writes one index of the depth of each product's panel.
    #[inline(always)]
    fn write(&self, time: usize, depth: usize, taps: &[[f32; COLUMNS]; TAPS]) {
        let mut groups = [[0.0; COLUMNS]; PRODUCTS];
        for column in 0..COLUMNS {
            let sides = of_taps(std::array::from_fn(|tap| taps[tap][column]));
            (0..PRODUCTS).for_each(|product| groups[product][column] = sides[product]);
        }
        let size = self.plan.panel_depth(self.block) * COLUMNS;
        let start = self.plan.panel(time, self.block, self.panel) + depth * COLUMNS;
        for (product, group) in groups.into_iter().enumerate() {
            // SAFETY: the panels of this task lie within the whole and belong to it alone.
            unsafe {
                self.place.at(start + product * size).cast::<[f32; COLUMNS]>().write(group);
            }
        }
    }
}

/// What a thread works in.
struct Scratch {
    /// The inputs' side, `[product, strip, row, channel]`.
    inputs: Vec<f32>,
    /// The sums of products, `[product, row of the product, column]`.
    products: Vec<f32>,
    pointers: Vec<*const f32>,
}

// SAFETY: the pointers are made anew by every task and read by none but it.
unsafe impl Send for Scratch {}

struct Task<'a, 's> {
    plan: &'a Plan,
    panels: &'a Panels<'a>,
    output: &'a Output<'a>,
    bias: Option<&'a [f32]>,
    place: Shared,
    tile: Tile,
    scratch: &'s mut Scratch,
}

impl Work for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(mut self) {
        let missing = self.plan.depth - self.output.sources.len();
        let mut write = Write::Store;
        for (index, source) in self.output.sources.iter().enumerate() {
            for block in 0..self.plan.blocks.len() {
                self.transform(source, block);
                self.multiply(missing + index, block, write);
                write = Write::Add;
            }
        }
        for (index, line) in self.tile.lines.clone().enumerate() {
            for (strip, number) in self.tile.strips.clone().enumerate() {
                self.finish(strip * self.tile.lines.len() + index, (line, number));
            }
        }
    }
}

impl Task<'_, '_> {
    /// Rows of the image that the tile looks at.
    #[inline(always)]
    fn seen(&self) -> usize {
        self.tile.lines.len() + self.plan.tall - 1
    }

    /// Computes the inputs' side of the tile for one frame and block of channels.
    #[inline(always)]
    fn transform(&mut self, source: &[f32], block: usize) {
        const NOTHING: &[f32; CHANNELS] = &[0.0; CHANNELS];
        let Image { height, width, channels, .. } = self.plan.image;
        let block = self.plan.blocks[block].clone();
        let (seen, above) = (self.seen(), self.plan.tall / 2);
        for (strip, number) in self.tile.strips.clone().enumerate() {
            for index in 0..seen {
                let line = (self.tile.lines.start + index).wrapping_sub(above);
                // A place left of or above the image wraps to beyond it.
                let pixel = |offset: usize| {
                    let x = (number * RESULTS + offset).wrapping_sub(1);
                    match line < height && x < width {
                        true => &source[(line * width + x) * channels..][block.clone()],
                        false => &NOTHING[..block.len()],
                    }
                };
                let pixels = std::array::from_fn(pixel);
                let to = (strip * seen + index) * block.len();
                let apart = self.tile.strips.len() * seen * block.len();
                spread(pixels, &mut self.scratch.inputs[to..], apart);
            }
        }
    }

    /// Adds the products of one frame and block of channels.
    #[inline(always)]
    fn multiply(&mut self, time: usize, block: usize, write: Write) {
        let (seen, kernels) = (self.seen(), Kernels::in_use());
        let channels = self.plan.blocks[block].len();
        let depth = self.plan.panel_depth(block);
        let (lines, strips) = (self.tile.lines.len(), self.tile.strips.len());
        let rows = (lines * strips).next_multiple_of(ROWS);
        for product in 0..PRODUCTS {
            let inputs = &self.scratch.inputs[product * strips * seen * channels..];
            self.scratch.pointers.clear();
            for strip in 0..strips {
                for line in 0..lines {
                    let row = &inputs[(strip * seen + line) * channels..][..depth];
                    self.scratch.pointers.push(row.as_ptr());
                }
            }
            // Missing rows of the last tile repeat one that exists.
            let repeated = self.scratch.pointers[lines * strips - 1];
            self.scratch.pointers.resize(rows, repeated);
            let columns = self.panels.columns.len();
            let panels = columns.div_ceil(COLUMNS);
            for group in kernels.groups(0..panels) {
                let apart = PRODUCTS * depth * COLUMNS;
                let start = self.plan.panel(time, block, (group.start, panels));
                let values = &self.panels.values[start + product * depth * COLUMNS..];
                let values = &values[..(group.len() - 1) * apart + depth * COLUMNS];
                let first = product * rows * self.plan.columns + group.start * COLUMNS;
                let out = &mut self.scratch.products[first..];
                // There is room for whole panels, and whole halves of them are quicker to write.
                let width = columns.next_multiple_of(HALF).min(group.end * COLUMNS);
                let width = width - group.start * COLUMNS;
                for (tile, pointers) in
                    self.scratch.pointers.as_chunks::<ROWS>().0.iter().enumerate()
                {
                    let stride = self.plan.columns;
                    let out = &mut out[tile * ROWS * stride..][..(ROWS - 1) * stride + width];
                    // SAFETY: every pointer reads `depth` values, the panels have `depth` groups,
                    // and `out` has room for the columns of every row.
                    unsafe {
                        kernels.compute(&Product {
                            depth,
                            rows: pointers,
                            panels: values.as_ptr(),
                            apart,
                            out: out.as_mut_ptr(),
                            stride,
                            height: ROWS,
                            width,
                            write,
                        });
                    }
                }
            }
        }
    }

    /// Writes the pixels of one strip.
    #[inline(always)]
    fn finish(&mut self, row: usize, (line, strip): (usize, usize)) {
        let columns = self.panels.columns.clone();
        let rows = (self.tile.lines.len() * self.tile.strips.len()).next_multiple_of(ROWS);
        let product = |product: usize| {
            let first = (product * rows + row) * self.plan.columns;
            &self.scratch.products[first..][..columns.len()]
        };
        let products: [&[f32]; PRODUCTS] = std::array::from_fn(product);
        let mut pixels = [[0.0; TASK_COLUMNS]; RESULTS];
        for column in 0..columns.len() {
            let values = results(std::array::from_fn(|product| products[product][column]));
            (0..RESULTS).for_each(|pixel| pixels[pixel][column] = values[pixel]);
        }
        let width = self.plan.image.width;
        let left = width - strip * RESULTS;
        for (pixel, values) in pixels.iter_mut().enumerate().take(left) {
            let values = &mut values[..columns.len()];
            let place = (line * width + strip * RESULTS + pixel) * self.plan.outer + columns.start;
            if let Some(bias) = self.bias {
                add(values, &bias[columns.clone()]);
            }
            if let Some(residual) = self.output.residual {
                add(values, &residual[place..][..columns.len()]);
            }
            // SAFETY: these columns of this pixel belong to this task alone.
            unsafe {
                self.place.at(place).copy_from_nonoverlapping(values.as_ptr(), values.len());
            }
        }
    }
}

/// Writes the inputs' side of six pixels to six places `apart` from each other.
#[inline(always)]
fn spread(pixels: [&[f32]; PRODUCTS], out: &mut [f32], apart: usize) {
    let channels = pixels[0].len();
    let (head, rest) = out.split_at_mut(apart);
    let (second, rest) = rest.split_at_mut(apart);
    let (third, rest) = rest.split_at_mut(apart);
    let (fourth, rest) = rest.split_at_mut(apart);
    let (fifth, sixth) = rest.split_at_mut(apart);
    let [a, b, c, d, e, f] =
        [head, second, third, fourth, fifth, sixth].map(|part| &mut part[..channels]);
    let pixels = pixels.map(|pixel| &pixel[..channels]);
    for channel in 0..channels {
        let sides = of_inputs(std::array::from_fn(|pixel| pixels[pixel][channel]));
        [a[channel], b[channel], c[channel], d[channel], e[channel], f[channel]] = sides;
    }
}

#[inline(always)]
fn add(values: &mut [f32], others: &[f32]) {
    values.iter_mut().zip(others).for_each(|(value, other)| *value += other);
}
