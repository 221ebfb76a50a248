//! Latents as tokens and back. Engines and strategies do this; a model never does.

use burn::tensor::Tensor;

/// Cuts latents `[B, C, F, H, W]` into tokens `[B, T, C * pf * ph * pw]`, one per patch, frames first,
/// then rows, then columns; within a token the order is (channel, frame, row, column).
///
/// # Panics
/// Panics if a size is not a multiple of its patch.
pub fn patchify(latents: Tensor<5>, [pf, ph, pw]: [usize; 3]) -> Tensor<3> {
    let [batch, channels, frames, height, width] = latents.dims();
    let [f, h, w] = [frames / pf, height / ph, width / pw];
    latents
        .reshape([batch, channels, f, pf, h, ph, w, pw])
        .permute([0, 2, 4, 6, 1, 3, 5, 7])
        .reshape([batch, f * h * w, channels * pf * ph * pw])
}

/// The inverse of [`patchify`] for a grid of `[frames, rows, columns]` patches.
///
/// # Panics
/// Panics if the tokens are not those of such a grid.
pub fn unpatchify(tokens: Tensor<3>, [f, h, w]: [usize; 3], [pf, ph, pw]: [usize; 3]) -> Tensor<5> {
    let [batch, _, width] = tokens.dims();
    let channels = width / (pf * ph * pw);
    tokens
        .reshape([batch, f, h, w, channels, pf, ph, pw])
        .permute([0, 4, 1, 5, 2, 6, 3, 7])
        .reshape([batch, channels, f * pf, h * ph, w * pw])
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Int, Tensor};

    use super::{patchify, unpatchify};

    fn numbered(shape: [usize; 5]) -> Tensor<5> {
        let elements = shape.iter().product::<usize>() as i64;
        Tensor::<1, Int>::arange(0..elements, &Device::flex()).float().reshape(shape)
    }

    #[test]
    fn cutting_and_joining_is_the_identity() {
        for (shape, patch) in [([2, 3, 4, 6, 10], [1, 2, 2]), ([1, 2, 4, 3, 5], [2, 3, 1])] {
            let latents = numbered(shape);
            let grid = std::array::from_fn(|axis| shape[axis + 2] / patch[axis]);
            let back = unpatchify(patchify(latents.clone(), patch), grid, patch);
            back.into_data().assert_eq(&latents.into_data(), true);
        }
    }

    /// The second token of the first row holds columns 2 and 3 of rows 0 and 1, channel by channel.
    #[test]
    fn a_token_is_ordered_by_channel_row_column() {
        let tokens = patchify(numbered([1, 2, 1, 4, 6]), [1, 2, 2]);
        let second = tokens.slice([0..1, 1..2]).into_data();
        assert_eq!(second.try_to_vec::<f32>().unwrap(), [2., 3., 8., 9., 26., 27., 32., 33.]);
    }
}
