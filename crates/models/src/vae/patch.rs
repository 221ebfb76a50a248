//! Squares of pixels as channels of one pixel, in the order of Wan and LTX: channel, column, row.

use super::frames::FrameTensor;

/// `[H, W, C]` to `[H / patch, W / patch, C patch²]`.
pub(super) fn patchify(frame: FrameTensor, patch: usize) -> FrameTensor {
    if patch == 1 {
        return frame;
    }
    let [height, width, channels] = frame.dims();
    let [tall, wide] = [height / patch, width / patch];
    frame.reshape([tall, patch, wide, patch, channels]).permute([0, 2, 4, 3, 1]).reshape([
        tall,
        wide,
        channels * patch * patch,
    ])
}

/// `[H, W, C patch²]` to `[H patch, W patch, C]`.
pub(super) fn unpatchify(frame: FrameTensor, patch: usize) -> FrameTensor {
    if patch == 1 {
        return frame;
    }
    let [height, width, channels] = frame.dims();
    let channels = channels / (patch * patch);
    frame.reshape([height, width, channels, patch, patch]).permute([0, 4, 1, 3, 2]).reshape([
        height * patch,
        width * patch,
        channels,
    ])
}
