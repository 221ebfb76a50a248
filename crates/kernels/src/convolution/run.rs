//! Convolutions as products of pixels and taps, on plain slices.

use std::ops::Range;

use rayon::prelude::*;

use super::geometry::{AboveTaps, Geometry, Image, UnderTaps, tap_blocks};
use crate::gemm::{Epilogue, Matrix, product};
use crate::linear::transpose;
use crate::narrow::{Narrow, Stored};
use crate::pack::{Order, Unpacked, blocks};

/// With fewer channels than this the pixels under all taps are gathered into one row: a block of
/// the depth would be too short to be worth a tile.
const FEW_CHANNELS: usize = 16;
/// How many values of the taps' pixels are gathered at a time for the gradient of the weight.
const GATHERED: usize = 256;

/// The output `[B, H', W', out]` of an input and a weight `[out, in, kh, kw]`.
pub(crate) fn forward(
    geometry: &Geometry,
    input: &[f32],
    weight: Stored<'_>,
    epilogue: Epilogue<'_>,
) -> Vec<f32> {
    let (taps, inner) = (geometry.taps(), geometry.input.channels);
    let by_tap = reorder(weight, [geometry.output.channels, taps, inner], |[o, t, i]| {
        (o * inner + i) * taps + t
    });
    let few = inner < FEW_CHANNELS;
    let right = Unpacked {
        values: Stored::F32(&by_tap).into(),
        order: Order::ColumnsApart(taps * inner),
        blocks: &if few { blocks(taps * inner) } else { tap_blocks(taps, inner) },
        columns: geometry.output.channels,
    };
    let rows = geometry.output.pixels();
    if few {
        let gathered = gather(geometry, input, 0..taps);
        let left = Matrix { values: &gathered, stride: taps * inner };
        return product(&left, rows, &right, epilogue);
    }
    product(&UnderTaps { geometry, input }, rows, &right, epilogue)
}

/// The gradient of the input `[B, H, W, in]` for that of the output.
pub(crate) fn input_gradient(
    geometry: &Geometry,
    weight: Stored<'_>,
    gradient: &[f32],
) -> Vec<f32> {
    let (taps, outer) = (geometry.taps(), geometry.output.channels);
    let inner = geometry.input.channels;
    let by_tap = reorder(weight, [inner, taps, outer], |[i, t, o]| (o * inner + i) * taps + t);
    let right = Unpacked {
        values: Stored::F32(&by_tap).into(),
        order: Order::ColumnsApart(taps * outer),
        blocks: &tap_blocks(taps, outer),
        columns: inner,
    };
    let factor = geometry.convolution.upsample;
    let seen = geometry.input.enlarged(factor);
    let left = AboveTaps { geometry, gradient };
    let seen_gradient = product(&left, seen.pixels(), &right, Epilogue::NONE);
    if factor == 1 { seen_gradient } else { shrink(&geometry.input, factor, &seen_gradient) }
}

/// The gradient of the weight `[out, in, kh, kw]` for that of the output.
pub(crate) fn weight_gradient(geometry: &Geometry, input: &[f32], gradient: &[f32]) -> Vec<f32> {
    let (taps, inner) = (geometry.taps(), geometry.input.channels);
    let (rows, outer) = (geometry.output.pixels(), geometry.output.channels);
    let transposed = transpose(gradient, rows, outer);
    let left = Matrix { values: &transposed, stride: rows };
    let row_blocks = blocks(rows);
    let mut weight = vec![0.0; outer * inner * taps];
    let together = (GATHERED / inner.max(1)).clamp(1, taps);
    for first in (0..taps).step_by(together) {
        let group = first..(first + together).min(taps);
        let gathered = gather(geometry, input, group.clone());
        let right = Unpacked {
            values: Stored::F32(&gathered).into(),
            order: Order::RowsApart(group.len() * inner),
            blocks: &row_blocks,
            columns: group.len() * inner,
        };
        let part = product(&left, outer, &right, Epilogue::NONE);
        for (row, values) in part.chunks_exact(inner).enumerate() {
            let (o, tap) = (row / group.len(), first + row % group.len());
            for (i, value) in values.iter().enumerate() {
                weight[(o * inner + i) * taps + tap] = *value;
            }
        }
    }
    weight
}

/// A weight in f32 as `[rows, taps, inner]`, element `[r, t, i]` from `place([r, t, i])`.
pub(crate) fn reorder(
    weight: Stored<'_>,
    [rows, taps, inner]: [usize; 3],
    place: impl Fn([usize; 3]) -> usize + Sync,
) -> Vec<f32> {
    let mut out = vec![0.0; rows * taps * inner];
    out.par_chunks_mut((taps * inner).max(1)).enumerate().for_each(|(row, out)| {
        for (tap, out) in out.chunks_exact_mut(inner).enumerate() {
            let from = |i: usize| place([row, tap, i]);
            match weight {
                Stored::F32(weight) => pick(weight, from, out),
                Stored::Bf16(weight) => pick(weight, from, out),
                Stored::F16(weight) => pick(weight, from, out),
            }
        }
    });
    out
}

fn pick<T: Narrow>(values: &[T], from: impl Fn(usize) -> usize, out: &mut [f32]) {
    out.iter_mut().enumerate().for_each(|(i, to)| *to = values[from(i)].widen());
}

/// The input pixels under some taps, `[output pixels, taps x in]`, zero in the padding.
fn gather(geometry: &Geometry, input: &[f32], taps: Range<usize>) -> Vec<f32> {
    // Pixels of one task.
    const PIXELS: usize = 512;
    let Image { height, width, channels, .. } = geometry.input;
    let row = taps.len() * channels;
    let mut out = vec![0.0; geometry.output.pixels() * row];
    out.par_chunks_mut((PIXELS * row).max(1)).enumerate().for_each(|(task, out)| {
        let first = task * PIXELS;
        let range = first..first + out.len() / row;
        geometry.output.each(range, |index, (sample, y, x)| {
            for (to, tap) in out[index * row..][..row].chunks_exact_mut(channels).zip(taps.clone())
            {
                if let Some((y, x)) = geometry.under(tap, (y, x)) {
                    let pixel = (sample * height + y) * width + x;
                    to.copy_from_slice(&input[pixel * channels..][..channels]);
                }
            }
        });
    });
    out
}

/// The sums over the `factor x factor` pixels that each pixel of `image` was enlarged to.
fn shrink(image: &Image, factor: usize, values: &[f32]) -> Vec<f32> {
    let row = image.width * image.channels;
    let mut out = vec![0.0; image.batch * image.height * row];
    out.par_chunks_mut(row.max(1)).enumerate().for_each(|(y, out)| {
        for line in
            values[y * factor * row * factor..][..factor * row * factor].chunks_exact(row * factor)
        {
            for (x, from) in line.chunks_exact(image.channels).enumerate() {
                let to = &mut out[x / factor * image.channels..][..image.channels];
                to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
            }
        }
    });
    out
}
