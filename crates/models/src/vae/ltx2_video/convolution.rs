//! The convolution of every layer: three frames of three by three pixels, the clip's ends repeated in time.

use burn::tensor::Tensor;
use kernels::CausalFrames;
use nn::{Convolution3d, Halo, Result, Weights};

use super::config::{Half, Padding};
use crate::vae::frames::FrameTensor;

/// How convolutions of one half go over the ends of a clip and the borders of a frame.
#[derive(Clone, Copy)]
pub(super) struct Borders {
    causal: bool,
    padding: Padding,
}

impl<L> From<&Half<L>> for Borders {
    fn from(half: &Half<L>) -> Borders {
        Borders { causal: half.causal, padding: half.padding }
    }
}

/// A convolution that keeps number and size of frames.
pub(super) struct Convolution {
    inner: Convolution3d,
    borders: Borders,
}

impl Convolution {
    /// The one that checkpoints call `name.conv`.
    pub(super) fn new(
        weights: &Weights<'_>,
        name: &str,
        channels: [usize; 2],
        borders: Borders,
    ) -> Result<Convolution> {
        let inner = weights.at(name).convolution3d("conv", channels, [3; 3])?;
        Ok(Convolution { inner, borders })
    }

    /// Frames `[H, W, inputs]` to `[H, W, outputs]`, plus the frame of `residual` in its place if there is one.
    pub(super) fn apply(
        &self,
        frames: Vec<FrameTensor>,
        residual: Option<&[FrameTensor]>,
    ) -> Result<Vec<FrameTensor>> {
        match self.borders.padding {
            Padding::Zeros => {
                let (earlier, now) = self.in_time(frames);
                self.inner.apply(CausalFrames { earlier: &earlier, now: &now }, 1, residual)
            }
            Padding::Reflect => self.reflected(frames, residual),
        }
    }

    /// What stands before the frames that give results, and those.
    fn in_time(&self, mut frames: Vec<FrameTensor>) -> (Vec<FrameTensor>, Vec<FrameTensor>) {
        let earlier: Vec<FrameTensor> =
            frames.first().into_iter().cycle().take(2).cloned().collect();
        if !self.borders.causal {
            // A result looks at one frame after its own: the row starts with the second frame, and ends with the
            // last one twice.
            frames.extend(frames.last().cloned());
            frames.remove(0);
        }
        (earlier, frames)
    }

    /// The same over frames that are mirrored at their borders: one pixel more on each side, which the result
    /// then loses.
    fn reflected(
        &self,
        frames: Vec<FrameTensor>,
        residual: Option<&[FrameTensor]>,
    ) -> Result<Vec<FrameTensor>> {
        let Some([height, width, _]) = frames.first().map(Tensor::dims) else {
            return Ok(frames);
        };
        let Halo { images, rows } = match &self.inner.strip {
            Some(strip) => strip.halo(&frames, [1; 2])?,
            None => Halo { images: frames, rows: [0; 2] },
        };
        let mirrored = images.into_iter().map(|image| mirror(mirror(image, 0, rows), 1, [0; 2]));
        let (earlier, now) = self.in_time(mirrored.collect());
        let clip = CausalFrames { earlier: &earlier, now: &now };
        let (weight, bias) = (self.inner.weight.clone(), Some(self.inner.bias.clone()));
        let made = kernels::causal_conv3d(clip, weight, bias, 1, None).into_iter();
        let made = made.map(|frame| frame.slice([1..height + 1, 1..width + 1]));
        Ok(match residual {
            Some(residual) => made.zip(residual).map(|(it, added)| it + added.clone()).collect(),
            None => made.collect(),
        })
    }
}

/// An image with one row or column more at each end, unless that is there already.
fn mirror(image: FrameTensor, axis: usize, there: [usize; 2]) -> FrameTensor {
    let side = image.dims()[axis];
    let first = (there[0] == 0).then(|| image.clone().narrow(axis, 1, 1));
    let last = (there[1] == 0).then(|| image.clone().narrow(axis, side - 2, 1));
    Tensor::cat([first, Some(image), last].into_iter().flatten().collect(), axis)
}
