//! A clip as frames, each a tensor of its own with its channels last.

use burn::tensor::{DType, Tensor};

/// One frame, `[H, W, C]`.
pub(super) type FrameTensor = Tensor<3>;

/// One frame of `[B, C, F, H, W]` as `[H, W, C]`, f32.
pub(super) fn frame(clips: &Tensor<5>, sample: usize, index: usize) -> FrameTensor {
    let [_, channels, _, height, width] = clips.dims();
    let frame = clips.clone().narrow(0, sample, 1).narrow(2, index, 1);
    frame.reshape([channels, height, width]).permute([1, 2, 0]).cast(DType::F32)
}

/// `[B, C, F, H, W]` of the frames `[H, W, C]` of all samples.
pub(super) fn clips(frames: Vec<FrameTensor>, batch: usize) -> Tensor<5> {
    let count = frames.len() / batch.max(1);
    let stacked: Tensor<4> = Tensor::stack(frames, 0);
    let [_, height, width, channels] = stacked.dims();
    stacked.reshape([batch, count, height, width, channels]).permute([0, 4, 1, 2, 3])
}
