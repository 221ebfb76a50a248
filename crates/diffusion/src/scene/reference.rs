//! How much smaller a reference is than what it is a reference for.

use burn::tensor::Tensor;

use super::{Time, align_reference};
use crate::{Error, Result};

/// Whole factors between a target and its reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceScale {
    /// In height and width alike.
    pub space: usize,
    /// In pictures, the first of which stands apart.
    pub time: usize,
}

impl ReferenceScale {
    /// Read off the sizes of the latents, frames, rows and columns, wherever they come from.
    ///
    /// # Errors
    /// A size does not divide, or height and width differ.
    pub fn between(target: [usize; 3], reference: [usize; 3]) -> Result<ReferenceScale> {
        let ([frames, rows, columns], [own_frames, own_rows, own_columns]) = (target, reference);
        let fault = |want: &'static str| Error::Reference { reference, want, target };
        let divides = |whole: usize, part: usize| {
            (part > 0 && whole.is_multiple_of(part)).then(|| whole / part)
        };
        let high = divides(rows, own_rows).ok_or_else(|| fault("its height must divide the"))?;
        let wide =
            divides(columns, own_columns).ok_or_else(|| fault("its width must divide the"))?;
        if high != wide {
            return Err(fault("height and width must be smaller by one factor than the"));
        }
        let time = match (frames, own_frames) {
            _ if frames == own_frames => 1,
            // A single picture has no speed.
            (1, _) | (_, 1) => 1,
            _ => divides(frames - 1, own_frames - 1)
                .ok_or_else(|| fault("its frames after the first must divide those of the"))?,
        };
        Ok(ReferenceScale { space: high, time })
    }

    /// Moves the places of a reference, `[B, axes, R, 2]`, onto its target's.
    ///
    /// Where time is counted in seconds, a slower reference has its own; where it is counted in latent
    /// frames, one of the reference's stands for several of the target's.
    pub fn align(self, time: Time, positions: Tensor<4>, target: &Tensor<4>) -> Tensor<4> {
        if time != Time::Frames || self.time == 1 {
            return align_reference(positions, target, self.space, self.time);
        }
        let [batch, axes, tokens, ends] = positions.dims();
        let frames = positions.clone().narrow(1, 0, 1) * self.time as f64;
        let plane = positions.slice([0..batch, 1..axes, 0..tokens, 0..ends]);
        align_reference(Tensor::cat(vec![frames, plane], 1), target, self.space, 1)
    }
}
