//! Enlarging twice and then convolving with 3 x 3 taps, without the taps that see the same pixel.
//!
//! Of the three rows that an output row looks at two are copies of one input row. So each of the
//! four kinds of output pixel, even or odd in either direction, is a convolution of the small image
//! with 2 x 2 taps that are sums of the nine: four ninths of the products.

use rayon::prelude::*;

use super::direct::Plain;
use super::{Layer, Output};
use crate::convolution::Convolution;
use crate::convolution::geometry::Geometry;
use crate::gemm::{Shared, written};
use crate::narrow::{Narrow, Stored};

/// Whether the image is enlarged in the way this is made for.
pub(super) fn suits(geometry: &Geometry) -> bool {
    let enlarging = Convolution { stride: 1, padding: [1; 4], upsample: 2 };
    geometry.kernel == [3; 2] && geometry.convolution == enlarging
}

/// The values `[2 H, 2 W, out]` of every result.
pub(super) fn run(layer: &Layer<'_>, outputs: &[Output<'_>]) -> Vec<Vec<f32>> {
    let phases: [Vec<Vec<f32>>; 4] = std::array::from_fn(|phase| {
        let (row, column) = (phase / 2, phase % 2);
        let (inner, outer) = (layer.geometry.input.channels, layer.geometry.output.channels);
        let weight = summed(layer.weight, outer * inner, [row, column]);
        let padding = [1 - row, 1 - column, row, column];
        let convolution = Convolution { stride: 1, padding, upsample: 1 };
        let geometry = Geometry::new(layer.geometry.input, [outer, inner, 2, 2], convolution);
        let layer = Layer { geometry: &geometry, weight: Stored::F32(&weight), ..*layer };
        Plain::new(&layer).run(outputs)
    });
    let mut frames = phases.map(Vec::into_iter);
    let size = [layer.geometry.input.width, layer.geometry.output.channels];
    (0..outputs.len())
        .map(|_| {
            let phases = frames.each_mut().map(|frames| frames.next().expect("one per result"));
            interleave(&phases, size)
        })
        .collect()
}

/// The 2 x 2 taps of one kind of output pixel for each of `kernels` 3 x 3 kernels.
fn summed(weight: Stored<'_>, kernels: usize, odd: [usize; 2]) -> Vec<f32> {
    let mut out = vec![0.0; kernels * 4];
    out.par_chunks_mut(4).enumerate().for_each(|(kernel, out)| match weight {
        Stored::F32(values) => sum(&values[kernel * 9..][..9], odd, out),
        Stored::Bf16(values) => sum(&values[kernel * 9..][..9], odd, out),
        Stored::F16(values) => sum(&values[kernel * 9..][..9], odd, out),
    });
    out
}

/// An even pixel's first tap sees the pixel before, its other two the same; an odd one's first two
/// see the same pixel, its last the one after.
fn sum<T: Narrow>(taps: &[T], odd: [usize; 2], out: &mut [f32]) {
    let place = |tap: usize, odd: usize| (tap + 1 - odd) / 2;
    for (tap, value) in taps.iter().enumerate() {
        let [row, column] = [place(tap / 3, odd[0]), place(tap % 3, odd[1])];
        out[row * 2 + column] += value.widen();
    }
}

/// `[2 H, 2 W, C]` of the four phases `[H, W, C]`.
fn interleave(phases: &[Vec<f32>; 4], [width, channels]: [usize; 2]) -> Vec<f32> {
    let row = width * channels;
    let height = phases[0].len() / row.max(1);
    let copy = |place: Shared, y: usize| {
        for (column, phase) in phases[y % 2 * 2..][..2].iter().enumerate() {
            for (x, pixel) in phase[y / 2 * row..][..row].chunks_exact(channels).enumerate() {
                let to = y * 2 * row + (2 * x + column) * channels;
                // SAFETY: this pixel of this row is written here alone.
                unsafe { place.at(to).copy_from_nonoverlapping(pixel.as_ptr(), channels) };
            }
        }
    };
    let write = |[place]: [Shared; 1]| {
        (0..2 * height).into_par_iter().for_each(|y| copy(place, y));
    };
    // SAFETY: all pixels of all rows are written.
    let [out] = unsafe { written([4 * height * row], write) };
    out
}
