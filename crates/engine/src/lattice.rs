//! The latents of one sample: how large they are and how they are cut into tokens.

use burn::tensor::{Device, Tensor};
use diffusion::Draw;

/// Channels, size and patch. A picture is a clip of one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lattice {
    /// Channels of the latents.
    pub(crate) channels: usize,
    /// Frames, height and width of the latents.
    pub(crate) size: [usize; 3],
    /// Frames, height and width of a token.
    pub(crate) patch: [usize; 3],
}

impl Lattice {
    /// Frames, rows and columns of tokens.
    pub(crate) fn grid(&self) -> [usize; 3] {
        std::array::from_fn(|axis| self.size[axis] / self.patch[axis])
    }

    /// Tokens in all.
    pub(crate) fn tokens(&self) -> usize {
        self.grid().iter().product()
    }

    /// Latents `[1, C, F, h, w]` as tokens `[1, T, C * patch]`.
    pub(crate) fn patchify(&self, latents: Tensor<5>) -> Tensor<3> {
        nn::patchify(latents, self.patch)
    }

    /// Tokens as latents.
    pub(crate) fn unpatchify(&self, tokens: Tensor<3>) -> Tensor<5> {
        nn::unpatchify(tokens, self.grid(), self.patch)
    }

    /// Standard normal latents of one sample as tokens. The draw is keyed by the element of the
    /// latents, so it does not depend on how tokens are cut.
    pub(crate) fn noise(&self, draw: Draw, device: &Device) -> Tensor<3> {
        let [frames, height, width] = self.size;
        let shape = [1, self.channels, frames, height, width];
        self.patchify(draw.normal_tensor(shape, device))
    }
}
