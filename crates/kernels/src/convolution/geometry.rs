//! Which pixel lies under which tap.

use std::ops::Range;

use super::Convolution;
use crate::gemm::Left;
use crate::pack::{BLOCK, Block, blocks};

/// An image batch `[B, H, W, C]`, channels last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) batch: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Image {
    /// The pixels of all images.
    pub(crate) fn pixels(&self) -> usize {
        self.batch * self.height * self.width
    }

    /// The sizes as a shape.
    pub(crate) fn shape(&self) -> [usize; 4] {
        [self.batch, self.height, self.width, self.channels]
    }

    /// As often as large in both directions.
    pub(crate) fn enlarged(&self, factor: usize) -> Image {
        Image { height: self.height * factor, width: self.width * factor, ..*self }
    }

    /// Calls `visit(index, (sample, y, x))` for each pixel of a range, counted from its start.
    #[inline(always)]
    pub(crate) fn each(
        &self,
        range: Range<usize>,
        mut visit: impl FnMut(usize, (usize, usize, usize)),
    ) {
        let mut x = range.start % self.width;
        let mut y = range.start / self.width % self.height;
        let mut sample = range.start / self.width / self.height;
        for index in 0..range.len() {
            visit(index, (sample, y, x));
            x += 1;
            if x == self.width {
                (x, y) = (0, y + 1);
            }
            if y == self.height {
                (y, sample) = (0, sample + 1);
            }
        }
    }
}

/// A convolution of given sizes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) input: Image,
    pub(crate) output: Image,
    /// Height and width of the kernel.
    pub(crate) kernel: [usize; 2],
    pub(crate) convolution: Convolution,
}

impl Geometry {
    /// The sizes of a convolution of `input` with a weight `[out, in, kh, kw]`.
    ///
    /// # Panics
    /// Panics if the channels differ or no output pixel exists.
    pub(crate) fn new(input: Image, weight: [usize; 4], convolution: Convolution) -> Geometry {
        let [channels, inner, tall, wide] = weight;
        let Convolution { stride, padding: [top, left, bottom, right], upsample } = convolution;
        assert_eq!(
            input.channels, inner,
            "conv2d: an input of {} channels meets a weight of {inner}",
            input.channels
        );
        let seen = input.enlarged(upsample);
        let extent = |size: usize, padding: usize, kernel: usize| {
            assert!(
                0 < stride && 0 < kernel && kernel <= size + padding,
                "conv2d: a kernel of {kernel} does not fit {size} pixels padded by {padding}"
            );
            (size + padding - kernel) / stride + 1
        };
        let height = extent(seen.height, top + bottom, tall);
        let width = extent(seen.width, left + right, wide);
        let output = Image { batch: input.batch, height, width, channels };
        Geometry { input, output, kernel: [tall, wide], convolution }
    }

    /// How many taps the kernel has.
    pub(crate) fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The input pixel under `tap` for the output pixel at `(y, x)`, if the tap is not in padding.
    #[inline(always)]
    pub(crate) fn under(&self, tap: usize, (y, x): (usize, usize)) -> Option<(usize, usize)> {
        let Convolution { stride, padding: [top, left, ..], upsample } = self.convolution;
        let seen = self.input.enlarged(upsample);
        let y = (y * stride + tap / self.kernel[1]).wrapping_sub(top);
        let x = (x * stride + tap % self.kernel[1]).wrapping_sub(left);
        (y < seen.height && x < seen.width).then(|| (y / upsample, x / upsample))
    }

    /// The output pixel that reads the pixel `(y, x)` of the enlarged input through `tap`.
    #[inline(always)]
    fn above(&self, tap: usize, (y, x): (usize, usize)) -> Option<(usize, usize)> {
        let Convolution { stride, padding: [top, left, ..], .. } = self.convolution;
        let y = (y + top).wrapping_sub(tap / self.kernel[1]);
        let x = (x + left).wrapping_sub(tap % self.kernel[1]);
        // A difference below zero wraps to more than any image has pixels.
        let hit = y.is_multiple_of(stride) && x.is_multiple_of(stride);
        let (y, x) = (y / stride, x / stride);
        (hit && y < self.output.height && x < self.output.width).then_some((y, x))
    }
}

/// The blocks of a depth of `taps x channels`: none reaches from one tap into the next.
pub(crate) fn tap_blocks(taps: usize, channels: usize) -> Vec<Block> {
    let within = blocks(channels);
    let of_tap = |tap| within.iter().map(move |(start, depth)| (tap * channels + start, *depth));
    (0..taps).flat_map(of_tap).collect()
}

/// What a tap in the padding sees.
pub(crate) const NOTHING: &[f32; BLOCK] = &[0.0; BLOCK];

/// Rows are output pixels; the depth is every tap's input pixel, channel by channel.
pub(crate) struct UnderTaps<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) input: &'a [f32],
}

impl Left for UnderTaps<'_> {
    #[inline(always)]
    unsafe fn pointers(&self, rows: Range<usize>, (start, depth): Block, into: &mut [*const f32]) {
        let Image { height, width, channels, .. } = self.geometry.input;
        let (tap, first) = (start / channels, start % channels);
        self.geometry.output.each(rows, |index, (sample, y, x)| {
            into[index] = match self.geometry.under(tap, (y, x)) {
                Some((y, x)) => {
                    let pixel = (sample * height + y) * width + x;
                    self.input[pixel * channels + first..][..depth].as_ptr()
                }
                None => NOTHING[..depth].as_ptr(),
            };
        });
    }
}

/// Rows are pixels of the enlarged input; the depth is every tap's output pixel.
pub(crate) struct AboveTaps<'a> {
    pub(crate) geometry: &'a Geometry,
    pub(crate) gradient: &'a [f32],
}

impl Left for AboveTaps<'_> {
    #[inline(always)]
    unsafe fn pointers(&self, rows: Range<usize>, (start, depth): Block, into: &mut [*const f32]) {
        let Image { height, width, channels, .. } = self.geometry.output;
        let (tap, first) = (start / channels, start % channels);
        let seen = self.geometry.input.enlarged(self.geometry.convolution.upsample);
        seen.each(rows, |index, (sample, y, x)| {
            into[index] = match self.geometry.above(tap, (y, x)) {
                Some((y, x)) => {
                    let pixel = (sample * height + y) * width + x;
                    self.gradient[pixel * channels + first..][..depth].as_ptr()
                }
                None => NOTHING[..depth].as_ptr(),
            };
        });
    }
}
