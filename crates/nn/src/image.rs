//! Layers that look at neighbouring pixels, and what they ask of a layout that cuts images into strips of
//! rows.

use std::sync::Arc;

use burn::tensor::Tensor;
use kernels::{Activation, AttentionInputs, CausalFrames, Convolution};

use crate::error::Result;

/// The strip of rows of every image that is at hand, where ranks share them; the others have the rest.
///
/// Strips are in the order of the rows, and every strip of an image has rows.
pub trait ImageStrip: Send + Sync {
    /// Images `[H, W, C]` of one size with up to so many rows of the strips above and below.
    ///
    /// # Errors
    /// They cannot be reached.
    fn halo(&self, images: &[Tensor<3>], rows: [usize; 2]) -> Result<Halo>;

    /// What every strip has of something `[.., .., ..]`, in their order.
    ///
    /// # Errors
    /// They cannot be reached.
    fn gather(&self, own: Tensor<3>) -> Result<Vec<Tensor<3>>>;
}

/// Images with rows of their neighbours.
pub struct Halo {
    /// `[above + H + below, W, C]`.
    pub images: Vec<Tensor<3>>,
    /// Rows above and below; fewer than asked for where the image ends.
    pub rows: [usize; 2],
}

/// The strip that a layer works on; none where it sees whole images.
pub type Strip = Option<Arc<dyn ImageStrip>>;

/// A 2-D convolution over channels-last images.
pub struct Convolution2d {
    /// `[outputs, inputs, kernel, kernel]`.
    pub weight: Tensor<4>,
    /// `[outputs]`.
    pub bias: Tensor<1>,
    /// What it sees of an image.
    pub strip: Strip,
}

impl Convolution2d {
    /// `[B, H, W, inputs]` to `[B, H', W', outputs]`.
    ///
    /// # Errors
    /// Neighbouring rows cannot be reached.
    pub fn apply(&self, x: Tensor<4>, convolution: &Convolution) -> Result<Tensor<4>> {
        if self.strip.is_some() {
            let images: Vec<Tensor<3>> = x.iter_dim(0).map(|image| image.squeeze_dim(0)).collect();
            return Ok(Tensor::stack(self.apply_frames(&images, convolution)?, 0));
        }
        let bias = Some(self.bias.clone());
        Ok(kernels::conv2d(x, self.weight.clone(), bias, convolution, Activation::Identity))
    }

    /// The same for frames `[H, W, inputs]`, each a tensor of its own.
    ///
    /// # Errors
    /// As [`Convolution2d::apply`].
    pub fn apply_frames(
        &self,
        frames: &[Tensor<3>],
        convolution: &Convolution,
    ) -> Result<Vec<Tensor<3>>> {
        let all = |frames: &[Tensor<3>]| {
            kernels::frames_conv2d(
                frames,
                self.weight.clone(),
                Some(self.bias.clone()),
                convolution,
            )
        };
        let Convolution { stride, padding: [top, _, bottom, _], upsample } = *convolution;
        let Some(strip) = self.strip.as_ref().filter(|_| top + bottom > 0) else {
            return Ok(all(frames));
        };
        let rows = [top, bottom].map(|padding| padding.div_ceil(upsample));
        let Halo { images, rows: [above, _] } = strip.halo(frames, rows)?;
        let height = frames.first().map_or(0, |frame| frame.dims()[0]);
        let [start, count] = [above, height].map(|rows| rows * upsample / stride);
        Ok(all(&images).into_iter().map(|frame| frame.narrow(0, start, count)).collect())
    }
}

/// A causal convolution over channels-last frames.
pub struct Convolution3d {
    /// `[outputs, inputs, kt, kh, kw]`.
    pub weight: Tensor<5>,
    /// `[outputs]`.
    pub bias: Tensor<1>,
    /// What it sees of a frame.
    pub strip: Strip,
}

impl Convolution3d {
    /// Frames `[H, W, inputs]` to frames `[H, W, outputs]`, one for each whole `time_stride`, with
    /// the frame of `residual` in its place added if there are any.
    ///
    /// # Errors
    /// Neighbouring rows cannot be reached.
    pub fn apply(
        &self,
        frames: CausalFrames<'_>,
        time_stride: usize,
        residual: Option<&[Tensor<3>]>,
    ) -> Result<Vec<Tensor<3>>> {
        let all = |frames, residual| {
            let bias = Some(self.bias.clone());
            kernels::causal_conv3d(frames, self.weight.clone(), bias, time_stride, residual)
        };
        let tall = self.weight.dims()[3] / 2;
        let Some(strip) = self.strip.as_ref().filter(|_| tall > 0) else {
            return Ok(all(frames, residual));
        };
        let Some(height) = frames.now.first().map(|frame| frame.dims()[0]) else {
            return Ok(Vec::new());
        };
        let both: Vec<Tensor<3>> = frames.earlier.iter().chain(frames.now).cloned().collect();
        let Halo { images, rows: [above, _] } = strip.halo(&both, [tall; 2])?;
        let (earlier, now) = images.split_at(frames.earlier.len());
        let made = all(CausalFrames { earlier, now }, None).into_iter();
        let made = made.map(|frame| frame.narrow(0, above, height));
        Ok(match residual {
            Some(residual) => made.zip(residual).map(|(it, added)| it + added.clone()).collect(),
            None => made.collect(),
        })
    }
}

/// Group norm over channels-last images.
pub struct GroupNorm {
    /// How many groups the channels make.
    pub groups: usize,
    /// Weight and bias `[C]`.
    pub affine: (Tensor<1>, Tensor<1>),
    /// Added to the variance.
    pub epsilon: f32,
    /// What it sees of an image.
    pub strip: Strip,
}

impl GroupNorm {
    /// `[B, H, W, C]`, normalised over the pixels of a whole image, then the activation.
    ///
    /// # Errors
    /// The other rows cannot be reached.
    pub fn apply(&self, x: Tensor<4>, activation: Activation) -> Result<Tensor<4>> {
        let (groups, affine) = (self.groups, self.affine.clone());
        let Some(strip) = &self.strip else {
            return Ok(kernels::group_norm(x, groups, affine, self.epsilon, activation));
        };
        let moments = strip.gather(kernels::group_moments(&x, groups))?;
        Ok(kernels::group_norm_by(x, &moments, affine, self.epsilon, activation))
    }
}

/// Self-attention of one head over all pixels of an image.
pub struct PixelAttention {
    /// What it sees of an image.
    pub strip: Strip,
}

impl PixelAttention {
    /// Queries, keys and values `[B, pixels, C]` to `[B, pixels, C]`.
    ///
    /// # Errors
    /// The other pixels cannot be reached.
    pub fn apply(&self, [q, k, v]: [Tensor<3>; 3]) -> Result<Tensor<3>> {
        let scale = 1.0 / (q.dims()[2] as f32).sqrt();
        let [k, v] = match &self.strip {
            None => [k, v],
            Some(strip) => [Tensor::cat(strip.gather(k)?, 1), Tensor::cat(strip.gather(v)?, 1)],
        };
        let [q, k, v] = [q, k, v].map(|it| it.unsqueeze_dim::<4>(2));
        Ok(kernels::attention(AttentionInputs { q, k, v, mask: None, scale }).squeeze_dim(2))
    }
}
