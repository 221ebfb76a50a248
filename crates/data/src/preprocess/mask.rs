//! Masks: which pixels of a clip are to be generated, and which of its latents that makes.
//!
//! A mask goes the way of its clip: the same frames, the same part of the picture, the same size. It is
//! judged before it is scaled and never averaged, so that even a single white pixel counts.

use std::ops::Range;
use std::path::PathBuf;

use burn::tensor::TensorData;

use super::doctor::Reason;
use super::frames::{Crop, crop};
use super::pieces::{Pieces, Role};
use super::{Probe, RgbFrame};
use crate::clip::CHANNELS;
use crate::store::Bucket;

/// Shares of red, green and blue in what the eye sees as bright (Rec. 709), in ten thousandths.
const LUMA: [u32; 3] = [2126, 7152, 722];

/// What of a clip is to be generated: what is white in another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub kind: MaskKind,
}

/// What a mask can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskKind {
    /// One picture, which stands for every frame.
    Still,
    /// A clip, with a frame for each of its clip's.
    Moving,
}

/// What a mask is, if it fits its clip.
///
/// # Errors
/// It has another size, ends earlier or plays at another speed.
pub(super) fn examine(mask: &Probe, clip: &Probe, bucket: &Bucket) -> Result<MaskKind, Reason> {
    let [own, wanted] = [mask, clip].map(|it| [it.height, it.width]);
    if own != wanted {
        return Err(Reason::OtherSize { mask: own, clip: wanted });
    }
    if mask.frames == 1 {
        return Ok(MaskKind::Still);
    }
    if mask.frames < clip.frames {
        return Err(Reason::Shorter { mask: mask.frames, clip: clip.frames });
    }
    // Rates are often rounded, so what counts is that no frame is nearer to another one's time.
    let drift = (bucket.frames - 1) as f64 * (clip.fps / mask.fps - 1.0).abs();
    if drift >= 0.5 {
        return Err(Reason::OtherRate { mask: mask.fps, clip: clip.fps });
    }
    Ok(MaskKind::Moving)
}

impl Mask {
    /// 1 where latents are to be generated and 0 where they are given, `[f, h, w]`, of a clip that is used
    /// from frame `first` on, and whose next piece begins at `next`. A latent is generated if any of the pixels it
    /// stands for is.
    ///
    /// # Errors
    /// It cannot be read, or leaves nothing to be generated.
    pub(super) fn read(
        &self,
        pieces: &mut Pieces<'_>,
        ((first, next), bucket): ((usize, Option<usize>), &Bucket),
        factors: [usize; 3],
    ) -> Result<TensorData, Reason> {
        let of_mask = |reason| Reason::Mask(self.path.clone(), Box::new(reason));
        let Bucket { frames, height, width } = *bucket;
        let (span, repeat) = match self.kind {
            MaskKind::Still => ((0..1, next.map(|_| 0)), frames),
            MaskKind::Moving => ((first..first + frames, next), 1),
        };
        let white = pieces.take(Role::Mask, &self.path, bucket, span);
        let white = white.map_err(|cause| of_mask(Reason::Unreadable(cause.to_string())))?;
        let pixels: Vec<bool> = white.into_iter().map(|own| own != 0).collect();
        if !pixels.contains(&true) {
            return Err(of_mask(Reason::NothingGenerated));
        }
        let latents =
            diffusion::pool_mask(&pixels.repeat(repeat), [frames, height, width], factors);
        let grid = [
            1 + (frames - 1).div_ceil(factors[0]),
            height.div_ceil(factors[1]),
            width.div_ceil(factors[2]),
        ];
        let values: Vec<f32> = latents.into_iter().map(|it| f32::from(u8::from(it))).collect();
        Ok(TensorData::new(values, grid))
    }
}

/// Which pixels `[H, W]` of a bucket show a white one of the frame, or a part of it.
pub(super) fn generated(frame: &RgbFrame, bucket: &Bucket) -> Result<Vec<bool>, String> {
    let RgbFrame { height, width, pixels } = frame;
    let found = pixels.len();
    if found != height * width * CHANNELS || found == 0 {
        return Err(format!("a frame of {height}x{width} has {found} values"));
    }
    let kept = crop(*height, *width, bucket);
    let mut shown = vec![false; bucket.height * bucket.width];
    for row in 0..kept.height {
        let Crop { top, left, .. } = kept;
        let start = ((top + row) * width + left) * CHANNELS;
        let line = pixels[start..][..kept.width * CHANNELS].chunks_exact(CHANNELS);
        for (column, _) in line.enumerate().filter(|(_, pixel)| is_white(pixel)) {
            let columns = touched(column, kept.width, bucket.width);
            for row in touched(row, kept.height, bucket.height) {
                shown[row * bucket.width..][columns.clone()].fill(true);
            }
        }
    }
    Ok(shown)
}

/// The places out of `to` that place `at` out of `from` touches.
pub fn touched(at: usize, from: usize, to: usize) -> Range<usize> {
    at * to / from..((at + 1) * to).div_ceil(from)
}

/// Whether a pixel is at least half as bright as white.
pub fn is_white(pixel: &[u8]) -> bool {
    let luma: u32 = pixel.iter().zip(LUMA).map(|(value, share)| u32::from(*value) * share).sum();
    2 * luma >= 255 * LUMA.iter().sum::<u32>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_is_half_as_bright_or_more() {
        for (pixel, expected) in [
            ([255; 3], true),
            ([128; 3], true),
            ([127; 3], false),
            ([0, 255, 0], true),
            ([255, 0, 0], false),
            ([0, 0, 255], false),
            ([255, 0, 255], false),
        ] {
            assert_eq!(is_white(&pixel), expected, "{pixel:?}");
        }
    }

    /// Every place is touched, none beyond the end, and neighbours overlap by one at most.
    #[test]
    fn scaling_leaves_no_gap() {
        for (from, to) in [(7, 3), (3, 7), (64, 16), (16, 64), (100, 33), (5, 5), (1, 4)] {
            let mut end = 0;
            for at in 0..from {
                let touched = touched(at, from, to);
                assert!(!touched.is_empty() && touched.start <= end && touched.start + 1 >= end);
                end = touched.end;
            }
            assert_eq!(end, to, "{from} to {to}");
        }
    }
}
