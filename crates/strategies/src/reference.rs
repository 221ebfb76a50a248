//! How much smaller a reference is than what it is a reference for.

use burn::tensor::Tensor;
use diffusion::{Time, align_reference};
use train::{Error, Result};

/// Whole factors between target and reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Factors {
    /// In height and width alike.
    pub(crate) space: usize,
    /// In pictures, the first of which stands apart.
    pub(crate) time: usize,
}

impl Factors {
    /// Read off the latents themselves, `[B, C, F, H, W]`, wherever they come from.
    ///
    /// # Errors
    /// A size does not divide, or height and width differ.
    pub(crate) fn between(
        source: &str,
        target: &Tensor<5>,
        reference: &Tensor<5>,
    ) -> Result<Factors> {
        let ([_, _, frames, rows, columns], [_, _, own_frames, own_rows, own_columns]) =
            (target.dims(), reference.dims());
        let fault = |want: &str| Error::Shape {
            what: format!("reference `{source}`"),
            got: format!("{:?} latents", [own_frames, own_rows, own_columns]),
            want: format!("{want} {:?} of the target", [frames, rows, columns]),
        };
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
        Ok(Factors { space: high, time })
    }
}

/// Moves the places of a reference, `[B, axes, R, 2]`, onto its target's.
///
/// Where time is counted in seconds, a slower reference has its own; where it is counted in latent
/// frames, one of the reference's stands for several of the target's.
pub(crate) fn aligned(
    time: Time,
    positions: Tensor<4>,
    target: &Tensor<4>,
    factors: Factors,
) -> Tensor<4> {
    if time != Time::Frames || factors.time == 1 {
        return align_reference(positions, target, factors.space, factors.time);
    }
    let [batch, axes, tokens, ends] = positions.dims();
    let frames = positions.clone().narrow(1, 0, 1) * factors.time as f64;
    let plane = positions.slice([0..batch, 1..axes, 0..tokens, 0..ends]);
    align_reference(Tensor::cat(vec![frames, plane], 1), target, factors.space, 1)
}
